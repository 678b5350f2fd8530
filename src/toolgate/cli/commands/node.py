"""`toolgate node`: serves what a control governs."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolgate import __version__
from toolgate.app.node import open_node
from toolgate.app.process import ServingApp, run
from toolgate.cli.option_groups import command
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.up import render_node_ready
from toolgate.cli.setting_options import SettingOptions

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """What a node has beyond a gateway in one process."""

    control: Annotated[
        str | None,
        Option("--control", metavar="HOST:PORT", help="The control to follow; replicas: `a:8090,b:8090`."),
    ] = None
    control_key_file: Annotated[
        Path | None, Option("--control-key-file", help="File with the node's key, of role `node`.")
    ] = None
    control_ca_file: Annotated[
        Path | None, Option("--control-ca-file", help="Certificates, in PEM, that sign that of control.")
    ] = None
    node_id: Annotated[
        str | None, Option("--node-id", help="Name to report under. Default: that of the machine.")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """By the names of the settings; None: not given."""
        return {
            "control": self.control,
            "control_key_file": self.control_key_file,
            "control_ca_file": self.control_ca_file,
            "node_id": self.node_id,
        }


@command(app, "node")
def node_command(
    settings: SettingOptions,
    node: NodeOptions,
    *,
    as_json: Annotated[bool, Option("--json", help="Print what is printed as JSON.")] = False,
) -> None:
    """Start a node: it serves agents and editors what a control governs, and keeps nothing itself.

    Without its control it goes on with what it has; started without, it waits for it.
    """
    run(
        open_node,
        settings.load(**node.given),
        os.environ,
        partial(_print_ready, CommandOutput(as_json=as_json)),
    )


async def _print_ready(output: CommandOutput, started: ServingApp, url: str) -> None:
    control = ", ".join(started.settings.control)
    output.show({"url": url, "control": control, "version": __version__}, render_node_ready(url, control))
