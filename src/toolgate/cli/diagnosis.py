"""What is wrong with an installation and its servers, and what to do. Pure: facts in, findings out.

What `doctor` found, worst first.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, count_of, fact_table, health_of, stack_parts

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
    r"no connection within": "start it by hand to see what keeps it",
}
"""What a failed start says, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing looked at, how it is, and the remedy where it is not well."""

    level: Level
    where: str
    message: str
    remedy: str = ""


def diagnose_gateway(health: Facts, *, own_version: str) -> Diagnosis:
    """Whether the gateway is well, and it and this program belong together."""
    reasons, version = health.get("reasons") or (), str(health.get("version"))
    if reasons:
        codes = ", ".join(f"`{one['code']}`" for one in reasons)
        return Diagnosis("warning", "gateway", f"it is degraded: {codes}", str(reasons[0]["hint"]))
    if version != own_version:
        return Diagnosis(
            "warning",
            "gateway",
            f"it runs version {version}, this program is {own_version}",
            "install the same version on both sides",
        )
    return Diagnosis("ok", "gateway", f"version {version}, registry at revision {health.get('revision')}")


def diagnose_server(server: Facts) -> Diagnosis:
    """One server by its state; the remedy by what it says went wrong."""
    where = f"server {server['server_id']}"
    health = health_of(server)
    state = health.get("state", "unknown")
    if state in {"disabled", "unknown"}:
        return Diagnosis(
            "ok", where, "disabled by its record" if state == "disabled" else "not looked at yet"
        )
    if not server.get("allowed_tools"):
        remedy = 'list patterns in `allowed_tools`, `["*"]` for all, and apply the record again'
        return Diagnosis("problem", where, "no tool of it is allowed (deny_all)", remedy)
    if state in {"down", "degraded"}:
        error = str(health.get("last_error") or "it gives no reason")
        remedy = str(health.get("hint") or _suggest_remedy(server, error))
        return Diagnosis("problem" if state == "down" else "warning", where, error, remedy)
    if state == "starting":
        return Diagnosis("ok", where, ": ".join(filter(None, (state, health.get("hint")))))
    if health.get("quarantined"):
        message = f"{count_of(health['quarantined'], 'definition')} refused"
        remedy = f"see why with `toolgate servers tools {server['server_id']}`"
        return Diagnosis("warning", where, message, remedy)
    return Diagnosis("ok", where, f"{state}, {health.get('tools', 0)} tools")


def diagnose_pin(pin: Facts) -> Diagnosis | None:
    """One pinned server by what waits for approval; None: nothing does."""
    server_id, waiting = pin["server_id"], pin.get("waiting") or ()
    if not waiting:
        return None
    are = "is" if len(waiting) == 1 else "are"
    message = f"{count_of(len(waiting), 'tool')} changed or came after approval, and {are} not offered"
    remedy = f"see what changed with `toolgate pins diff {server_id}`, then `toolgate pins set {server_id}`"
    return Diagnosis("warning", f"pin {server_id}", message, remedy)


def diagnose_node(node: Facts) -> Diagnosis:
    """One node by what it last reported."""
    where = f"node {node['node_id']}"
    if node["is_lost"]:
        message = f"it has not reported for {node['age_s']:.0f} s"
        return Diagnosis("problem", where, message, "see that it runs and reaches this control")
    if node["is_degraded"]:
        message = f"it was out of reach of control, and serves revision {node['revision']}"
        return Diagnosis("warning", where, message, "see its `/healthz` for the reason")
    return Diagnosis("ok", where, f"serves revision {node['revision']}, {node['servers']} servers")


def diagnose_rules(findings: Iterable[Facts]) -> list[Diagnosis]:
    """The gateway's own lint as findings."""
    return [
        Diagnosis("warning", str(one["where"]), str(one["message"]), f"correct `{one['rule']}`, or remove it")
        for one in findings
    ]


def diagnose_scope(where: str, scope: Facts) -> list[Diagnosis]:
    """What is wrong with what the callers of a task, or of none, get: too many tools, or no tool."""
    refusal = scope.get("refusal")
    if refusal is not None:
        return [Diagnosis("problem", where, str(refusal["message"]), str(refusal["hint"]))]
    remedy = f"see which tools there are and why with `toolgate explain{_task_option(where)}`"
    return [Diagnosis("warning", where, str(one), remedy) for one in scope.get("warnings") or ()]


