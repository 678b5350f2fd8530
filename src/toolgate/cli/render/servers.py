"""Servers: the list, one in full, and what came of testing or changing one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.escape import escape_block
from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count,
    facts,
    grid,
    health_of,
    indent,
    names,
    sentence,
    stack,
)
from toolgate.cli.render.moments import MINUTE, moment

Record = Mapping[str, Any]

STATE_STYLES: Final = {
    "connected": OK,
    "starting": WARN,
    "degraded": WARN,
    "down": BAD,
    "idle": "",
    "disabled": DIM,
}
WORKING: Final = frozenset({"connected", "idle", "disabled"})
TRANSPORTS: Final = {"stdio": "stdio", "streamable_http": "http", "http_sse_legacy": "sse"}
STDERR_LINES: Final = 40
"""As many as the hint of a failed start promises."""


def render_servers(servers: Sequence[Record]) -> RenderableType:
    """One line a server; what is wrong with one stands under the table, where there is room for it."""
    if not servers:
        return Text("no servers yet: add one with `toolgate servers apply -f FILE`")
    has_nodes = any(server.get("nodes") for server in servers)
    nodes = ["NODES"] if has_nodes else []
    table = grid("SERVER", "STATE", *nodes, "TOOLS", "CALLS", "VIA", "TAGS", flexible={"TAGS"})
    for column in table.columns:
        column.justify = "right" if column.header in {"NODES", "TOOLS", "CALLS"} else "left"
    for server in servers:
        health = health_of(server)
        table.add_row(
            cell(server["server_id"], "bold"),
            _state(health),
            *([_on_nodes(server)] if has_nodes else []),
            cell(health.get("tools", 0)),
            cell(f"{health.get('calls', 0):,}"),
            cell(TRANSPORTS.get(server["transport"], server["transport"])),
            names(server.get("tags", []), DIM),
        )
    return stack(table, _troubles(servers))


def render_server(server: Record) -> RenderableType:
    """Everything about one server. Secrets come masked from the gateway."""
    health = health_of(server)
    table = facts(2)
    for label, value in _details(server, health):
        table.add_row(cell(label, DIM), value)
    return stack(table, _nodes(server.get("nodes") or ()), _stderr(str(health.get("stderr_tail") or "")))


def render_test(server_id: str, report: Record) -> RenderableType:
    """What happened when the gateway connected to a server once."""
    error = report.get("error")
    if error:
        head = sentence(Text("✗ ", style=BAD), cell(server_id, "bold"), ": ", cell(error))
        hint = report.get("hint")
        return stack(
            head, indent(cell(hint)) if hint else None, _stderr(str(report.get("stderr_tail") or ""))
        )
    tools: Sequence[str] = report.get("tools") or ()
    head = sentence(
        Text("✓ ", style=OK),
        cell(server_id, "bold"),
        f": {count(len(tools), 'tool')}, connected in {report.get('connect_ms')} ms,"
        f" listed in {report.get('list_ms')} ms, protocol ",
        cell(report.get("version")),
    )
    return stack(head, indent(names(tools)) if tools else None, _quarantine(report.get("quarantined") or {}))


def render_refreshed(answer: Record) -> RenderableType:
    """A server after its tools were listed again."""
    tools: Sequence[str] = answer["tools"]
    head = sentence(
        cell(answer["server_id"], "bold"), ": ", _state(answer["health"]), f", {count(len(tools), 'tool')}"
    )
    error = answer["health"].get("last_error")
    return stack(
        Group(head, *([indent(cell(error, BAD))] if error and not tools else [])),
        indent(names(tools)) if tools else None,
        _quarantine(answer["quarantined"]),
    )


def render_login(answer: Record) -> RenderableType:
    """A server that somebody has logged in to."""
    return sentence(
        Text("✓ ", style=OK), cell(answer["server_id"], "bold"), ": ", cell(_login(answer["login"]))
    )


def render_logout(answer: Record) -> RenderableType:
    """A server that somebody has logged out of."""
    rest = "" if answer["revoked"] else "; its authorization server did not take the token back"
    return sentence("logged out of ", cell(answer["server_id"], "bold"), rest)


def _login(login: Record | None) -> str:
    """Until when, and whether that is the end of it."""
    if not login:
        return ""
    by = f"logged in at {login['issuer']}"
    if login["expires_at_s"] is None:
        return by
    until = moment(login["expires_at_s"] * 1e3, MINUTE)
    return f"{by} until {until} UTC" + (", renewed by itself" if login["renews"] else "")


def _state(health: Record) -> Text:
    state = str(health.get("state", "unknown"))
    return cell(state, STATE_STYLES.get(state, ""))


def _on_nodes(server: Record) -> Text:
    """On how many of the nodes that report it a server works."""
    nodes: Sequence[Record] = server.get("nodes") or ()
    well = sum(one["state"] in WORKING for one in nodes)
    return cell(f"{well}/{len(nodes)}", OK if well == len(nodes) else WARN)


def _nodes(nodes: Sequence[Record]) -> RenderableType | None:
    if not nodes:
        return None
    table = grid("NODE", "STATE", "TOOLS", "RESTARTS", "LAST ERROR", flexible={"LAST ERROR"})
    table.columns[2].justify = table.columns[3].justify = "right"
    for one in nodes:
        table.add_row(
            cell(one["node_id"], "bold"),
            _state(one),
            cell(one["tools"]),
            cell(one["restarts"]),
            cell(one["last_error"], BAD),
        )
    return table


def _tool_count(health: Record) -> str:
    quarantined = health.get("quarantined") or 0
    return f"{health.get('tools', 0)}" + (f" (+{quarantined} refused)" if quarantined else "")


def _verified(health: Record) -> str:
    """When the server itself last listed its tools, if that is not now."""
    if health.get("state") in {"connected", "disabled"} or not health.get("tools"):
        return ""
    if not health.get("verified_ms"):
        return "never: as its package's manifest says"
    return f"{moment(health['verified_ms'], MINUTE)} UTC, not verified since"


def _connections(server: Record, health: Record) -> str:
    """Nothing where all callers share one."""
    if server.get("sharing") != "per_session":
        return ""
    return f"one for each session, {health.get('session_links') or 0} open"


def _troubles(servers: Sequence[Record]) -> RenderableType | None:
    lines = [
        sentence(cell(server["server_id"], style), ": ", cell(trouble))
        for server in servers
        for style, trouble in _troubles_of(server)
    ]
    return Group(*lines) if lines else None


def _troubles_of(server: Record) -> Iterator[tuple[str, str]]:
    health = health_of(server)
    if trouble := _trouble(health):
        yield STATE_STYLES[health["state"]], trouble
    if health.get("quarantined"):
        refused = count(health["quarantined"], "definition")
        yield WARN, f"{refused} refused; `toolgate servers tools {server['server_id']}` says why"
    for node in server.get("nodes") or ():
        if trouble := _trouble(node):
            yield STATE_STYLES[node["state"]], f"on {node['node_id']}: {trouble}"
    if not server.get("allowed_tools"):
        yield WARN, "no tool is allowed; fill `allowed_tools`"


def _trouble(health: Record) -> str:
    """Why a server does not serve, or not yet. Empty: it does."""
    if health.get("state") == "starting":
        return str(health.get("hint") or "")
    return str(health.get("last_error") or "") if health.get("state") in {"down", "degraded"} else ""


def _details(server: Record, health: Record) -> list[tuple[str, Text]]:
    budgets: Record = server.get("budgets") or {}
    details = [
        ("server", cell(server["server_id"], "bold")),
        ("name", cell(server.get("display_name"))),
        ("state", _state(health)),
        ("last error", cell(health.get("last_error"), BAD)),
        ("hint", cell(health.get("hint"))),
        ("reached by", _launch(server)),
        ("login", cell(_login(server.get("login")))),
        ("environment", names((server.get("stdio") or {}).get("env", {}))),
        ("allowed tools", names(server.get("allowed_tools", [])) or cell("none (deny all)", WARN)),
        ("tools", cell(_tool_count(health))),
        ("tools listed", cell(_verified(health))),
        ("connections", cell(_connections(server, health))),
        ("tags", names(server.get("tags", []))),
        ("budgets", cell(", ".join(f"{name} {value:,}" for name, value in budgets.items()))),
        ("protocol", cell(health.get("version"))),
        ("process", cell(health.get("pid"))),
        ("restarts", cell(health.get("restarts") or None)),
        ("revision", cell(server.get("revision"))),
    ]
    return [(label, value) for label, value in details if value.plain]


def _launch(server: Record) -> Text:
    if server.get("transport") == "stdio":
        stdio: Record = server.get("stdio") or {}
        return cell(" ".join([str(stdio.get("command", "")), *map(str, stdio.get("args", []))]))
    return cell((server.get("http") or {}).get("url"))


def _quarantine(found: Mapping[str, str]) -> RenderableType | None:
    lines = [sentence(cell(name, WARN), ": ", cell(why)) for name, why in found.items()]
    return Group(Text("refused definitions:", style=WARN), indent(Group(*lines))) if lines else None


def _stderr(text: str) -> RenderableType | None:
    lines = escape_block(text).splitlines()[-STDERR_LINES:]
    if not lines:
        return None
    return Group(Text("its last words:", style=DIM), indent(Text("\n".join(lines))))
