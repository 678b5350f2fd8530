"""`toolgate profiles`: reusable selections of servers and tools."""

import typer

from toolgate.cli.options import Connection
from toolgate.cli.record_commands import (
    FilesOption,
    IdArgument,
    TermsOptions,
    add_past_commands,
    apply_files,
    delete_record,
)
from toolgate.cli.render.records import render_profiles
from toolgate.cli.spreading import spread_options

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Profiles: selections of servers and tools that tasks share.",
)


@app.command("list")
@spread_options
def list_command(connection: Connection) -> None:
    """List the profiles with what they select."""
    with connection.open() as client:
        profiles = client.records("profile")
    connection.output.show(profiles, render_profiles(profiles))


@app.command("apply")
@spread_options
def apply_command(files: FilesOption, connection: Connection, on: TermsOptions) -> None:
    """Create or replace profiles from files."""
    apply_files("profile", files, connection, on.terms)


@app.command("delete")
@spread_options
def delete_command(profile_id: IdArgument, connection: Connection, on: TermsOptions) -> None:
    """Remove a profile. Tasks that name it then see no tools."""
    delete_record("profile", profile_id, connection, on.terms)


add_past_commands(app, "profile")