def _task_option(where: str) -> str:
    kind, _, task_id = where.partition(" ")
    return f" --task {task_id}" if kind == "task" else ""


def diagnose_data_directory(path: str, mode: int | None, *, is_writable: bool) -> Diagnosis:
    """Whether the registry can be written, and by nobody else. `mode` is None where there is none yet."""
    where = "data"
    if mode is None:
        return Diagnosis("ok", where, f"`{path}` does not exist yet; `toolgate up` makes it")
    if not is_writable:
        return Diagnosis(
            "problem", where, f"`{path}` cannot be written", f"chown it to you: chown -R $USER {path}"
        )
    if mode & 0o077:
        return Diagnosis(
            "warning", where, f"`{path}` is open to others ({mode:o})", f"close it: chmod 700 {path}"
        )
    return Diagnosis("ok", where, f"`{path}` is yours alone")


def diagnose_open_files(limit: int) -> Diagnosis:
    """Whether this user may open enough files for many servers and callers."""
    if limit < MIN_OPEN_FILES:
        return Diagnosis(
            "warning",
            "limits",
            f"only {limit} open files are allowed",
            "raise it: ulimit -n 4096, then start again",
        )
    return Diagnosis("ok", "limits", f"{limit:,} open files")


def diagnose_collector(endpoint: str, trouble: str | None) -> Diagnosis:
    """Whether the collector of the settings takes what it is sent. `trouble`: why not."""
    if trouble is None:
        return Diagnosis("ok", "collector", f"it takes what is sent to `{endpoint}`")
    return Diagnosis(
        "warning",
        "collector",
        f"nothing is taken at `{endpoint}`: {trouble}",
        "see that it runs and takes OTLP over HTTP, mostly at port 4318, or correct `otlp`",
    )


def diagnose_port(address: str, *, is_free: bool) -> Diagnosis:
    """Where no gateway answers: whether one could be started there."""
    if is_free:
        return Diagnosis("problem", "gateway", f"nothing listens at {address}", "start it: toolgate up")
    return Diagnosis(
        "problem",
        "gateway",
        f"another program listens at {address}",
        "stop it, or start the gateway elsewhere: toolgate up --listen 127.0.0.1:8081",
    )


def worst_level(findings: Sequence[Diagnosis]) -> Level:
    """The level of the whole."""
    levels = {one.level for one in findings}
    return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"


def _suggest_remedy(server: Facts, error: str) -> str:
    again = f"then `toolgate servers refresh {server['server_id']}`"
    for pattern, remedy in _REMEDIES.items():
        if match := re.search(pattern, error):
            return f"{remedy.format(*match.groups())}, {again}"
    if server.get("transport") != "stdio":
        return f"see that the server answers at `{(server.get('http') or {}).get('url')}`, {again}"
    return f"see its last words with `toolgate servers test {server['server_id']}`"


_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "problem": ("✗", BAD),
    "warning": ("!", WARN),
    "ok": ("✓", OK),
}


def render_findings(findings: Sequence[Diagnosis]) -> RenderableType:
    """A line a finding, its remedy under it, and the whole in one sentence."""
    table = fact_table(3)
    for one in sorted(findings, key=lambda finding: list(_MARKS).index(finding.level)):
        mark, style = _MARKS[one.level]
        text = cell(one.message)
        if one.remedy:
            text = Text("\n").join([text, Text.assemble(("→ ", style), cell(one.remedy, DIM))])
        table.add_row(Text(mark, style=style), cell(one.where, "bold"), text)
    return stack_parts(table, _verdict(findings))


def _verdict(findings: Sequence[Diagnosis]) -> Text:
    if worst_level(findings) == "ok":
        return Text("all is well", style=OK)
    problems = sum(one.level == "problem" for one in findings)
    notes = sum(one.level == "warning" for one in findings)
    parts = [count_of(number, word) for number, word in ((problems, "problem"), (notes, "warning")) if number]
    return Text(", ".join(parts), style=BAD if problems else WARN)
