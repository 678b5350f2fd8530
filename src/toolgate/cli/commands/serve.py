"""`toolgate up`, `control` and `node`: the commands that serve.

`up` is the gateway in one process. `control` is the registry and everything that governs it, for nodes that
run elsewhere; `node` serves what a control governs. Each loads its own form of a process, and no other.
"""

import asyncio
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from toolgate import __version__
from toolgate.app.process import ServingApp, run
from toolgate.cli.command import CommandOutput, ExitCode, UsageError, command
from toolgate.cli.contexts import url_option
from toolgate.cli.render.changes import render_reload
from toolgate.cli.render.layout import DIM, bold, copyable, sentence, stack_parts
from toolgate.lazy_modules import load_lazily
from toolgate.model.http import is_loopback, parse_address
from toolgate.settings import LogLevel, Settings, load_settings

app = typer.Typer(add_completion=False)

JsonOption = Annotated[bool, "--json", "Print what is printed as JSON."]


def _render_start(what: str, url: str, *more: Text) -> RenderableType:
    return Group(sentence(Text("Toolgate", style="bold"), f" {__version__} {what} at ", bold(url)), *more)


def render_ready(url: str, *, console: str | None = None) -> RenderableType:
    """Where a gateway is, and the two things one does next."""
    at = url_option(url)
    return stack_parts(
        _render_start("serves", url, *_render_console(console)),
        copyable(f"toolgate connect claude-code{at}\ntoolgate doctor{at}"),
        Text("Ctrl-C stops the gateway and all its servers.", style=DIM),
    )


def _render_console(url: str | None) -> list[Text]:
    """Where its console is: a line, or none."""
    return [] if url is None else [sentence("its console is at ", bold(url))]


def render_control_ready(url: str, grpc: str, *, console: str | None = None) -> RenderableType:
    """Where a control is, and how to give it a node."""
    add_key = f"toolgate keys create node-1 --role node --out node.key{url_option(url)}"
    start_node = f"toolgate node --control {grpc} --control-key-file node.key"
    if is_loopback(parse_address(grpc)[0]):
        # A node on the same machine needs an address and a directory of its own.
        start_node += " \\\n  --listen 127.0.0.1:8081 --data .toolgate-node"
    followed = sentence("nodes follow it at ", bold(grpc))
    return stack_parts(
        _render_start("controls", url, followed, *_render_console(console)),
        copyable(f"{add_key}\n{start_node}", "A node needs a key, and is started with it:"),
        Text("Ctrl-C stops it; its nodes go on with what they have.", style=DIM),
    )


def render_node_ready(url: str, control: str) -> RenderableType:
    """Where a node is, and whom it follows."""
    return stack_parts(
        _render_start("serves", url, sentence("and follows ", bold(control))),
        copyable(f"toolgate connect claude-code{url_option(url)}"),
        Text("Ctrl-C stops it and all its servers.", style=DIM),
    )


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """The settings one most often changes, by their names; None or False: not given. All of them can be in
    the file or in TOOLGATE_ variables.
    """

    listen: Annotated[str | None, Option(metavar="HOST:PORT", help="Address to bind.")] = None
    data_dir: Annotated[
        Path | None, Option("--data", metavar="DIR", help="Where registry and audit log live.")
    ] = None
    mcp_registry_dir: Annotated[
        Path | None, Option(metavar="DIR", help="Directory of server files, loaded and watched.")
    ] = None
    strict: Annotated[bool, "Refuse unknown fields and any invalid server file."] = False
    log_level: Annotated[LogLevel | None, "How much is logged."] = None
    config: Annotated[Path | None, "TOML file with settings."] = None

    def load(self, **more: Any) -> Settings:
        """The settings, with `more` as further defaults of the command's own."""
        given = asdict(self)
        config = given.pop("config")
        chosen = {
            name: value for name, value in (*more.items(), *given.items()) if value not in {None, False}
        }
        return load_settings(config, os.environ, chosen)


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """What a control has beyond a gateway in one process, by the names of the settings."""

    grpc_listen: Annotated[
        str | None, Option(metavar="HOST:PORT", help="Address to bind for nodes and gRPC.")
    ] = None
    database: Annotated[
        str | None, Option(metavar="URL", help="`postgresql://…`, without its password. Default: SQLite.")
    ] = None
    require_plan: Annotated[bool, "Take only changes that name the plan that showed them."] = False
    grpc_cert_file: Annotated[Path | None, "Certificate chain of the gRPC listener, in PEM."] = None
    grpc_key_file: Annotated[Path | None, "Private key of that certificate, in PEM."] = None


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """What a node has beyond a gateway in one process, by the names of the settings."""

    control: Annotated[
        str | None, Option(metavar="HOST:PORT", help="The control to follow; replicas: `a:8090,b:8090`.")
    ] = None
    control_key_file: Annotated[Path | None, "File with the node's key, of role `node`."] = None
    control_ca_file: Annotated[Path | None, "Certificates, in PEM, that sign that of control."] = None
    node_id: Annotated[str | None, "Name to report under. Default: that of the machine."] = None


