"""The commands that every kind of record has: list, show, apply, delete, history, diff and rollback.

A noun (`toolgate servers`) names its kind and says in words and tables what is its own; the rest is the same.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.command import add_group, command
from toolgate.cli.files import ID_FIELDS, hash_modules, load_record, send_modules
from toolgate.cli.options import GatewayConnection, Render
from toolgate.cli.render import changes as render
from toolgate.cli.rest import COLLECTIONS, build_conditions, build_record_path
from toolgate.model.revisions import Kind, describe_kind

FilesOption = Annotated[
    list[Path], "--file -f", "TOML or JSON file with one record; `-` reads JSON. May be repeated."
]
PlanOption = Annotated[
    str | None,
    Option("--require-plan", metavar="ID", help="Only if the change still does what this plan showed."),
]
IdArgument = Annotated[str, Argument(help="Its id.", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """The conditions of a change."""

    revision: Annotated[
        int | None, "--if-revision", "Only if this is still the record's newest revision."
    ] = None
    plan_id: PlanOption = None

    @property
    def headers(self) -> dict[str, str]:
        return build_conditions(revision=self.revision, plan_id=self.plan_id)


class RecordGroup:
    """The commands of one kind of record under its noun. More are added to `app`."""

    def __init__(self, root: typer.Typer, kind: Kind) -> None:
        self.app = add_group(root, f"{kind}s".replace("_", "-"))
        self._kind = kind
        self._noun = describe_kind(kind)
        self._id_field = ID_FIELDS.get(kind, f"{'server' if kind == 'pin' else kind}_id")

    def add_list(self, summary: str, render_list: Render) -> None:
        @command(self.app, "list", summary)
        def list_records(connection: GatewayConnection) -> None:
            connection.print_list(COLLECTIONS[self._kind], f"{self._kind}s", render_list)

    def add_show(self, name: str, summary: str, render_record: Render) -> None:
        @command(self.app, name, summary, record_id=self._id_field)
        def show_record(record_id: IdArgument, connection: GatewayConnection) -> None:
            connection.print_result(build_record_path(self._kind, record_id), render_record)

    def add_apply(self, summary: str) -> None:
        @command(self.app, "apply", summary)
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

    def add_delete(self, summary: str) -> None:
        @command(self.app, "delete", summary, record_id=self._id_field)
        def delete_record(
            record_id: IdArgument, connection: GatewayConnection, conditions: ConditionOptions
        ) -> None:
            self._delete(record_id, connection, conditions.headers)

    def add_plain_delete(self, name: str, summary: str) -> None:
        """Without conditions."""

        @command(self.app, name, summary, record_id=self._id_field)
        def delete_record(record_id: IdArgument, connection: GatewayConnection) -> None:
            self._delete(record_id, connection, {})

    def _delete(self, record_id: str, connection: GatewayConnection, headers: dict[str, str]) -> None:
        with connection.open() as client:
            response = client.send("DELETE", build_record_path(self._kind, record_id), headers=headers)
        shown = render.render_deleted(self._kind, record_id, response)
        connection.output.show({"deleted": record_id, **response}, shown)

    def add_past(self) -> None:
        """What the record was before."""
        self.add_history()
        self.add_diff()
        self.add_rollback()

    def add_history(self) -> None:
        summary = f"List the changes of a {self._noun}, newest first: when, by whom, which fields."

        @command(self.app, "history", summary)
        def list_history(
            record_id: IdArgument,
            connection: GatewayConnection,
            limit: Annotated[int, Option(min=1, max=500, help="How many changes.")] = 20,
        ) -> None:
            path = build_record_path(self._kind, record_id, "history")
            connection.print_result(path, render.render_history, {"limit": limit}, member="entries")

    def add_diff(self) -> None:
        summary = f"Show how a {self._noun} differs between two revisions of the registry."

        @command(self.app, "diff", summary)
        def diff_record(
            record_id: IdArgument,
            connection: GatewayConnection,
            *,
            since: Annotated[int, Option(min=0, help="The earlier revision.", show_default=False)],
            upto: Annotated[int | None, Option(min=0, help="The later one. Default: now.")] = None,
        ) -> None:
            self.print_diff(record_id, connection, since=since, upto=upto)

    def print_diff(
        self, record_id: str, connection: GatewayConnection, *, since: int, upto: int | None
    ) -> None:
        path, query = build_record_path(self._kind, record_id, "diff"), {"since": since, "upto": upto}
        connection.print_result(path, render.render_field_diff, query)

    def add_rollback(self) -> None:
        summary = f"Make a {self._noun} what it was at a revision."

        @command(self.app, "rollback", f"{summary} That is a new change; history is never rewritten.")
        def roll_back_record(
            record_id: IdArgument,
            connection: GatewayConnection,
            conditions: ConditionOptions,
            *,
            to: Annotated[int, Option(min=0, help="The revision to go back to.", show_default=False)],
        ) -> None:
            roll_back(self._kind, record_id, connection, conditions, to=to)


def roll_back(
    kind: Kind, record_id: str, connection: GatewayConnection, conditions: ConditionOptions, *, to: int
) -> None:
    connection.send(
        "POST",
        build_record_path(kind, record_id, "rollback"),
        lambda response: render.render_rolled_back(kind, record_id, to, response),
        {"revision": to},
        headers=conditions.headers,
    )
