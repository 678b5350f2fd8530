"""`toolgate doctor`: problems of a gateway and its servers, and their remedies.

The `diagnose_` functions are pure: they take facts and return a diagnosis.
"""

import asyncio
import os
import re
import resource
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import typer
from rich.console import RenderableType
from rich.text import Text

from toolgate import __version__
from toolgate.app.observability import build_collector
from toolgate.cli.command import CommandError, ExitCode, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render import layout as ui
from toolgate.cli.rest import RestClient
from toolgate.errors import StartRefused
from toolgate.model.http import is_loopback
from toolgate.settings import OtlpSettings, load_settings
from toolgate.telemetry.spans import ExportRejected
from toolgate.upstream.http.fetch import OTLP_LOGS_PATH, OTLP_TRACES_PATH

Level = Literal["ok", "warning", "problem"]
Facts = Mapping[str, Any]

MIN_OPEN_FILES: Final = 1_024
"""Each server takes up to five descriptors and each caller one; below this a busy node runs short."""

_REMEDIES: Final[Mapping[str, str]] = {
    r"environment variable `([^`]+)`": "set `{}` where the gateway runs and start it again",
    r"secret `([^`]+)`": "put the secret `{}` into the secrets directory",
    r"there is no (?:command|file) `([^`]+)`": "install `{}`, or write its full path as `stdio.command`",
    r"its working directory `([^`]+)`": "make `{}`, or correct `stdio.cwd`",
    r"`([^`]+)` may not be executed": "make it executable: chmod +x {}",
    r"no connection within": "run its command yourself to see what it waits for",
}
"""Error of a failed start → remedy."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check, with a remedy for a problem."""

    level: Level
    where: str
    message: str
    remedy: str = ""


def diagnose_gateway(health: Facts, *, own_version: str) -> Diagnosis:
    """Whether the gateway is ready, and has the version of this program."""
    reasons, version = health.get("reasons") or (), str(health.get("version"))
    if reasons:
        codes = ", ".join(f"`{one['code']}`" for one in reasons)
        return Diagnosis("warning", "gateway", f"the gateway is degraded: {codes}", str(reasons[0]["hint"]))
    if version != own_version:
        message = f"the gateway has version {version}, this program {own_version}"
        return Diagnosis("warning", "gateway", message, "install the same version for both")
    return Diagnosis("ok", "gateway", f"version {version}, registry at revision {health.get('revision')}")


def diagnose_server(server: Facts) -> Diagnosis:
    """One server by its state; the remedy by its last error."""
    where = f"server {server['server_id']}"
    health = ui.health_of(server)
    state = health.get("state", "unknown")
    if state in {"disabled", "unknown"}:
        why = "disabled by its record" if state == "disabled" else "not checked so far"
        return Diagnosis("ok", where, why)
    if not server.get("allowed_tools"):
        remedy = 'list patterns in `allowed_tools`, `["*"]` for all, and apply the record again'
        return Diagnosis("problem", where, "no tools are allowed (deny_all)", remedy)
    if state in {"down", "degraded"}:
        error = str(health.get("last_error") or "no reason given")
        remedy = str(health.get("hint") or _suggest_remedy(server, error))
        return Diagnosis("problem" if state == "down" else "warning", where, error, remedy)
    if state == "starting":
        return Diagnosis("ok", where, ": ".join(filter(None, (state, health.get("hint")))))
    if health.get("quarantined"):
        message = f"{ui.count_of(health['quarantined'], 'definition')} rejected"
        remedy = f"see why with `toolgate servers tools {server['server_id']}`"
        return Diagnosis("warning", where, message, remedy)
    return Diagnosis("ok", where, f"{state}, {health.get('tools', 0)} tools")


def diagnose_pin(pin: Facts) -> Diagnosis | None:
    """One pinned server by its quarantined tools; None: it has none."""
    server_id, waiting = pin["server_id"], pin.get("waiting") or ()
    if not waiting:
        return None
    are = "is" if len(waiting) == 1 else "are"
    message = f"{ui.count_of(len(waiting), 'tool')} {are} quarantined: new or changed since approval"
    remedy = (
        f"see what changed with `toolgate pins review {server_id}`, then `toolgate pins approve {server_id}`"
    )
    return Diagnosis("warning", f"pin {server_id}", message, remedy)


