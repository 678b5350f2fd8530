"""The commands that every kind of record has: list, get, apply, delete, history, diff and rollback.

A noun (`toolgate servers`) names its kind, how its records are shown, and the verbs that make no sense for
it. Further commands of the noun are added to the group's `app`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.cli.command import Command, add_group, command
from toolgate.cli.files import hash_modules, load_record, send_modules
from toolgate.cli.options import GatewayConnection, Render
from toolgate.cli.render import changes as render
from toolgate.cli.rest import COLLECTIONS, build_conditions, build_record_path
from toolgate.model.revisions import Kind, describe_kind

FilesOption = Annotated[
    list[Path],
    "--file -f",
    "TOML or JSON file with one record; `-` reads JSON from standard input. Repeatable.",
]
PlanOption = Annotated[
    str | None, "--require-plan PLAN", "Only if the effect is still that of the plan with this id."
]
RevisionOption = Annotated[
    int | None, "--if-revision REVISION", "Only if the record is still at this revision."
]

_SUMMARIES: Final[Mapping[str, str]] = {
    "list": "List the {noun}s.",
    "get": "Show one {noun} in full.",
    "apply": "Create or replace {noun}s from files.",
    "delete": "Delete a {noun}.",
    "history": "List the changes of a {noun}, newest first.",
    "diff": "Compare a {noun} between two registry revisions.",
    "rollback": (
        "Restore a {noun} as it was at a registry revision.\n\n"
        "The restored record is a new revision: history is never rewritten."
    ),
}
"""Verb → its help, unless the noun has another."""


def name_group(kind: Kind) -> str:
    """The noun of a kind on the command line: `chat-upstreams`."""
    return f"{kind}s".replace("_", "-")


def id_argument(kind: Kind) -> Any:
    """The argument of a command that names one record: what it is, and where to see it."""
    noun = describe_kind(kind)
    # A pin has the id of its server.
    name = "SERVER" if kind == "pin" else noun.rpartition(" ")[2].upper()
    return Argument(metavar=name, help=f"{noun.capitalize()} id, as in `toolgate {name_group(kind)} list`.")


ServerArgument = Annotated[str, id_argument("server")]
TaskArgument = Annotated[str, id_argument("task")]


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """The conditions of a change."""

    revision: RevisionOption = None
    plan_id: PlanOption = None

    @property
    def headers(self) -> dict[str, str]:
        return build_conditions(revision=self.revision, plan_id=self.plan_id)


@dataclass(frozen=True, kw_only=True)
class RecordViews:
    """How the records of a kind are shown to people."""

    many: Render
    one: Render


class RecordGroup:
    """The commands of one kind of record under its noun.

    `summaries` are the help of verbs that need more than the usual words. Verbs in `without` are left out,
    and `note` says why.
    """

    def __init__(
        self,
        root: typer.Typer,
        kind: Kind,
        views: RecordViews,
        *,
        summaries: Mapping[str, str] | None = None,
        without: Collection[str] = (),
        note: str = "",
    ) -> None:
        self.app = add_group(root, name_group(kind), note=note)
        self._kind = kind
        self._summaries = {**_SUMMARIES, **(summaries or {})}
        self._without = without
        # In the order of the help.
        self._add_current(views)
        self._add_past()

    def _verb(self, verb: str) -> Callable[[Command], Command]:
        """Registers a command, if the noun has this verb."""
        if verb in self._without:
            return lambda function: function
        return command(self.app, verb, self._summaries[verb].format(noun=describe_kind(self._kind)))

    def _add_current(self, views: RecordViews) -> None:
        kind = self._kind

        @self._verb("list")
        def list_records(connection: GatewayConnection) -> None:
            connection.print_list(COLLECTIONS[kind], f"{kind}s", views.many)

        @self._verb("get")
        def get_record(record_id: Annotated[str, id_argument(kind)], connection: GatewayConnection) -> None:
            connection.print_result(build_record_path(kind, record_id), views.one)

        @self._verb("apply")
        def apply_records(
            files: FilesOption, connection: GatewayConnection, conditions: ConditionOptions
        ) -> None:
            # All are read before the first is sent; the first that is refused ends it.
            records, modules = hash_modules([load_record(path, kind=kind) for path in files])
            with connection.open() as client:
                send_modules(client, modules, as_json=connection.as_json)
                for one in records:
                    path = build_record_path(one.kind, one.id)
                    response = client.send("PUT", path, one.body, headers=conditions.headers)
                    connection.show(response, render.render_applied(one.kind, one.id, response))

        @self._verb("delete")
        def delete_record(
            record_id: Annotated[str, id_argument(kind)],
            connection: GatewayConnection,
            conditions: ConditionOptions,
        ) -> None:
            self.delete(record_id, connection, conditions.headers)

    def delete(self, record_id: str, connection: GatewayConnection, headers: dict[str, str]) -> None:
        """Delete a record, and print what still refers to it."""
        with connection.open() as client:
            response = client.send("DELETE", build_record_path(self._kind, record_id), headers=headers)
        shown = render.render_done(self._kind, record_id, "deleted", response)
        connection.show({"deleted": record_id, **response}, shown)

    def _add_past(self) -> None:
        kind = self._kind

        @self._verb("history")
        def list_history(
            record_id: Annotated[str, id_argument(kind)],
            connection: GatewayConnection,
            *,
            limit: Annotated[
                int, Option(min=1, max=500, help="Number of changes to list, at most 500.")
            ] = 20,
        ) -> None:
            path = build_record_path(kind, record_id, "history")
            connection.print_result(path, render.render_history, {"limit": limit}, member="entries")

        @self._verb("diff")
        def diff_record(
            record_id: Annotated[str, id_argument(kind)],
            connection: GatewayConnection,
            *,
            since: Annotated[
                int, Option(min=0, metavar="REVISION", help="The earlier revision, as in `history`.")
            ],
            upto: Annotated[
                int | None, Option(min=0, metavar="REVISION", help="The later revision. Default: the newest.")
            ] = None,
        ) -> None:
            path, query = build_record_path(kind, record_id, "diff"), {"since": since, "upto": upto}
            connection.print_result(path, render.render_field_diff, query)

        @self._verb("rollback")
        def roll_back_record(
            record_id: Annotated[str, id_argument(kind)],
            connection: GatewayConnection,
            conditions: ConditionOptions,
            *,
            to: Annotated[
                int, Option(min=0, metavar="REVISION", help="The revision to restore, as in `history`.")
            ],
        ) -> None:
            roll_back(kind, record_id, connection, conditions, to=to)


def roll_back(
    kind: Kind, record_id: str, connection: GatewayConnection, conditions: ConditionOptions, *, to: int
) -> None:
    """Restore a record as it was at a registry revision; it is deleted if it did not exist then."""
    path, headers = build_record_path(kind, record_id, "rollback"), conditions.headers
    with connection.open() as client:
        response = client.post(path, {"revision": to}, headers=headers)
    what = f"restored as of revision {to:,} (revision {response['revision']})"
    connection.show(response, render.render_done(kind, record_id, what, response))
