"""`toolgate up`, `control` and `node`: the commands that serve.

`up` runs the whole gateway in one process. `control` runs the control plane alone, for nodes elsewhere;
`node` runs a node. Each loads only the modules of its kind of process.
"""

import asyncio
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from toolgate import __version__
from toolgate.app.process import ServingApp, run
from toolgate.cli.command import ExitCode, UsageError, command, print_output
from toolgate.cli.contexts import url_option
from toolgate.cli.render.changes import render_reload
from toolgate.cli.render.layout import DIM, bold, copyable, sentence, stack_parts
from toolgate.lazy_modules import load_lazily
from toolgate.model.http import is_loopback, parse_address
from toolgate.settings import LogLevel, Settings, load_settings

app = typer.Typer(add_completion=False)

JsonOption = Annotated[bool, "--json", "Print addresses as one JSON object."]


def _render_start(what: str, url: str, *more: Text, console: str | None = None) -> RenderableType:
    """What was started, and the address of its console if it has one."""
    if console is not None:
        more = (*more, sentence("its console is at ", bold(console)))
    return Group(sentence(Text("Toolgate", style="bold"), f" {__version__} {what} at ", bold(url)), *more)


def render_ready(url: str, *, console: str | None = None, is_empty: bool = False) -> RenderableType:
    """The address of a gateway and the next steps: for an empty registry, how to fill it."""
    at = url_option(url)
    steps = [copyable(f"toolgate connect claude-code{at}\ntoolgate doctor{at}")]
    if is_empty:
        # `--url` of `servers add` is that of a server: the gateway's address goes into the environment.
        export = f"export TOOLGATE_URL={url}\n" if at else ""
        imports = "toolgate servers import mcp.json --allow '*'"
        add = f"{export}{imports}\ntoolgate servers add time -- uvx mcp-server-time"
        check = "toolgate connect claude-code --write\ntoolgate doctor"
        steps = [
            copyable(add, "No servers are registered. In another terminal, import or add some:"),
            copyable(check, "Then connect a client and check:", ""),
        ]
    return stack_parts(
        _render_start("serves", url, console=console),
        *steps,
        Text("Ctrl-C stops the gateway and all its servers.", style=DIM),
    )


def render_control_ready(url: str, grpc: str, *, console: str | None = None) -> RenderableType:
    """The address of a control plane, and how to start a node."""
    add_key = f"toolgate keys create node-1 --role node --out node.key{url_option(url)}"
    start_node = f"toolgate node --control {grpc} --control-key-file node.key"
    if is_loopback(parse_address(grpc)[0]):
        # A node on the same machine needs another address and another directory.
        start_node += " \\\n  --listen 127.0.0.1:8081 --data .toolgate-node"
    return stack_parts(
        _render_start("controls", url, sentence("nodes follow it at ", bold(grpc)), console=console),
        copyable(f"{add_key}\n{start_node}", "To start a node, create a key for it:"),
        Text("Ctrl-C stops the control plane. Its nodes continue with their last state.", style=DIM),
    )