def diagnose_node(node: Facts) -> Diagnosis:
    """One node by its last report."""
    where = f"node {node['node_id']}"
    if node["is_lost"]:
        message = f"no report for {node['age_s']:.0f} s"
        return Diagnosis("problem", where, message, "check that it runs and reaches the control plane")
    if node["is_degraded"]:
        message = f"degraded: it serves revision {node['revision']} and lost the control plane"
        return Diagnosis("warning", where, message, "see its `/healthz` for the reason")
    return Diagnosis("ok", where, f"serves revision {node['revision']}, {node['servers']} servers")


def diagnose_scope(where: str, scope: Facts) -> list[Diagnosis]:
    """The problems of the scope of a task, or without a task: too many tools, or none."""
    refusal = scope.get("refusal")
    if refusal is not None:
        return [Diagnosis("problem", where, str(refusal["message"]), str(refusal["hint"]))]
    kind, _, task_id = where.partition(" ")
    option = f" --task {task_id}" if kind == "task" else ""
    remedy = f"see the tools and the rules with `toolgate explain{option}`"
    return [Diagnosis("warning", where, str(one), remedy) for one in scope.get("warnings") or ()]


def diagnose_data_directory(path: str, mode: int | None, *, is_writable: bool) -> Diagnosis:
    """Whether the data directory is writable, and private. `mode` is None if it does not exist."""
    if mode is None:
        return Diagnosis("ok", "data", f"`{path}` does not exist; `toolgate up` creates it")
    if not is_writable:
        remedy = f"make it yours: chown -R $USER {path}"
        return Diagnosis("problem", "data", f"`{path}` is not writable", remedy)
    if mode & 0o077:
        message = f"other users can access `{path}` ({mode:o})"
        return Diagnosis("warning", "data", message, f"make it private: chmod 700 {path}")
    return Diagnosis("ok", "data", f"`{path}` is private")


def diagnose_open_files(limit: int) -> Diagnosis:
    if limit < MIN_OPEN_FILES:
        remedy = "raise the limit: ulimit -n 4096, then start again"
        return Diagnosis("warning", "limits", f"only {limit} open files are allowed", remedy)
    return Diagnosis("ok", "limits", f"{limit:,} open files are allowed")


def diagnose_port(address: str, *, is_free: bool) -> Diagnosis:
    """An address without a gateway: whether the port is free."""
    if is_free:
        return Diagnosis("problem", "gateway", f"nothing listens at {address}", "start it: toolgate up")
    remedy = "stop it, or start the gateway elsewhere: toolgate up --listen 127.0.0.1:8081"
    return Diagnosis("problem", "gateway", f"another program listens at {address}", remedy)


def _suggest_remedy(server: Facts, error: str) -> str:
    again = f"then `toolgate servers refresh {server['server_id']}`"
    for pattern, remedy in _REMEDIES.items():
        if match := re.search(pattern, error):
            return f"{remedy.format(*match.groups())}, {again}"
    if server.get("transport") != "stdio":
        return f"see that the server answers at `{(server.get('http') or {}).get('url')}`, {again}"
    return f"see its last output with `toolgate servers test {server['server_id']}`"


_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "problem": ("✗", ui.BAD),
    "warning": ("!", ui.WARN),
    "ok": ("✓", ui.OK),
}


def render_findings(findings: Sequence[Diagnosis]) -> RenderableType:
    """A line per finding with its remedy below it, then the count of problems."""
    table = ui.unheaded_grid(3)
    for one in sorted(findings, key=lambda finding: list(_MARKS).index(finding.level)):
        mark, style = _MARKS[one.level]
        text = ui.cell(one.message)
        if one.remedy:
            text = Text("\n").join([text, Text.assemble(("→ ", style), ui.cell(one.remedy, ui.DIM))])
        table.add_row(Text(mark, style=style), ui.bold(one.where), text)
    counts = {level: sum(one.level == level for one in findings) for level in ("problem", "warning")}
    verdict = ", ".join(ui.count_of(number, level) for level, number in counts.items() if number)
    style = ui.BAD if counts["problem"] else ui.WARN if counts["warning"] else ui.OK
    return ui.stack_parts(table, Text(verdict or "no problems", style=style))


app = typer.Typer(add_completion=False)


