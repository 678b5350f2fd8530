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
from toolgate.app.observability import build_collector
from toolgate.cli.client.rest import RestClient
from toolgate.cli.diagnosis import (
    Diagnosis,
    diagnose_collector,
    diagnose_data_directory,
    diagnose_gateway,
    diagnose_node,
    diagnose_open_files,
    diagnose_pin,
    diagnose_port,
    diagnose_rules,
    diagnose_scope,
    diagnose_server,
    render_findings,
    worst_level,
)
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.errors import StartRefused
from toolgate.model.http import is_loopback
from toolgate.settings import OtlpSettings, load_settings
from toolgate.telemetry.spans import ExportRejected

app = typer.Typer(add_completion=False)


@app.command("doctor")
@spread_options
def doctor_command(
    connection: GatewayConnection,
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
    own = _request_data_directory(connection) if data is None else None
    findings = [
        *_check_machine(settings.data_dir if own is None else own, is_used=own is not None),
        *([] if settings.otlp is None else [_check_collector(settings.otlp)]),
        *_check_gateway(connection),
    ]
    connection.output.show([asdict(one) for one in findings], render_findings(findings))
    if worst_level(findings) == "problem":
        raise typer.Exit(ExitCode.FAILED)


def _request_data_directory(connection: GatewayConnection) -> Path | None:
    """The directory that a gateway on this machine uses; None where it does not run, or does not say."""
    if not is_loopback(urlsplit(connection.url).hostname or ""):
        return None
    with suppress(CommandError), connection.open() as client:
        return Path(client.get("/admin/api/data-directory")["path"])
    return None


def _check_machine(data_dir: Path, *, is_used: bool) -> list[Diagnosis]:
    """What can be seen without a gateway; `is_used`: a gateway says that it uses the directory."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    mode = stat.S_IMODE(data_dir.stat().st_mode) if data_dir.is_dir() else None
    if mode is None and is_used:
        data = Diagnosis("ok", "data", f"`{data_dir}` is the gateway's, and not on this file system")
    else:
        data = diagnose_data_directory(str(data_dir), mode, is_writable=os.access(data_dir, os.W_OK))
    return [data, diagnose_open_files(soft_limit)]


def _check_collector(otlp: OtlpSettings) -> Diagnosis:
    """Whether traces, or logs, would be taken: nothing is sent, which is a request as good as any."""
    try:
        collector = build_collector(otlp)
        asyncio.run((collector.send_traces if otlp.traces else collector.send_logs)(b""))
    except (ExportRejected, StartRefused) as exc:
        return diagnose_collector(otlp.endpoint, str(exc))
    return diagnose_collector(otlp.endpoint, None)


def _check_gateway(connection: GatewayConnection) -> Iterator[Diagnosis]:
    """What the gateway says of itself; the first thing it will not say ends it."""
    try:
        with connection.open() as client:
            yield diagnose_gateway(client.get("/healthz"), own_version=__version__)
            yield from _check_servers(client)
    except CommandError as failure:
        yield _diagnose_failure(failure, connection.url)


def _check_servers(client: RestClient) -> Iterator[Diagnosis]:
    servers = client.records("server")
    if not servers:
        yield Diagnosis(
            "warning",
            "servers",
            "none are registered",
            "add one: toolgate servers apply -f FILE, or `import`",
        )
    for server in servers:
        yield diagnose_server(server)
    yield from filter(None, map(diagnose_pin, client.records("pin")))
    for node in client.get("/admin/api/nodes")["nodes"]:
        yield diagnose_node(node)
    yield from diagnose_rules(client.get("/admin/api/lint")["findings"])
    if servers:
        yield from _check_scopes(client)


def _check_scopes(client: RestClient) -> Iterator[Diagnosis]:
    """What the callers of each task get, and those of none."""
    try:
        yield from diagnose_scope("scope without a task", client.get("/api/v1/mcp/scope"))
    except CommandError as failure:
        if failure.code != "not_found":  # a key that is bound to tasks has no other scope
            raise
    for task in client.get("/admin/api/mcp/tasks-overview")["tasks"]:
        yield from diagnose_scope(f"task {task['task_id']}", task)


def _diagnose_failure(failure: CommandError, url: str) -> Diagnosis:
    if failure.code != "unreachable":
        return Diagnosis("problem", "gateway", str(failure), failure.hint)
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)
    return diagnose_port(f"{host}:{port}", is_free=not _is_listening(host, port))


def _is_listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False
