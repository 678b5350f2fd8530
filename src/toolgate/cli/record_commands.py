"""The commands that every kind of record has: list, show, apply, delete, history, diff and rollback.

A noun (`toolgate servers`) names its kind and says in words and tables what is its own; the rest is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from typer import Argument, Option

from toolgate.cli.client.rest import COLLECTIONS, UNCONDITIONAL, WriteConditions, build_record_path
from toolgate.cli.files.modules import hash_modules, send_modules
from toolgate.cli.files.records import ID_FIELDS, load_record
from toolgate.cli.option_groups import add_group, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render import changes as render
from toolgate.model.revisions import Kind, describe_kind

FilesOption = Annotated[
    list[Path],
    Option("--file", "-f", help="TOML or JSON file with one record; `-` reads JSON. May be repeated."),
]
PlanOption = Annotated[
    str | None,
    Option("--require-plan", metavar="ID", help="Only if the change still does what this plan showed."),
]
IdArgument = Annotated[str, Argument(help="Its id.", show_default=False)]
Render = Callable[[Any], RenderableType]


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """The conditions of a change."""

    revision: Annotated[
        int | None, Option("--if-revision", help="Only if this is still the record's newest revision.")
    ] = None
    plan_id: PlanOption = None

    @property
    def conditions(self) -> WriteConditions:
        return WriteConditions(revision=self.revision, plan_id=self.plan_id)


class RecordGroup:
    """The commands of one kind of record under its noun. More are added to `app`."""

    def __init__(self, root: typer.Typer, noun: str, kind: Kind, summary: str) -> None:
        self.app = add_group(root, noun, summary)
        self._kind = kind
        self._noun = describe_kind(kind)
        self._id_field = ID_FIELDS.get(kind, f"{'server' if kind == 'pin' else kind}_id")

    def add_list(self, summary: str, render_list: Render) -> None:
        @command(self.app, "list", summary)
        def list_records(connection: GatewayConnection) -> None:
            connection.print_list(COLLECTIONS[self._kind], f"{self._kind}s", render_list)

    def add_show(self, name: str, summary: str, render_record: Render) -> None:
        @command(self.app, name, summary)
        def show_record(record_id: IdArgument, connection: GatewayConnection) -> None:
            connection.print_answer(build_record_path(self._kind, record_id), render_record)

        self._name_id()

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
                    answer = client.put(one.kind, one.id, one.body, conditions=conditions.conditions)
                    connection.output.show(answer, render.render_applied(one.kind, one.id, answer))

    def add_delete(self, summary: str) -> None:
        @command(self.app, "delete", summary)
        def delete_record(
            record_id: IdArgument, connection: GatewayConnection, conditions: ConditionOptions
        ) -> None:
            self._delete(record_id, connection, conditions.conditions)

        self._name_id()

    def add_plain_delete(self, name: str, summary: str) -> None:
        """Without conditions."""

        @command(self.app, name, summary)
        def delete_record(record_id: IdArgument, connection: GatewayConnection) -> None:
            self._delete(record_id, connection, UNCONDITIONAL)

        self._name_id()

    def add_past(self, *names: Literal["history", "diff", "rollback"]) -> None:
        """What the record was before."""
        adders = {"history": self._add_history, "diff": self._add_diff, "rollback": self._add_rollback}
        for name in names:
            adders[name]()

    def print_diff(
        self, record_id: str, connection: GatewayConnection, *, since: int, upto: int | None
    ) -> None:
        """How a record differs between two revisions."""
        query = {"since": str(since)} | ({} if upto is None else {"upto": str(upto)})
        path = f"{build_record_path(self._kind, record_id)}/diff"
        connection.print_answer(path, render.render_field_diff, query)

    def _name_id(self) -> None:
        """Name the id of the newest command as the record does: `SERVER_ID`."""
        registered = self.app.registered_commands[-1]
        callback: Any = registered.callback

        @wraps(callback)
        def named(**values: Any) -> None:
            callback(record_id=values.pop(self._id_field), **values)

        parameters = [
            one.replace(name=self._id_field) if one.name == "record_id" else one
            for one in callback.__signature__.parameters.values()
        ]
        named.__annotations__ = {one.name: one.annotation for one in parameters}
        vars(named)["__signature__"] = callback.__signature__.replace(parameters=parameters)
        registered.callback = named

    def _delete(self, record_id: str, connection: GatewayConnection, conditions: WriteConditions) -> None:
        with connection.open() as client:
            answer = client.delete(self._kind, record_id, conditions=conditions)
        shown = render.render_deleted(self._kind, record_id, answer)
        connection.output.show({"deleted": record_id, **answer}, shown)

    def _add_history(self) -> None:
        summary = f"List the changes of a {self._noun}, newest first: when, by whom, which fields."

        @command(self.app, "history", summary)
        def list_history(
            record_id: IdArgument,
            connection: GatewayConnection,
            limit: Annotated[int, Option("--limit", min=1, max=500, help="How many changes.")] = 20,
        ) -> None:
            path = f"{build_record_path(self._kind, record_id)}/history"
            with connection.open() as client:
                entries = client.get(path, {"limit": str(limit)})["entries"]
            connection.output.show(entries, render.render_history(entries))

    def _add_diff(self) -> None:
        summary = f"Show how a {self._noun} differs between two revisions of the registry."

        @command(self.app, "diff", summary)
        def diff_record(
            record_id: IdArgument,
            connection: GatewayConnection,
            *,
            since: Annotated[int, Option("--since", min=0, help="The earlier revision.", show_default=False)],
            upto: Annotated[int | None, Option("--upto", min=0, help="The later one. Default: now.")] = None,
        ) -> None:
            self.print_diff(record_id, connection, since=since, upto=upto)

    def _add_rollback(self) -> None:
        summary = f"Make a {self._noun} what it was at a revision."

        @command(self.app, "rollback", f"{summary} That is a new change; history is never rewritten.")
        def roll_back_record(
            record_id: IdArgument,
            connection: GatewayConnection,
            conditions: ConditionOptions,
            *,
            to: Annotated[int, Option("--to", min=0, help="The revision to go back to.", show_default=False)],
        ) -> None:
            with connection.open() as client:
                answer = client.roll_back(self._kind, record_id, to=to, conditions=conditions.conditions)
            shown = render.render_rolled_back(self._kind, record_id, to, answer)
            connection.output.show(answer, shown)
