"""Nodes, and servers as each node sees them.

A `server.json`, to be written into a file as it is.

What one server offers as it is exposed, and why some of it is not.

Servers: the list, one in full, and what came of testing or changing one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.pins import point_to_diff

JsonObject = Mapping[str, Any]


def render_nodes(answer: JsonObject) -> RenderableType:
    """One line a node. One that is behind the registry is marked."""
    nodes: Sequence[JsonObject] = answer["nodes"]
    if not nodes:
        return Text("no node has reported yet: start one with `toolgate node --control HOST:PORT`")
    table = ui.grid("NODE", "STATE", "REVISION", "REPORTED", "SERVERS", "VERSION", "AT*")
    table.columns[2].justify = table.columns[4].justify = "right"
    for node in nodes:
        table.add_row(
            ui.bold(node["node_id"]),
            _render_node_state(node),
            ui.cell(f"{node['revision']:,}", "" if node["is_current"] else ui.WARN),
            ui.cell(f"{node['age_s']:.0f} s ago"),
            ui.cell(node["servers"]),
            ui.cell(node["version"], ui.DIM),
            ui.cell(node["url"]),
        )
    return table


def _render_node_state(node: JsonObject) -> Text:
    if node["is_lost"]:
        return ui.cell("lost", ui.BAD)
    return ui.cell("degraded", ui.WARN) if node["is_degraded"] else ui.cell("follows", ui.OK)


def render_server_json(answer: Mapping[str, Any]) -> RenderableType:
    """Indented, and never wrapped."""
    return ui.stack_parts(Text(ui.encode_json(answer, indent=2), no_wrap=True, overflow="ignore"))


def render_server_tools(answer: JsonObject) -> RenderableType:
    """One line a tool: its name on the MCP door, what it costs, and what decided about it."""
    tools: Sequence[JsonObject] = answer["tools"]
    others: Sequence[JsonObject] = answer.get("others") or ()
    if not tools and not others:
        return Text("no tools are known: see `toolgate servers test` for why")
    allowed = sum(one["allowed"] for one in tools)
    return ui.stack_parts(
        _render_tool_table(tools) if tools else None,
        Text(f"{allowed} of {ui.count_of(len(tools), 'tool')} offered", style=ui.DIM),
        _render_decisions("PROMPT OR RESOURCE", [one for one in others if one["allowed"]]),
        _render_decisions("HELD BACK", [one for one in (*tools, *others) if not one["allowed"]]),
        point_to_diff([answer["server_id"]])
        if any(one["reason"] == "quarantined" for one in tools)
        else None,
    )


def _render_tool_table(tools: Sequence[JsonObject]) -> RenderableType:
    table = ui.grid("", "TOOL", "TOKENS", "DIGEST", "DECIDED BY*")
    table.columns[2].justify = "right"
    for one in tools:
        table.add_row(
            _mark(one),
            ui.cell(one["name"], "bold" if one["allowed"] else ""),
            ui.cell(f"{one['tokens']:,}" if one["digest"] else None),
            ui.cell((one["digest"] or "")[:12], ui.DIM),
            ui.cell(one["rule"] if one["allowed"] else "see below", ui.DIM),
        )
    return table


def _render_decisions(title: str, decisions: Sequence[JsonObject]) -> RenderableType | None:
    """By the names that patterns have for them, with room for what decided."""
    if not decisions:
        return None
    table = ui.grid("", f"{title}*", "DECIDED BY*")
    for one in decisions:
        table.add_row(
            _mark(one), ui.cell(one["tool"], "bold" if one["allowed"] else ""), _render_decision(one)
        )
    return table


def _mark(one: JsonObject) -> Text:
    return Text("✓", style=ui.OK) if one["allowed"] else Text("✗", style=ui.BAD)


def _render_decision(one: JsonObject) -> Text:
    if one["allowed"]:
        return ui.cell(one["rule"], ui.DIM)
    why = ui.sentence(ui.bold(one["layer"]), ": ", ui.cell(one["reason"]))
    return Text("\n").join([why, ui.cell(one["rule"], ui.DIM)]) if one["rule"] else why


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


def render_servers(servers: Sequence[JsonObject]) -> RenderableType:
    """One line a server; what is wrong with one stands under the table, where there is room for it."""
    if not servers:
        return Text("no servers yet: add one with `toolgate servers apply -f FILE`")
    has_nodes = any(server.get("nodes") for server in servers)
    nodes = ["NODES"] if has_nodes else []
    table = ui.grid("SERVER", "STATE", *nodes, "TOOLS", "CALLS", "VIA", "TAGS*")
    for column in table.columns:
        column.justify = "right" if column.header in {"NODES", "TOOLS", "CALLS"} else "left"
    for server in servers:
        health = ui.health_of(server)
        table.add_row(
            ui.bold(server["server_id"]),
            _render_state(health),
            *([_on_nodes(server)] if has_nodes else []),
            ui.cell(health.get("tools", 0)),
            ui.cell(f"{health.get('calls', 0):,}"),
            ui.cell(TRANSPORTS.get(server["transport"], server["transport"])),
            ui.join_names(server.get("tags", []), ui.DIM),
        )
    return ui.stack_parts(table, _render_conditions(servers))


def render_server(server: JsonObject) -> RenderableType:
    """Everything about one server. Secrets come masked from the gateway."""
    health = ui.health_of(server)
    table = ui.unheaded_grid(2)
    for label, value in _list_details(server, health):
        table.add_row(ui.cell(label, ui.DIM), value)
    return ui.stack_parts(
        table,
        _render_node_table(server.get("nodes") or ()),
        _render_stderr(str(health.get("stderr_tail") or "")),
    )


def render_test(server_id: str, report: JsonObject) -> RenderableType:
    """What happened when the gateway connected to a server once."""
    error = report.get("error")
    if error:
        head = ui.failed(ui.bold(server_id), ": ", ui.cell(error))
        hint = report.get("hint")
        return ui.stack_parts(
            head,
            ui.indent(ui.cell(hint)) if hint else None,
            _render_stderr(str(report.get("stderr_tail") or "")),
        )
    tools: Sequence[str] = report.get("tools") or ()
    head = ui.sentence(
        Text("✓ ", style=ui.OK),
        ui.bold(server_id),
        f": {ui.count_of(len(tools), 'tool')}, connected in {report.get('connect_ms')} ms,"
        f" listed in {report.get('list_ms')} ms, protocol ",
        ui.cell(report.get("version")),
    )
    return ui.stack_parts(
        head,
        ui.indent(ui.join_names(tools)) if tools else None,
        _render_quarantine(report.get("quarantined") or {}),
    )


def render_refreshed(answer: JsonObject) -> RenderableType:
    """A server after its tools were listed again."""
    tools: Sequence[str] = answer["tools"]
    head = ui.sentence(
        ui.bold(answer["server_id"]),
        ": ",
        _render_state(answer["health"]),
        f", {ui.count_of(len(tools), 'tool')}",
    )
    error = answer["health"].get("last_error")
    return ui.stack_parts(
        Group(head, *([ui.indent(ui.cell(error, ui.BAD))] if error and not tools else [])),
        ui.indent(ui.join_names(tools)) if tools else None,
        _render_quarantine(answer["quarantined"]),
    )


def render_login(answer: JsonObject) -> RenderableType:
    """A server that somebody has logged in to."""
    return ui.sentence(
        Text("✓ ", style=ui.OK), ui.bold(answer["server_id"]), ": ", ui.cell(_describe_login(answer["login"]))
    )


def render_logout(answer: JsonObject) -> RenderableType:
    """A server that somebody has logged out of."""
    rest = "" if answer["revoked"] else "; its authorization server did not take the token back"
    return ui.sentence("logged out of ", ui.bold(answer["server_id"]), rest)


def _describe_login(login: JsonObject | None) -> str:
    """Until when, and whether that is the end of it."""
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


def _on_nodes(server: JsonObject) -> Text:
    """On how many of the nodes that report it a server works."""
    nodes: Sequence[JsonObject] = server.get("nodes") or ()
    well = sum(one["state"] in WORKING for one in nodes)
    return ui.cell(f"{well}/{len(nodes)}", ui.OK if well == len(nodes) else ui.WARN)


def _render_node_table(nodes: Sequence[JsonObject]) -> RenderableType | None:
    if not nodes:
        return None
    table = ui.grid("NODE", "STATE", "TOOLS", "RESTARTS", "LAST ERROR*")
    table.columns[2].justify = table.columns[3].justify = "right"
    for one in nodes:
        table.add_row(
            ui.bold(one["node_id"]),
            _render_state(one),
            ui.cell(one["tools"]),
            ui.cell(one["restarts"]),
            ui.cell(one["last_error"], ui.BAD),
        )
    return table


def _tool_count(health: JsonObject) -> str:
    quarantined = health.get("quarantined") or 0
    return f"{health.get('tools', 0)}" + (f" (+{quarantined} refused)" if quarantined else "")


def _describe_verification(health: JsonObject) -> str:
    """When the server itself last listed its tools, if that is not now."""
    if health.get("state") in {"connected", "disabled"} or not health.get("tools"):
        return ""
    if not health.get("verified_ms"):
        return "never: as its package's manifest says"
    return f"{ui.render_time(health['verified_ms'], ui.MINUTE_FORMAT)} UTC, not verified since"


def _connections(server: JsonObject, health: JsonObject) -> str:
    """Nothing where all callers share one."""
    if server.get("sharing") != "per_session":
        return ""
    return f"one for each session, {health.get('session_links') or 0} open"


def _render_conditions(servers: Sequence[JsonObject]) -> RenderableType | None:
    lines = [
        ui.sentence(ui.cell(server["server_id"], style), ": ", ui.cell(trouble))
        for server in servers
        for style, trouble in _list_conditions(server)
    ]
    return Group(*lines) if lines else None


def _list_conditions(server: JsonObject) -> Iterator[tuple[str, str]]:
    health = ui.health_of(server)
    if trouble := _describe_condition(health):
        yield STATE_STYLES[health["state"]], trouble
    if health.get("quarantined"):
        refused = ui.count_of(health["quarantined"], "definition")
        yield ui.WARN, f"{refused} refused; `toolgate servers tools {server['server_id']}` says why"
    for node in server.get("nodes") or ():
        if trouble := _describe_condition(node):
            yield STATE_STYLES[node["state"]], f"on {node['node_id']}: {trouble}"
    if not server.get("allowed_tools"):
        yield ui.WARN, "no tool is allowed; fill `allowed_tools`"


def _describe_condition(health: JsonObject) -> str:
    """Why a server does not serve, or not yet. Empty: it does."""
    if health.get("state") == "starting":
        return str(health.get("hint") or "")
    return str(health.get("last_error") or "") if health.get("state") in {"down", "degraded"} else ""


def _list_details(server: JsonObject, health: JsonObject) -> list[tuple[str, Text]]:
    budgets: JsonObject = server.get("budgets") or {}
    details = [
        ("server", ui.bold(server["server_id"])),
        ("name", ui.cell(server.get("display_name"))),
        ("state", _render_state(health)),
        ("last error", ui.cell(health.get("last_error"), ui.BAD)),
        ("hint", ui.cell(health.get("hint"))),
        ("reached by", _launch(server)),
        ("login", ui.cell(_describe_login(server.get("login")))),
        ("environment", ui.join_names((server.get("stdio") or {}).get("env", {}))),
        (
            "allowed tools",
            ui.join_names(server.get("allowed_tools", [])) or ui.cell("none (deny all)", ui.WARN),
        ),
        ("tools", ui.cell(_tool_count(health))),
        ("tools listed", ui.cell(_describe_verification(health))),
        ("connections", ui.cell(_connections(server, health))),
        ("tags", ui.join_names(server.get("tags", []))),
        ("budgets", ui.cell(", ".join(f"{name} {value:,}" for name, value in budgets.items()))),
        ("protocol", ui.cell(health.get("version"))),
        ("process", ui.cell(health.get("pid"))),
        ("restarts", ui.cell(health.get("restarts") or None)),
        ("revision", ui.cell(server.get("revision"))),
    ]
    return [(label, value) for label, value in details if value.plain]


def _launch(server: JsonObject) -> Text:
    if server.get("transport") == "stdio":
        stdio: JsonObject = server.get("stdio") or {}
        return ui.cell(" ".join([str(stdio.get("command", "")), *map(str, stdio.get("args", []))]))
    return ui.cell((server.get("http") or {}).get("url"))


def _render_quarantine(found: Mapping[str, str]) -> RenderableType | None:
    lines = [ui.sentence(ui.cell(name, ui.WARN), ": ", ui.cell(why)) for name, why in found.items()]
    return Group(Text("refused definitions:", style=ui.WARN), ui.indent(Group(*lines))) if lines else None


def _render_stderr(text: str) -> RenderableType | None:
    lines = ui.escape_block(text).splitlines()[-STDERR_LINES:]
    if not lines:
        return None
    return Group(Text("its last words:", style=ui.DIM), ui.indent(Text("\n".join(lines))))
