"""`toolgate diff`: how the registry differs from files, for people and for pipelines."""

import typer

from toolgate.cli.change_sets import PLAN, ChangeFilesOption, PruneOption, build_change_set, post_changes
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.modules import hash_modules
from toolgate.cli.files.records import load_records
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_difference

app = typer.Typer(add_completion=False)


@app.command("diff")
@spread_options
def diff_command(
    files: ChangeFilesOption, connection: GatewayConnection, *, prune: PruneOption = False
) -> None:
    """Show what `toolgate apply` would change. Nothing is written.

    Exit code 0: nothing would change. 1: something would. 2 or more: it could not be found out.
    """
    records, _ = hash_modules(load_records(files))
    try:
        with connection.open() as client:
            answer = post_changes(client, PLAN, build_change_set(records, prune=prune), records)
    except CommandError as failure:
        # 1 means a difference here, so what failed must not end with it.
        failure.exit_code = max(failure.exit_code, ExitCode.USAGE)
        raise
    connection.output.show(answer["changes"], render_difference(answer))
    if answer["changes"]:
        raise typer.Exit(ExitCode.FAILED)
