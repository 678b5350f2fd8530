"""Changes that are made together or not at all: what `apply`, `diff` and `plan` send."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.records import ID_FIELDS, FileRecord
from toolgate.registry.files.directory import find_line

APPLY: Final = "/admin/api/apply"
PLAN: Final = "/admin/api/plan"

ChangeFilesOption = Annotated[
    list[Path],
    Option(
        "--file",
        "-f",
        help="TOML or JSON file, or a directory of them at any depth; `-` reads JSON. May be repeated.",
    ),
]
PruneOption = Annotated[
    bool,
    Option("--prune", help="Also remove the servers, tasks, profiles and chat upstreams not in the files."),
]


def build_change_set(
    records: Iterable[FileRecord], *, deletes: Iterable[str] = (), prune: bool = False
) -> dict[str, Any]:
    """The body of a plan: records to write, and names of records (`task/review`) to remove."""
    writes = [{"kind": one.kind, "id": one.id, "body": one.body} for one in records]
    return {"changes": [*writes, *map(_parse_removal, deletes)], "prune": prune}


def post_changes(
    client: RestClient, path: str, body: Mapping[str, Any], records: Sequence[FileRecord]
) -> Mapping[str, Any]:
    """The gateway's answer. A record it refuses is looked up in the files, to say where it stands."""
    try:
        answer: Mapping[str, Any] = client.post(path, body)
    except CommandError as failure:
        raise _add_location(failure, records) from None
    return answer


def _add_location(failure: CommandError, records: Iterable[FileRecord]) -> CommandError:
    """`failure` with the file and line of the record it names, where it names one."""
    named = (failure.data.get("kind"), failure.data.get("id"))
    for record in records:
        if (record.kind, record.id) == named:
            line = find_line(record.text, failure.data.get("problems", ()))
            where = f"{record.file}:{line}" if line else f"{record.file}"
            return CommandError(
                f"{where}: {failure}", hint=failure.hint, code=failure.code, exit_code=failure.exit_code
            )
    return failure


def _parse_removal(name: str) -> dict[str, Any]:
    word, slash, record_id = name.partition("/")
    kind = word.replace("-", "_")
    if kind not in ID_FIELDS or not slash:
        raise CommandError(
            f"`{name}` names no record",
            hint="write `server/ID`, `task/ID`, `profile/ID` or `chat-upstream/ID`",
            exit_code=ExitCode.USAGE,
        )
    return {"kind": kind, "id": record_id, "body": None}
