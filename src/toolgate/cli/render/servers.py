"""Servers: the list, one in full, its tools, and the result of testing or changing one; nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.pins import point_to_diff

STATE_STYLES: Final = {
    "connected": ui.OK,
    "starting": ui.WARN,
    "degraded": ui.WARN,
    "down": ui.BAD,
    "idle": "",
    "disabled": ui.DIM,
}
WORKING: Final = frozenset({"connected", "idle", "disabled"})
TRANSPORTS: Final = {"stdio": "stdio", "streamable_http": "http", "http_sse_legacy": "sse"}
STDERR_LINES: Final = 40
"""As many as the hint of a failed start promises."""


def render_nodes(answer: JsonObject) -> RenderableType:
    """One line a node. One that is behind the registry is marked."""
    if not answer["nodes"]:
        return Text("no node has reported yet: start one with `toolgate node --control HOST:PORT`")
    return ui.grid(
        *("NODE", "STATE", ">REVISION", "REPORTED", ">SERVERS", "VERSION", "AT*"),
        rows=(
            (
                ui.bold(node["node_id"]),
                render_node_state(node),
                ui.cell(f"{node['revision']:,}", "" if node["is_current"] else ui.WARN),
                f"{node['age_s']:.0f} s ago",
                node["servers"],
                ui.cell(node["version"], ui.DIM),
                node["url"],
            )
            for node in answer["nodes"]
        ),
    )


def render_node_state(node: JsonObject) -> Text:
    """Whether a node follows its control plane."""
    if node["is_lost"]:
        return ui.cell("lost", ui.BAD)
    return ui.cell("degraded", ui.WARN) if node["is_degraded"] else ui.cell("follows", ui.OK)


def render_server_json(answer: JsonObject) -> RenderableType:
    """A `server.json`, to be written into a file as it is: indented, and never wrapped."""
    return ui.stack_parts(ui.unwrapped(ui.encode_json(answer, indent=2)))


def render_server_tools(answer: JsonObject) -> RenderableType:
    """One line a tool: its name on the MCP endpoint, what it costs, and what decided about it."""
    tools: Sequence[JsonObject] = answer["tools"]
    others: Sequence[JsonObject] = answer.get("others") or ()
    if not tools and not others:
        return Text("no tools are known: see `toolgate servers test` for why")
    offered = sum(one["allowed"] for one in tools)
    is_quarantined = any(one["reason"] == "quarantined" for one in tools)
    return ui.stack_parts(
        _render_tools(tools) if tools else None,
        Text(f"{offered} of {ui.count_of(len(tools), 'tool')} offered", style=ui.DIM),
        _render_decisions("PROMPT OR RESOURCE", [one for one in others if one["allowed"]]),
        _render_decisions("HELD BACK", [one for one in (*tools, *others) if not one["allowed"]]),
        point_to_diff([answer["server_id"]]) if is_quarantined else None,
    )


def _render_tools(tools: Sequence[JsonObject]) -> RenderableType:
    return ui.grid(
        *("", "TOOL", ">TOKENS", "DIGEST", "DECIDED BY*"),
        rows=(
            (
                _mark(one),
                ui.cell(one["name"], "bold" if one["allowed"] else ""),
                f"{one['tokens']:,}" if one["digest"] else None,
                ui.cell((one["digest"] or "")[:12], ui.DIM),
                ui.cell(one["rule"] if one["allowed"] else "see below", ui.DIM),
            )
            for one in tools
        ),
    )


def _render_decisions(title: str, decisions: Sequence[JsonObject]) -> RenderableType | None:
    """By the names that patterns use, with room for what decided."""
    if not decisions:
        return None
    rows = (
        (_mark(one), ui.cell(one["tool"], "bold" if one["allowed"] else ""), _render_decision(one))
        for one in decisions
    )
    return ui.grid("", f"{title}*", "DECIDED BY*", rows=rows)


def _mark(one: JsonObject) -> Text:
    return Text("✓", style=ui.OK) if one["allowed"] else Text("✗", style=ui.BAD)


def _render_decision(one: JsonObject) -> Text:
    if one["allowed"]:
        return ui.cell(one["rule"], ui.DIM)
    why = ui.sentence(ui.bold(one["layer"]), ": ", ui.cell(one["reason"]))
    return Text("\n").join([why, ui.cell(one["rule"], ui.DIM)]) if one["rule"] else why


def render_servers(servers: Sequence[JsonObject]) -> RenderableType:
    """One line a server; their problems follow the table, where there is room for them."""
    if not servers:
        return Text("no servers yet: add one with `toolgate servers apply -f FILE`")
    has_nodes = any(server.get("nodes") for server in servers)
    table = ui.grid(
        *("SERVER", "STATE", *([">NODES"] if has_nodes else []), ">TOOLS", ">CALLS", "VIA", "TAGS*"),
        rows=(
            (
                ui.bold(server["server_id"]),
                _render_state(health := ui.health_of(server)),
                *([_render_on_nodes(server)] if has_nodes else []),
                health.get("tools", 0),
                f"{health.get('calls', 0):,}",
                TRANSPORTS.get(server["transport"], server["transport"]),
                ui.join_names(server.get("tags", []), ui.DIM),
            )
            for server in servers
        ),
    )
    return ui.stack_parts(table, _render_conditions(servers))


def render_server(server: JsonObject) -> RenderableType:
    """Everything about one server. Secrets come masked from the gateway."""
    health = ui.health_of(server)
    return ui.stack_parts(
        ui.fact_table(_list_details(server, health), ui.DIM),
        _render_node_table(server.get("nodes") or ()),
        _render_stderr(health),
    )


def render_test(server_id: str, report: JsonObject) -> RenderableType:
    """What happened when the gateway connected to a server once."""
    if error := report.get("error"):
        head, hint = ui.failed(ui.bold(server_id), ": ", ui.cell(error)), report.get("hint")
        return ui.stack_parts(head, ui.indent(ui.cell(hint)) if hint else None, _render_stderr(report))
    tools: Sequence[str] = report.get("tools") or ()
    head = ui.done(
        ui.bold(server_id),
        f": {ui.count_of(len(tools), 'tool')}, connected in {report.get('connect_ms')} ms,"
        f" listed in {report.get('list_ms')} ms, protocol ",
        ui.cell(report.get("version")),
    )
    return ui.stack_parts(head, _render_names(tools), _render_quarantine(report.get("quarantined") or {}))


def render_refreshed(answer: JsonObject) -> RenderableType:
    """A server after its tools were listed again."""
    tools: Sequence[str] = answer["tools"]
    state, size = _render_state(answer["health"]), ui.count_of(len(tools), "tool")
    error = None if tools else answer["health"].get("last_error")
    return ui.stack_parts(
        ui.group_parts(
            ui.sentence(ui.bold(answer["server_id"]), ": ", state, f", {size}"),
            ui.indent(ui.cell(error, ui.BAD)) if error else None,
        ),
        _render_names(tools),
        _render_quarantine(answer["quarantined"]),
    )


def _render_names(tools: Sequence[str]) -> RenderableType | None:
    return ui.indent(ui.join_names(tools)) if tools else None


def render_login(answer: JsonObject) -> RenderableType:
    """A server after a login."""
    return ui.done(ui.bold(answer["server_id"]), ": ", ui.cell(_describe_login(answer["login"])))


def render_logout(answer: JsonObject) -> RenderableType:
    """A server after a logout."""
    rest = "" if answer["revoked"] else "; its authorization server did not revoke the token"
    return ui.sentence("logged out of ", ui.bold(answer["server_id"]), rest)


def _describe_login(login: JsonObject | None) -> str:
    """Until when, and whether it is renewed then."""
    if not login:
        return ""
    by = f"logged in at {login['issuer']}"
    if login["expires_at_s"] is None:
        return by
    until = ui.render_time(login["expires_at_s"] * 1e3, ui.MINUTE_FORMAT)
    return f"{by} until {until} UTC" + (", renewed by itself" if login["renews"] else "")


def _render_state(health: JsonObject) -> Text:
    state = str(health.get("state", "unknown"))
    return ui.cell(state, STATE_STYLES.get(state, ""))


def _render_on_nodes(server: JsonObject) -> Text:
    """On how many of the nodes that report it a server works."""
    nodes: Sequence[JsonObject] = server.get("nodes") or ()
    well = sum(one["state"] in WORKING for one in nodes)
    return ui.cell(f"{well}/{len(nodes)}", ui.OK if well == len(nodes) else ui.WARN)


def _render_node_table(nodes: Sequence[JsonObject]) -> RenderableType | None:
    rows = (
        (
            ui.bold(one["node_id"]),
            _render_state(one),
            *(one["tools"], one["restarts"], ui.cell(one["last_error"], ui.BAD)),
        )
        for one in nodes
    )
    return ui.grid("NODE", "STATE", ">TOOLS", ">RESTARTS", "LAST ERROR*", rows=rows) if nodes else None


def _describe_verification(health: JsonObject) -> str:
    """When the server itself last listed its tools, if that is not now."""
    if health.get("state") in {"connected", "disabled"} or not health.get("tools"):
        return ""
    if not health.get("verified_ms"):
        return "never: as its package's manifest says"
    return f"{ui.render_time(health['verified_ms'], ui.MINUTE_FORMAT)} UTC, not verified since"


def _render_conditions(servers: Sequence[JsonObject]) -> RenderableType | None:
    lines = [
        ui.sentence(ui.cell(server["server_id"], style), ": ", ui.cell(condition))
        for server in servers
        for style, condition in _list_conditions(server)
    ]
    return Group(*lines) if lines else None


def _list_conditions(server: JsonObject) -> Iterator[tuple[str, str]]:
    health = ui.health_of(server)
    if condition := _describe_condition(health):
        yield STATE_STYLES[health["state"]], condition
    if health.get("quarantined"):
        refused = ui.count_of(health["quarantined"], "definition")
        yield ui.WARN, f"{refused} refused; `toolgate servers tools {server['server_id']}` says why"
    for node in server.get("nodes") or ():
        if condition := _describe_condition(node):
            yield STATE_STYLES[node["state"]], f"on {node['node_id']}: {condition}"
    if not server.get("allowed_tools"):
        yield ui.WARN, "no tool is allowed; fill `allowed_tools`"


def _describe_condition(health: JsonObject) -> str:
    """Why a server does not serve, or not yet. Empty: it does."""
    if health.get("state") == "starting":
        return str(health.get("hint") or "")
    return str(health.get("last_error") or "") if health.get("state") in {"down", "degraded"} else ""


def _list_details(server: JsonObject, health: JsonObject) -> dict[str, Any]:
    budgets: JsonObject = server.get("budgets") or {}
    refused = f" (+{health['quarantined']} refused)" if health.get("quarantined") else ""
    links = f"one for each session, {health.get('session_links') or 0} open"
    return {
        "server": ui.bold(server["server_id"]),
        "name": server.get("display_name"),
        "state": _render_state(health),
        "last error": ui.cell(health.get("last_error"), ui.BAD),
        "hint": health.get("hint"),
        "reached by": _describe_launch(server),
        "login": _describe_login(server.get("login")),
        "environment": ui.join_names((server.get("stdio") or {}).get("env", {})),
        "allowed tools": ui.join_names(server.get("allowed_tools", []))
        or ui.cell("none (deny all)", ui.WARN),
        "tools": f"{health.get('tools', 0)}{refused}",
        "tools listed": _describe_verification(health),
        "connections": links if server.get("sharing") == "per_session" else None,
        "tags": ui.join_names(server.get("tags", [])),
        "budgets": ", ".join(f"{name} {value:,}" for name, value in budgets.items()),
        "protocol": health.get("version"),
        "process": health.get("pid"),
        "restarts": health.get("restarts") or None,
        "revision": server.get("revision"),
    }


def _describe_launch(server: JsonObject) -> str | None:
    if server.get("transport") == "stdio":
        stdio: JsonObject = server.get("stdio") or {}
        return " ".join([str(stdio.get("command", "")), *map(str, stdio.get("args", []))])
    return (server.get("http") or {}).get("url")


def _render_quarantine(found: Mapping[str, str]) -> RenderableType | None:
    lines = [ui.sentence(ui.cell(name, ui.WARN), ": ", ui.cell(why)) for name, why in found.items()]
    return Group(Text("refused definitions:", style=ui.WARN), ui.indent(Group(*lines))) if lines else None


def _render_stderr(report: JsonObject) -> RenderableType | None:
    lines = ui.escape_block(str(report.get("stderr_tail") or "")).splitlines()[-STDERR_LINES:]
    if not lines:
        return None
    return Group(Text("its last output:", style=ui.DIM), ui.indent(Text("\n".join(lines))))
