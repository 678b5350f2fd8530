"""The commands that every kind of record has: list, get, apply, delete, history, diff and rollback.

A noun (`toolgate servers`) names its kind, how its records are shown, and the verbs that make no sense for
it. Further commands of the noun are added to the group's `app`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.cli.command import ArgumentText, add_group, command
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
    str | None,
    Option(
        "--require-plan", metavar="PLAN", help="Only if the effect is still that of the plan with this id."
    ),
]
RevisionOption = Annotated[
    int | None,
    Option("--if-revision", metavar="REVISION", help="Only if the record is still at this revision."),
]
LimitOption = Annotated[int, Option(min=1, max=500, help="Number of changes to list, at most 500.")]

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


def describe_id(kind: Kind) -> ArgumentText:
    """The argument that names a record: what it is, and where to see it."""
    noun = describe_kind(kind)
    # A pin has the id of its server.
    name = "SERVER" if kind == "pin" else noun.rpartition(" ")[2].upper()
    return ArgumentText(name, f"{noun.capitalize()} id, as in `toolgate {name_group(kind)} list`.")


def name_group(kind: Kind) -> str:
    """The noun of a kind on the command line: `chat-upstreams`."""
    return f"{kind}s".replace("_", "-")


def id_argument(kind: Kind) -> Any:
    """The argument of a command that names one record."""
    return Argument(metavar=describe_id(kind).name, help=describe_id(kind).help, show_default=False)


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
        self._id = describe_id(kind)
        self._summaries = {**_SUMMARIES, **(summaries or {})}
        verbs = {
            "list": lambda: self._add_list(views.many),
            "get": lambda: self._add_get(views.one),
            "apply": self._add_apply,
            "delete": self._add_delete,
            "history": self._add_history,
            "diff": self._add_diff,
            "rollback": self._add_rollback,
        }
        for verb, add in verbs.items():
            if verb not in without:
                add()

    def _describe(self, verb: str) -> str:
        return self._summaries[verb].format(noun=describe_kind(self._kind))

    def _add_list(self, render_list: Render) -> None:
        @command(self.app, "list", self._describe("list"))
        def list_records(connection: GatewayConnection) -> None:
            connection.print_list(COLLECTIONS[self._kind], f"{self._kind}s", render_list)

    def _add_get(self, render_record: Render) -> None:
        @command(self.app, "get", self._describe("get"), record_id=self._id)
        def get_record(record_id: str, connection: GatewayConnection) -> None:
            connection.print_result(build_record_path(self._kind, record_id), render_record)

    def _add_apply(self) -> None:
        @command(self.app, "apply", self._describe("apply"))
        def apply_records(
            files: FilesOption, connection: GatewayConnection, conditions: ConditionOptions
        ) -> None:
            # All are read before the first is sent; the first that is refused ends it.
            records, modules = hash_modules([load_record(path, kind=self._kind) for path in files])
            with connection.open() as client:
                send_modules(client, modules, as_json=connection.as_json)
                for one in records:
                    path = build_record_path(one.kind, one.id)
                    response = client.send("PUT", path, one.body, headers=conditions.headers)
                    connection.output.show(response, render.render_applied(one.kind, one.id, response))

    def _add_delete(self) -> None:
        @command(self.app, "delete", self._describe("delete"), record_id=self._id)
        def delete_record(
            record_id: str, connection: GatewayConnection, conditions: ConditionOptions
        ) -> None:
            self.delete(record_id, connection, conditions.headers)

    def delete(self, record_id: str, connection: GatewayConnection, headers: dict[str, str]) -> None:
        """Delete a record, and print what still refers to it."""
        with connection.open() as client:
            response = client.send("DELETE", build_record_path(self._kind, record_id), headers=headers)
        shown = render.render_deleted(self._kind, record_id, response)
        connection.output.show({"deleted": record_id, **response}, shown)

    def _add_history(self) -> None:
        @command(self.app, "history", self._describe("history"), record_id=self._id)
        def list_history(record_id: str, connection: GatewayConnection, *, limit: LimitOption = 20) -> None:
            path = build_record_path(self._kind, record_id, "history")
            connection.print_result(path, render.render_history, {"limit": limit}, member="entries")

    def _add_diff(self) -> None:
        @command(self.app, "diff", self._describe("diff"), record_id=self._id)
        def diff_record(
            record_id: str,
            connection: GatewayConnection,
            *,
            since: Annotated[
                int, Option(min=0, metavar="REVISION", help="The earlier revision, as in `history`.")
            ],
            upto: Annotated[
                int | None, Option(min=0, metavar="REVISION", help="The later revision. Default: the newest.")
            ] = None,
        ) -> None:
            path, query = build_record_path(self._kind, record_id, "diff"), {"since": since, "upto": upto}
            connection.print_result(path, render.render_field_diff, query)

    def _add_rollback(self) -> None:
        @command(self.app, "rollback", self._describe("rollback"), record_id=self._id)
        def roll_back_record(
            record_id: str,
            connection: GatewayConnection,
            conditions: ConditionOptions,
            *,
            to: Annotated[
                int, Option(min=0, metavar="REVISION", help="The revision to restore, as in `history`.")
            ],
        ) -> None:
            roll_back(self._kind, record_id, connection, conditions, to=to)


def roll_back(
    kind: Kind, record_id: str, connection: GatewayConnection, conditions: ConditionOptions, *, to: int
) -> None:
    """Restore a record as it was at a registry revision."""
    connection.send(
        "POST",
        build_record_path(kind, record_id, "rollback"),
        lambda response: render.render_rolled_back(kind, record_id, to, response),
        {"revision": to},
        headers=conditions.headers,
    )