@command(app, "up")
def up_command(
    settings: SettingOptions,
    *,
    is_demo: Annotated[
        bool, "--demo", "With real servers and three tasks to try; installs them once."
    ] = False,
    with_model: Annotated[
        bool, "--model", "With --demo: a small language model, too, to chat with; installs 130 MB once."
    ] = False,
    is_dry_run: Annotated[bool, "--dry-run", "Show what the server files would change, and exit."] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the gateway. It runs until Ctrl-C, and takes all its servers with it.

    Bound to loopback it asks for no key; bound to anything else it refuses to start without one.
    """
    if with_model and not is_demo:
        hint = "add --demo; a model of your own is registered with `toolgate chat-upstreams apply`"
        raise UsageError("--model is part of the demo", hint=hint)
    output = CommandOutput(as_json=as_json)

    async def announce(started: ServingApp, url: str) -> None:
        console = started.console_url(url)
        shown = {"url": url, "console": console, "version": __version__}
        output.show(shown, render_ready(url, console=console))

    if is_demo:
        _run_demo(settings, as_json=as_json, with_model=with_model)
    elif is_dry_run:
        _show_difference(settings.load(), output)
    else:
        run(load_lazily("toolgate.app.up").open_up, settings.load(), os.environ, announce)


def _run_demo(options: SettingOptions, *, as_json: bool, with_model: bool) -> None:
    if options.mcp_registry_dir is not None:
        hint = "leave out --mcp-registry-dir, or start without --demo"
        raise UsageError("--demo brings its own servers", hint=hint)
    kit = load_lazily("toolgate.cli.demo.demo")
    demo = kit.Demo(
        options.data_dir or kit.demo_directory(os.environ), as_json=as_json, with_model=with_model
    )
    settings = options.load(data_dir=demo.directory, mcp_registry_dir=demo.registry_dir, log_level="warning")
    kit.check_port(settings.listen)
    demo.prepare()
    with demo.serve_model():
        run(load_lazily("toolgate.app.up").open_up, settings, os.environ, demo.present)


def _show_difference(settings: Settings, output: CommandOutput) -> None:
    """What the server files would change, against the registry as it is."""
    if settings.mcp_registry_dir is None:
        raise UsageError("there is no directory to look at", hint="name it with --mcp-registry-dir DIR")
    report = asyncio.run(load_lazily("toolgate.app.up").preview_server_files(settings))
    response = {
        "applied": [str(one) for one in report.applied],
        "warnings": list(report.warnings),
        "problems": [str(one) for one in report.problems],
    }
    output.show(response, render_reload(response, is_dry_run=True))
    if report.problems:
        raise typer.Exit(ExitCode.FAILED)


@command(app, "control")
def control_command(
    settings: SettingOptions, control: ControlOptions, *, as_json: JsonOption = False
) -> None:
    """Start the control plane alone. Nodes follow it; agents and editors call the nodes.

    Several of them on one PostgreSQL database are replicas: a write at one reaches the nodes of all.
    """

    async def announce(started: ServingApp, url: str) -> None:
        grpc, console = started.details["grpc"], started.console_url(url)
        shown = {"url": url, "console": console, "grpc": grpc, "version": __version__}
        CommandOutput(as_json=as_json).show(shown, render_control_ready(url, grpc, console=console))

    open_control = load_lazily("toolgate.app.control").open_control
    run(open_control, settings.load(**asdict(control)), os.environ, announce)


@command(app, "node")
def node_command(settings: SettingOptions, node: NodeOptions, *, as_json: JsonOption = False) -> None:
    """Start a node: it serves agents and editors what a control governs, and keeps nothing itself.

    Without its control it goes on with what it has; started without, it waits for it.
    """

    async def announce(started: ServingApp, url: str) -> None:
        control = ", ".join(started.settings.control)
        shown = {"url": url, "control": control, "version": __version__}
        CommandOutput(as_json=as_json).show(shown, render_node_ready(url, control))

    run(load_lazily("toolgate.app.node").open_node, settings.load(**asdict(node)), os.environ, announce)
