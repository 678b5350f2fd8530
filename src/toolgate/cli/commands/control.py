"""`toolgate control`: the registry and everything that governs it, for nodes that run elsewhere."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolgate import __version__
from toolgate.app.control import open_control
from toolgate.app.process import ServingApp, run
from toolgate.cli.option_groups import command
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.up import render_control_ready
from toolgate.cli.setting_options import SettingOptions

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """What a control has beyond a gateway in one process."""

    grpc_listen: Annotated[
        str | None, Option("--grpc-listen", metavar="HOST:PORT", help="Address to bind for nodes and gRPC.")
    ] = None
    database: Annotated[
        str | None,
        Option("--database", metavar="URL", help="`postgresql://…`, without its password. Default: SQLite."),
    ] = None
    require_plan: Annotated[
        bool, Option("--require-plan", help="Take only changes that name the plan that showed them.")
    ] = False
    grpc_cert_file: Annotated[
        Path | None, Option("--grpc-cert-file", help="Certificate chain of the gRPC listener, in PEM.")
    ] = None
    grpc_key_file: Annotated[
        Path | None, Option("--grpc-key-file", help="Private key of that certificate, in PEM.")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """By the names of the settings; None: not given."""
        return {
            "grpc_listen": self.grpc_listen,
            "database": self.database,
            "require_plan": self.require_plan or None,
            "grpc_cert_file": self.grpc_cert_file,
            "grpc_key_file": self.grpc_key_file,
        }


@command(app, "control")
def control_command(
    settings: SettingOptions,
    control: ControlOptions,
    *,
    as_json: Annotated[bool, Option("--json", help="Print what is printed as JSON.")] = False,
) -> None:
    """Start the control plane alone. Nodes follow it; agents and editors call the nodes.

    Several of them on one PostgreSQL database are replicas: a write at one reaches the nodes of all.
    """
    run(
        open_control,
        settings.load(**control.given),
        os.environ,
        partial(_print_ready, CommandOutput(as_json=as_json)),
    )


async def _print_ready(output: CommandOutput, started: ServingApp, url: str) -> None:
    grpc, console = started.details["grpc"], started.console_url(url)
    output.show(
        {"url": url, "console": console, "grpc": grpc, "version": __version__},
        render_control_ready(url, grpc, console=console),
    )
