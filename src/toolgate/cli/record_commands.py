"""What the kinds of records have in common on the command line: apply, delete, history, rollback."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import WriteConditions, build_record_path
from toolgate.cli.files.modules import hash_modules, send_modules
from toolgate.cli.files.records import load_record
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import (
    render_applied,
    render_deleted,
    render_field_diff,
    render_history,
    render_rolled_back,
)
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


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """On what a change is made."""

    revision: Annotated[
        int | None, Option("--if-revision", help="Only if this is still the record's newest revision.")
    ] = None
    plan_id: PlanOption = None

    @property
    def terms(self) -> WriteConditions:
        return WriteConditions(revision=self.revision, plan_id=self.plan_id)


def apply_files(
    kind: Kind, files: Sequence[Path], connection: GatewayConnection, terms: WriteConditions
) -> None:
    """Write the records in `files`, all read before the first is sent; the first that is refused ends it.

    Modules that they name as files are uploaded before.
    """
    records, modules = hash_modules([load_record(path, kind=kind) for path in files])
    with connection.open() as client:
        send_modules(client, modules, as_json=connection.as_json)
        for record in records:
            answer = client.put(record.kind, record.id, record.body, terms=terms)
            connection.output.show(answer, render_applied(record.kind, record.id, answer))


def delete_record(kind: Kind, record_id: str, connection: GatewayConnection, terms: WriteConditions) -> None:
    """Remove one record."""
    with connection.open() as client:
        answer = client.delete(kind, record_id, terms=terms)
    connection.output.show({"deleted": record_id, **answer}, render_deleted(kind, record_id, answer))


def add_history_command(app: typer.Typer, kind: Kind) -> None:
    """`history` of one kind of record."""

    @app.command(
        "history",
        help=f"List the changes of a {describe_kind(kind)}, newest first: when, by whom, which fields.",
    )
    @spread_options
    def history_command(
        record_id: IdArgument,
        connection: GatewayConnection,
        limit: Annotated[int, Option("--limit", min=1, max=500, help="How many changes.")] = 20,
    ) -> None:
        with connection.open() as client:
            answer = client.get(f"{build_record_path(kind, record_id)}/history", {"limit": str(limit)})
        connection.output.show(answer["entries"], render_history(answer["entries"]))


def add_past_commands(app: typer.Typer, kind: Kind) -> None:
    """`history`, `diff` and `rollback` of one kind of record."""
    add_history_command(app, kind)
    add_diff_command(app, kind)
    add_rollback_command(app, kind)


def show_record_diff(
    kind: Kind, record_id: str, connection: GatewayConnection, *, since: int, upto: int | None
) -> None:
    """How a record differs between two revisions."""
    query = {"since": str(since)} | ({} if upto is None else {"upto": str(upto)})
    with connection.open() as client:
        answer = client.get(f"{build_record_path(kind, record_id)}/diff", query)
    connection.output.show(answer, render_field_diff(answer["fields"]))


def add_diff_command(app: typer.Typer, kind: Kind) -> None:
    """`diff` of one kind of record."""

    @app.command(
        "diff", help=f"Show how a {describe_kind(kind)} differs between two revisions of the registry."
    )
    @spread_options
    def diff_command(
        record_id: IdArgument,
        connection: GatewayConnection,
        *,
        since: Annotated[int, Option("--since", min=0, help="The earlier revision.", show_default=False)],
        upto: Annotated[int | None, Option("--upto", min=0, help="The later one. Default: now.")] = None,
    ) -> None:
        show_record_diff(kind, record_id, connection, since=since, upto=upto)


def add_rollback_command(app: typer.Typer, kind: Kind) -> None:
    """`rollback` of one kind of record."""

    @app.command(
        "rollback",
        help=f"Make a {describe_kind(kind)} what it was at a revision."
        " That is a new change; history is never rewritten.",
    )
    @spread_options
    def rollback_command(
        record_id: IdArgument,
        connection: GatewayConnection,
        on: ConditionOptions,
        *,
        to: Annotated[int, Option("--to", min=0, help="The revision to go back to.", show_default=False)],
    ) -> None:
        with connection.open() as client:
            answer = client.roll_back(kind, record_id, to=to, terms=on.terms)
        connection.output.show(answer, render_rolled_back(kind, record_id, to, answer))
