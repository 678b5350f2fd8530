"""Servers, chat upstreams and nodes: lists, single records, and results of tests and changes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import point_to_review
from toolgate.cli.render.layout import JsonObject

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
"""The number that the hint of a failed start promises."""
MAX_NAMED: Final = 50
"""Models of one test that are listed: some lines."""


def render_nodes(nodes: Sequence[JsonObject]) -> RenderableType:
    """One line per node. A node that is behind the registry is marked."""
    if not nodes:
        return Text("no node has reported: start one with `toolgate node --control HOST:PORT`")
    table = ui.grid("NODE", "STATE", ">REVISION", "REPORTED", ">SERVERS", "VERSION", "AT*")
    for node in nodes:
        revision = ui.cell(f"{node['revision']:,}", "" if node["is_current"] else ui.WARN)
        age, version = f"{node['age_s']:.0f} s ago", ui.cell(node["version"], ui.DIM)
        state = render_node_state(node)
        table.add_row(ui.bold(node["node_id"]), state, revision, age, node["servers"], version, node["url"])
    return table


def render_node(node: JsonObject) -> RenderableType:
    """Everything about one node."""
    behind = "" if node["is_current"] else ", behind the registry"
    facts = {
        "node": ui.bold(node["node_id"]),
        "state": render_node_state(node),
        "revision": f"{node['revision']:,}{behind}",
        "last report": f"{node['age_s']:.0f} s ago",
        "servers": f"{node['servers']:,}",
        "version": node["version"],
        "url": node["url"],
    }
    return ui.fact_table(facts, ui.DIM)


def render_node_state(node: JsonObject) -> Text:
    """Whether a node follows its control plane."""
    if node["is_lost"]:
        return ui.cell("lost", ui.BAD)
    return ui.cell("degraded", ui.WARN) if node["is_degraded"] else ui.cell("follows", ui.OK)


def render_server_tools(response: JsonObject) -> RenderableType:
    """One line per tool: its exposed name, its tokens, and the rule that decided."""
    tools: Sequence[JsonObject] = response["tools"]
    others: Sequence[JsonObject] = response.get("others") or ()
    if not tools and not others:
        return Text("no tools are known: run `toolgate servers test SERVER`")
    table = ui.grid("", "TOOL", ">TOKENS", "DIGEST", "DECIDED BY*")
    for one in tools:
        digest, rule = (one["digest"] or "")[:12], one["rule"] if one["allowed"] else "see below"
        tokens = f"{one['tokens']:,}" if one["digest"] else None
        table.add_row(
            *_render_allowed(one, one["name"]), tokens, ui.cell(digest, ui.DIM), ui.cell(rule, ui.DIM)
        )
    offered = sum(one["allowed"] for one in tools)
    is_quarantined = any(one["reason"] == "quarantined" for one in tools)
    return ui.stack_parts(
        table if tools else None,
        Text(f"{offered} of {ui.count_of(len(tools), 'tool')} offered", style=ui.DIM),
        _render_decisions("PROMPT OR RESOURCE", [one for one in others if one["allowed"]]),
        _render_decisions("HIDDEN", [one for one in (*tools, *others) if not one["allowed"]]),
        point_to_review([response["server_id"]]) if is_quarantined else None,
    )


def _render_decisions(title: str, decisions: Sequence[JsonObject]) -> RenderableType | None:
    """One line per name as patterns use it, with the rule that decided."""
    table = ui.grid("", f"{title}*", "DECIDED BY*")
    for one in decisions:
        why = ui.cell(one["rule"], ui.DIM)
        if not one["allowed"]:
            why = ui.render_reason(one["layer"], one["reason"], one["rule"])
        table.add_row(*_render_allowed(one, one["tool"]), why)
    return table if decisions else None


def _render_allowed(one: JsonObject, name: str) -> tuple[Text, Text]:
    return (ui.cell("✓", ui.OK), ui.bold(name)) if one["allowed"] else (ui.cell("✗", ui.BAD), ui.cell(name))


def render_servers(servers: Sequence[JsonObject]) -> RenderableType:
    """One line per server; their problems follow the table."""
    if not servers:
        return Text("no servers: add one with `toolgate servers add NAME -- COMMAND`")
    has_nodes = any(server.get("nodes") for server in servers)
    columns = ("SERVER", "STATE", *([">NODES"] if has_nodes else []), ">TOOLS", ">CALLS", "VIA", "TAGS*")
    table = ui.grid(*columns)
    for server in servers:
        health = ui.health_of(server)
        nodes: Sequence[JsonObject] = server.get("nodes") or ()
        well = sum(one["state"] in WORKING for one in nodes)
        on_nodes = ui.cell(f"{well}/{len(nodes)}", ui.OK if well == len(nodes) else ui.WARN)
        table.add_row(
            ui.bold(server["server_id"]),
            _render_state(health),
            *([on_nodes] if has_nodes else []),
            health.get("tools", 0),
            f"{health.get('calls', 0):,}",
            TRANSPORTS.get(server["transport"], server["transport"]),
            ui.join_names(server.get("tags", []), ui.DIM),
        )
    conditions = [
        ui.sentence(ui.cell(server["server_id"], style), ": ", ui.cell(condition))
        for server in servers
        for style, condition in _list_conditions(server)
    ]
    return ui.stack_parts(table, Group(*conditions) if conditions else None)


def _list_conditions(server: JsonObject) -> Iterator[tuple[str, str]]:
    health = ui.health_of(server)
    if condition := _describe_condition(health):
        yield STATE_STYLES[health["state"]], condition
    if health.get("quarantined"):
        refused = ui.count_of(health["quarantined"], "definition")
        yield ui.WARN, f"{refused} rejected; see `toolgate servers tools {server['server_id']}`"
    for node in server.get("nodes") or ():
        if condition := _describe_condition(node):
            yield STATE_STYLES[node["state"]], f"on {node['node_id']}: {condition}"
    if not server.get("allowed_tools"):
        yield ui.WARN, "no tools are allowed: set `allowed_tools`"


def _describe_condition(health: JsonObject) -> str:
    """Why a server is not ready. Empty: it is ready."""
    if health.get("state") == "starting":
        return str(health.get("hint") or "")
    return str(health.get("last_error") or "") if health.get("state") in {"down", "degraded"} else ""


def render_server(server: JsonObject) -> RenderableType:
    """Everything about one server. The gateway masks secrets."""
    health = ui.health_of(server)
    rows = (
        (
            ui.bold(one["node_id"]),
            _render_state(one),
            one["tools"],
            one["restarts"],
            ui.cell(one["last_error"], ui.BAD),
        )
        for one in server.get("nodes") or ()
    )
    return ui.stack_parts(
        ui.fact_table(_list_details(server, health), ui.DIM),
        ui.grid("NODE", "STATE", ">TOOLS", ">RESTARTS", "LAST ERROR*", rows=rows)
        if server.get("nodes")
        else None,
        _render_stderr(health),
    )


def _list_details(server: JsonObject, health: JsonObject) -> dict[str, Any]:
    stdio: JsonObject = server.get("stdio") or {}
    refused = f" (+{health['quarantined']} rejected)" if health.get("quarantined") else ""
    links = f"one per session, {health.get('session_links') or 0} open"
    launch = (server.get("http") or {}).get("url")
    if server.get("transport") == "stdio":
        launch = " ".join([str(stdio.get("command", "")), *map(str, stdio.get("args", []))])
    return {
        "server": ui.bold(server["server_id"]),
        "name": server.get("display_name"),
        "state": _render_state(health),
        "last error": ui.cell(health.get("last_error"), ui.BAD),
        "hint": health.get("hint"),
        "command" if server.get("transport") == "stdio" else "url": launch,
        "login": _describe_login(server.get("login")),
        "environment": ui.join_names(stdio.get("env", {})),
        "allowed tools": ui.join_names(server.get("allowed_tools", []))
        or ui.cell("none (deny all)", ui.WARN),
        "tools": f"{health.get('tools', 0)}{refused}",
        "tools listed": _describe_verification(health),
        "connections": links if server.get("sharing") == "per_session" else None,
        "tags": ui.join_names(server.get("tags", [])),
        "budgets": _join_budgets(server.get("budgets") or {}),
        "protocol": health.get("version"),
        "process": health.get("pid"),
        "restarts": health.get("restarts") or None,
        "revision": server.get("revision"),
    }


def _join_budgets(budgets: JsonObject) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in budgets.items())


def _describe_verification(health: JsonObject) -> str:
    """When the server last listed its tools, if not in this run."""
    if health.get("state") in {"connected", "disabled"} or not health.get("tools"):
        return ""
    if not health.get("verified_ms"):
        return "never: known from its package's manifest"
    return f"{ui.render_time(health['verified_ms'], ui.MINUTE_FORMAT)} UTC, not verified since"


def render_test(server_id: str, report: JsonObject) -> RenderableType:
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
    return ui.stack_parts(head, *_render_listing(tools, report.get("quarantined") or {}))


def render_refreshed(response: JsonObject) -> RenderableType:
    tools: Sequence[str] = response["tools"]
    size = ui.count_of(len(tools), "tool")
    head = ui.sentence(ui.bold(response["server_id"]), ": ", _render_state(response["health"]), f", {size}")
    error = None if tools else response["health"].get("last_error")
    head_and_error = ui.group_parts(head, ui.indent(ui.cell(error, ui.BAD)) if error else None)
    return ui.stack_parts(head_and_error, *_render_listing(tools, response["quarantined"]))


def _render_listing(tools: Sequence[str], quarantined: Mapping[str, str]) -> Iterator[RenderableType]:
    if tools:
        yield ui.indent(ui.join_names(tools))
    if quarantined:
        refused = (
            ui.sentence(ui.cell(name, ui.WARN), ": ", ui.cell(why)) for name, why in quarantined.items()
        )
        yield Group(Text("rejected definitions:", style=ui.WARN), ui.indent(Group(*refused)))


def render_login(response: JsonObject) -> RenderableType:
    return ui.done(ui.bold(response["server_id"]), ": ", ui.cell(_describe_login(response["login"])))


def render_logout(response: JsonObject) -> RenderableType:
    rest = "" if response["revoked"] else "; its authorization server did not revoke the token"
    return ui.sentence("logged out of ", ui.bold(response["server_id"]), rest)


def _describe_login(login: JsonObject | None) -> str:
    """Until when a login is valid, and whether it is renewed."""
    if not login:
        return ""
    by = f"logged in at {login['issuer']}"
    if login["expires_at_s"] is None:
        return by
    until = ui.render_time(login["expires_at_s"] * 1e3, ui.MINUTE_FORMAT)
    return f"{by} until {until} UTC" + (", renewed automatically" if login["renews"] else "")


def _render_state(health: JsonObject) -> Text:
    state = str(health.get("state", "unknown"))
    return ui.cell(state, STATE_STYLES.get(state, ""))


def _render_stderr(report: JsonObject) -> RenderableType | None:
    lines = ui.escape_block(str(report.get("stderr_tail") or "")).splitlines()[-STDERR_LINES:]
    if not lines:
        return None
    return Group(Text("last output:", style=ui.DIM), ui.indent(Text("\n".join(lines))))


def render_chat_upstreams(upstreams: Sequence[JsonObject]) -> RenderableType:
    """One line per upstream: its URL and its models."""
    if not upstreams:
        return Text("no chat upstreams: add one with `toolgate chat-upstreams apply -f FILE`")
    table = ui.grid("UPSTREAM", "STATE", "MODE", "MODELS*", "URL*")
    for one in upstreams:
        models, state = ui.join_names(one["models"]), _render_switch(one)
        table.add_row(ui.bold(one["upstream_id"]), state, one["mode"], models, one["base_url"])
    return table


def render_chat_upstream(upstream: JsonObject) -> RenderableType:
    """Everything about one upstream. The gateway masks secrets."""
    details = {
        "upstream": ui.bold(upstream["upstream_id"]),
        "name": upstream["display_name"],
        "state": _render_switch(upstream),
        "url": upstream["base_url"],
        "models": ui.join_names(upstream["models"]),
        "secret": upstream.get("auth_ref"),
        "headers": ui.join_names(f"{name}: {value}" for name, value in upstream["headers"].items()),
        "mode": upstream["mode"],
        "name profile": upstream["name_profile"],
        "other tools": upstream["other_tools"],
        "undeclared calls": "filtered" if upstream["filter_undeclared_calls"] else "",
        "budgets": _join_budgets(upstream["budgets"]),
        "timeout": f"{upstream['answer_timeout_ms']:,} ms",
        "concurrency": f"{upstream['max_concurrency']:,}",
        "revision": upstream["revision"],
    }
    return ui.fact_table(details, ui.DIM)


def _render_switch(upstream: JsonObject) -> Text:
    return ui.cell("enabled", ui.OK) if upstream["enabled"] else ui.cell("disabled", ui.DIM)


def render_chat_trial(upstream_id: str, report: JsonObject) -> RenderableType:
    """The result of listing the models of an upstream."""
    name = ui.bold(upstream_id)
    if not report["ok"]:
        hint = ui.indent(ui.cell(report["hint"])) if report["hint"] else None
        return ui.group_parts(ui.failed(name, ": ", ui.cell(report["error"])), hint)
    none = ui.cell("no model matches the patterns in `models`", ui.WARN)
    return ui.stack_parts(
        ui.done(name, f": {ui.count_of(report['found'], 'model')} in {report['took_ms']:,} ms"),
        _render_models("offered models", report["admitted"]) or none,
        _render_models("other models", report["others"]),
    )


def _render_models(title: str, models: Sequence[str]) -> RenderableType | None:
    if not models:
        return None
    more = [f"and {len(models) - MAX_NAMED:,} more"] if len(models) > MAX_NAMED else []
    return Group(ui.cell(f"{title}:", ui.DIM), ui.indent(ui.join_names([*models[:MAX_NAMED], *more])))