@command(app, "doctor")
def doctor_command(
    connection: GatewayConnection,
    data: Annotated[Path | None, "--data DIR", "Data directory to check. Default: the gateway's."] = None,
    config: Annotated[Path | None, "Settings file of a gateway that does not run."] = None,
) -> None:
    """Find problems of a gateway, and suggest remedies.

    Exit code 1 if there is a problem.
    """
    overrides = {} if data is None else {"data_dir": str(data)}
    settings = load_settings(config, os.environ, overrides)
    own = _request_data_directory(connection) if data is None else None
    findings = [
        *_check_machine(settings.data_dir if own is None else own, is_used=own is not None),
        *([] if settings.otlp is None else [_check_collector(settings.otlp)]),
        *_check_gateway(connection),
    ]
    connection.show([asdict(one) for one in findings], render_findings(findings))
    if any(one.level == "problem" for one in findings):
        raise typer.Exit(ExitCode.FAILED)


def _request_data_directory(connection: GatewayConnection) -> Path | None:
    """The data directory of a gateway on this machine; None if it does not run or is elsewhere."""
    if not is_loopback(urlsplit(connection.url).hostname or ""):
        return None
    with suppress(CommandError), connection.open() as client:
        return Path(client.get("/admin/api/data-directory")["path"])
    return None


def _check_machine(data_dir: Path, *, is_used: bool) -> list[Diagnosis]:
    """The checks without a gateway. `is_used`: a gateway reported the directory as its own."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    mode = stat.S_IMODE(data_dir.stat().st_mode) if data_dir.is_dir() else None
    if mode is None and is_used:
        data = Diagnosis("ok", "data", f"`{data_dir}` is the gateway's, on another file system")
    else:
        data = diagnose_data_directory(str(data_dir), mode, is_writable=os.access(data_dir, os.W_OK))
    return [data, diagnose_open_files(soft_limit)]


def _check_collector(otlp: OtlpSettings) -> Diagnosis:
    """Whether the collector accepts traces, or logs, by an empty request."""
    try:
        path = OTLP_TRACES_PATH if otlp.traces else OTLP_LOGS_PATH
        asyncio.run(build_collector(otlp).send(path, b""))
    except (ExportRejected, StartRefused) as exc:
        remedy = "check that it runs and accepts OTLP over HTTP (usually port 4318), or correct `otlp`"
        return Diagnosis("warning", "collector", f"`{otlp.endpoint}` accepts nothing: {exc}", remedy)
    return Diagnosis("ok", "collector", f"`{otlp.endpoint}` accepts data")


def _check_gateway(connection: GatewayConnection) -> Iterator[Diagnosis]:
    """The checks by the gateway's API. The first failed request ends them."""
    try:
        with connection.open() as client:
            yield diagnose_gateway(client.get("/healthz"), own_version=__version__)
            yield from _check_servers(client)
    except CommandError as failure:
        if failure.code != "unreachable":
            yield Diagnosis("problem", "gateway", str(failure), failure.hint)
            return
        parts = urlsplit(connection.url)
        host, port = parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            is_free = False
        except OSError:
            is_free = True
        yield diagnose_port(f"{host}:{port}", is_free=is_free)


def _check_servers(client: RestClient) -> Iterator[Diagnosis]:
    servers = client.records("server")
    if not servers:
        remedy = "add one: toolgate servers add NAME -- COMMAND, or toolgate servers import FILE"
        yield Diagnosis("warning", "servers", "no servers are registered", remedy)
    yield from map(diagnose_server, servers)
    yield from filter(None, map(diagnose_pin, client.records("pin")))
    yield from map(diagnose_node, client.get("/admin/api/nodes")["nodes"])
    for one in client.get("/admin/api/lint")["findings"]:
        remedy = f"correct `{one['rule']}`, or delete it"
        yield Diagnosis("warning", str(one["where"]), str(one["message"]), remedy)
    if servers:
        yield from _check_scopes(client)


def _check_scopes(client: RestClient) -> Iterator[Diagnosis]:
    """The problems of each task's scope, and of the scope without a task."""
    # A key that is limited to tasks has no other scope.
    if (scope := client.find("/api/v1/mcp/scope")) is not None:
        yield from diagnose_scope("scope without a task", scope)
    for task in client.get("/admin/api/mcp/tasks-overview")["tasks"]:
        yield from diagnose_scope(f"task {task['task_id']}", task)
