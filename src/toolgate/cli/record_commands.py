"""What servers, tasks and profiles have in common on the command line: apply and delete."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from toolgate.cli.options import Connection
from toolgate.cli.record_files import Record, load_record
from toolgate.cli.render.changes import render_applied, render_deleted
from toolgate.model.revisions import Kind

FilesOption = Annotated[
    list[Path],
    Option("--file", "-f", help="TOML or JSON file with one record; `-` reads JSON. May be repeated."),
]
IdArgument = Annotated[str, Argument(help="Its id.", show_default=False)]
RevisionOption = Annotated[
    int | None, Option("--if-revision", help="Only if this is still the record's newest revision.")
]


def apply_files(
    kind: Kind, files: Sequence[Path], connection: Connection, *, revision: int | None = None
) -> None:
    """Write the records in `files`, all read before the first is sent."""
    apply_records([load_record(path, kind=kind) for path in files], connection, revision=revision)


def apply_records(records: Sequence[Record], connection: Connection, *, revision: int | None = None) -> None:
    """Write `records` in their order; the first that is refused ends it."""
    with connection.open() as client:
        for record in records:
            answer = client.put(record.kind, record.id, record.body, revision=revision)
            connection.output.show(answer, render_applied(record.kind, record.id, answer))


def delete_record(kind: Kind, record_id: str, connection: Connection, *, revision: int | None = None) -> None:
    """Remove one record."""
    with connection.open() as client:
        answer = client.delete(kind, record_id, revision=revision)
    connection.output.show({"deleted": record_id, **answer}, render_deleted(kind, record_id, answer))
