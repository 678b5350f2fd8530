"""`toolgate doctor`: what is wrong with this installation and its servers, and what to do."""

import asyncio
import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import Option

from toolgate import __version__
from toolgate.app.collector import collector_of
from toolgate.cli.client.rest import RestClient
from toolgate.cli.diagnosis import (
    Finding,
    judge_collector,
    judge_data_directory,
    judge_gateway,
    judge_node,
    judge_open_files,
    judge_pin,
    judge_port,
    judge_rules,
    judge_scope,
    judge_server,
    worst,
)
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import Connection
from toolgate.cli.render.findings import render_findings
from toolgate.errors import StartRefused
from toolgate.model.addresses import is_loopback
from toolgate.settings import OtlpSettings, load_settings
from toolgate.telemetry.spans import NotTaken

app = typer.Typer(add_completion=False)


@app.command("doctor")
@spread_options
def doctor_command(
    connection: Connection,
    data: Annotated[
        Path | None, Option("--data", help="The data directory. Default: the one the gateway uses.")
    ] = None,
    config: Annotated[
        Path | None, Option("--config", help="The settings file of the gateway, where it does not run.")
    ] = None,
) -> None:
    """Look for what is wrong and say what to do; exit code 1 if something is."""
    overrides = {} if data is None else {"data_dir": str(data)}
    settings = load_settings(config, os.environ, overrides)
    own = _ask_data_directory(connection) if data is None else None
    findings = [
        *_look_around(settings.data_dir if own is None else own, is_used=own is not None),
        *([] if settings.otlp is None else [_ask_collector(settings.otlp)]),
        *_ask_gateway(connection),
    ]
    connection.output.show([asdict(one) for one in findings], render_findings(findings))
    if worst(findings) == "problem":
        raise typer.Exit(Exit.FAILED)


def _ask_data_directory(connection: Connection) -> Path | None:
    """The directory that a gateway on this machine uses; None where it does not run, or does not say."""
    if not is_loopback(urlsplit(connection.url).hostname or ""):
        return None
    with suppress(CommandFailed), connection.open() as client:
        return Path(client.get("/admin/api/data-directory")["path"])
    return None


def _look_around(data_dir: Path, *, is_used: bool) -> list[Finding]:
    """What can be seen without a gateway; `is_used`: a gateway says that it uses the directory."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    mode = stat.S_IMODE(data_dir.stat().st_mode) if data_dir.is_dir() else None
    if mode is None and is_used:
        data = Finding("ok", "data", f"`{data_dir}` is the gateway's, and not on this file system")
    else:
        data = judge_data_directory(str(data_dir), mode, is_writable=os.access(data_dir, os.W_OK))
    return [data, judge_open_files(soft_limit)]


def _ask_collector(otlp: OtlpSettings) -> Finding:
    """Whether traces, or logs, would be taken: nothing is sent, which is a request as good as any."""
    try:
        collector = collector_of(otlp)
        asyncio.run((collector.send_traces if otlp.traces else collector.send_logs)(b""))
    except (NotTaken, StartRefused) as exc:
        return judge_collector(otlp.endpoint, str(exc))
    return judge_collector(otlp.endpoint, None)


def _ask_gateway(connection: Connection) -> Iterator[Finding]:
    """What the gateway says of itself; the first thing it will not say ends it."""
    try:
        with connection.open() as client:
            yield judge_gateway(client.get("/healthz"), own_version=__version__)
            yield from _ask_about_servers(client)
    except CommandFailed as failure:
        yield _judge_failure(failure, connection.url)


def _ask_about_servers(client: RestClient) -> Iterator[Finding]:
    servers = client.records("server")
    if not servers:
        yield Finding(
            "warning",
            "servers",
            "none are registered",
            "add one: toolgate servers apply -f FILE, or `import`",
        )
    for server in servers:
        yield judge_server(server)
    yield from filter(None, map(judge_pin, client.records("pin")))
    for node in client.get("/admin/api/nodes")["nodes"]:
        yield judge_node(node)
    yield from judge_rules(client.get("/admin/api/lint")["findings"])
    if servers:
        yield from _ask_about_scopes(client)


def _ask_about_scopes(client: RestClient) -> Iterator[Finding]:
    """What the callers of each task get, and those of none."""
    try:
        yield from judge_scope("scope without a task", client.get("/api/v1/mcp/scope"))
    except CommandFailed as failure:
        if failure.code != "not_found":  # a key that is bound to tasks has no other scope
            raise
    for task in client.get("/admin/api/mcp/tasks-overview")["tasks"]:
        yield from judge_scope(f"task {task['task_id']}", task)


def _judge_failure(failure: CommandFailed, url: str) -> Finding:
    if failure.code != "unreachable":
        return Finding("problem", "gateway", str(failure), failure.hint)
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)
    return judge_port(f"{host}:{port}", is_free=not _is_listening(host, port))


def _is_listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False