def render_node_ready(url: str, control: str) -> RenderableType:
    """The address of a node, and the control plane that it follows."""
    return stack_parts(
        _render_start("serves", url, sentence("and follows ", bold(control))),
        copyable(f"toolgate connect claude-code{url_option(url)}"),
        Text("Ctrl-C stops the node and all its servers.", style=DIM),
    )


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """The most common settings, by their names; None or False: not given. All settings can be in the file or
    in TOOLGATE_ variables.
    """

    listen: Annotated[str | None, "--listen HOST:PORT", "Address to listen on. Default: 127.0.0.1:8080."] = (
        None
    )
    data_dir: Annotated[
        Path | None, "--data DIR", "Directory of registry and audit log. Default: `.toolgate`."
    ] = None
    mcp_registry_dir: Annotated[
        Path | None, "--mcp-registry-dir DIR", "Directory of server files to load and watch."
    ] = None
    strict: Annotated[bool, "Reject unknown fields and any invalid server file."] = False
    log_level: Annotated[LogLevel | None, "The lowest level that is logged."] = None
    config: Annotated[Path | None, "TOML file with settings of this process."] = None

    def load(self, **more: Any) -> Settings:
        """The settings, with `more` as defaults of the command."""
        given = asdict(self)
        config = given.pop("config")
        chosen = {
            name: value for name, value in (*more.items(), *given.items()) if value not in {None, False}
        }
        return load_settings(config, os.environ, chosen)


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """The settings that only a control plane has, by their names."""

    grpc_listen: Annotated[
        str | None, "--grpc-listen HOST:PORT", "Address to listen on for nodes and gRPC."
    ] = None
    database: Annotated[
        str | None, "--database URL", "PostgreSQL database `postgresql://…`. Default: SQLite."
    ] = None
    require_plan: Annotated[bool, "Accept only changes that name their plan."] = False
    grpc_cert_file: Annotated[Path | None, "Certificate chain of the gRPC listener (PEM)."] = None
    grpc_key_file: Annotated[Path | None, "Private key of that certificate (PEM)."] = None


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The settings that only a node has, by their names."""

    control: Annotated[
        str | None, "--control HOST:PORT", "Control plane to follow; replicas: `a:8090,b:8090`."
    ] = None
    control_key_file: Annotated[Path | None, "File with the node's key, which has the role `node`."] = None
    control_ca_file: Annotated[Path | None, "CA certificates of the control plane (PEM)."] = None
    node_id: Annotated[str | None, "Node id to report. Default: the host name."] = None


@command(app, "up")
def up_command(
    settings: SettingOptions,
    *,
    is_demo: Annotated[
        bool, "--demo", "Start with real servers and three tasks to try. Installs them once."
    ] = False,
    with_model: Annotated[
        bool, "--model", "With --demo: add a small language model to chat with. Installs 130 MB once."
    ] = False,
    is_dry_run: Annotated[bool, "--dry-run", "Show what the server files would change, and exit."] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the gateway: control plane, node and servers.

    It runs until Ctrl-C. On loopback no key is needed. On any other address the gateway does not start
    without a key.
    """
    if with_model and not is_demo:
        hint = "add --demo, or register a model with `toolgate chat-upstreams apply`"
        raise UsageError("--model needs --demo", hint=hint)

    async def announce(started: ServingApp, url: str) -> None:
        console = started.console_url(url)
        shown = {"url": url, "console": console, "version": __version__}
        snapshot = started.gateway.snapshot
        is_empty = not (snapshot.servers or snapshot.tasks)
        print_output(shown, render_ready(url, console=console, is_empty=is_empty), as_json=as_json)

    if is_demo:
        _run_demo(settings, as_json=as_json, with_model=with_model)
    elif is_dry_run:
        _show_difference(settings.load(), as_json=as_json)
    else:
        run(load_lazily("toolgate.app.up").open_up, settings.load(), os.environ, announce)


def _run_demo(options: SettingOptions, *, as_json: bool, with_model: bool) -> None:
    if options.mcp_registry_dir is not None:
        hint = "remove one of the two"
        raise UsageError("--demo and --mcp-registry-dir cannot be combined", hint=hint)
    kit = load_lazily("toolgate.cli.demo.demo")
    demo = kit.Demo(
        options.data_dir or kit.demo_directory(os.environ), as_json=as_json, with_model=with_model
    )
    settings = options.load(data_dir=demo.directory, mcp_registry_dir=demo.registry_dir, log_level="warning")
    kit.check_port(settings.listen)
    demo.prepare()
    with demo.serve_model():
        run(load_lazily("toolgate.app.up").open_up, settings, os.environ, demo.present)


def _show_difference(settings: Settings, *, as_json: bool) -> None:
    """Print what the server files would change in the registry."""
    if settings.mcp_registry_dir is None:
        raise UsageError("--dry-run needs a directory of server files", hint="add --mcp-registry-dir DIR")
    report = asyncio.run(load_lazily("toolgate.app.up").preview_server_files(settings))
    response = {
        "applied": [str(one) for one in report.applied],
        "warnings": list(report.warnings),
        "problems": [str(one) for one in report.problems],
    }
    print_output(response, render_reload(response, is_dry_run=True), as_json=as_json)
    if report.problems:
        raise typer.Exit(ExitCode.FAILED)


@command(app, "control")
def control_command(
    settings: SettingOptions, control: ControlOptions, *, as_json: JsonOption = False
) -> None:
    """Start a control plane alone, for nodes to follow.

    Clients call the nodes. Several control planes on one PostgreSQL database are replicas: a change at one
    reaches all nodes.
    """

    async def announce(started: ServingApp, url: str) -> None:
        grpc, console = started.details["grpc"], started.console_url(url)
        shown = {"url": url, "console": console, "grpc": grpc, "version": __version__}
        print_output(shown, render_control_ready(url, grpc, console=console), as_json=as_json)

    open_control = load_lazily("toolgate.app.control").open_control
    run(open_control, settings.load(**asdict(control)), os.environ, announce)


@command(app, "node")
def node_command(settings: SettingOptions, node: NodeOptions, *, as_json: JsonOption = False) -> None:
    """Start a node, which follows a control plane.

    A node serves clients and stores nothing. If the control plane is unreachable, a running node continues
    with its last state, and a starting node waits.
    """

    async def announce(started: ServingApp, url: str) -> None:
        control = ", ".join(started.settings.control)
        shown = {"url": url, "control": control, "version": __version__}
        print_output(shown, render_node_ready(url, control), as_json=as_json)

    run(load_lazily("toolgate.app.node").open_node, settings.load(**asdict(node)), os.environ, announce)
