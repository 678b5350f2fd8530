"""The selection in a query: whose scope an endpoint speaks of, and the URL of the MCP door that has it."""

from collections.abc import Mapping
from typing import Any, Final

from toolgate.gateway.scope.caller import Caller
from toolgate.govern.process import Serving
from toolgate.model.principals import Principal
from toolgate.surfaces.http.selection import parse_mode, parse_selection
from toolgate.surfaces.rest.framework.routing import Call, Parameter
from toolgate.surfaces.rest.links import mcp_url

SELECTION: Final = (
    Parameter("task", "The task to look through. Without it, the key's own, or none."),
    Parameter("servers", "Only these servers: ids, separated by commas."),
    Parameter(
        "tools",
        "Only these tools: `server.tool`, patterns or effects such as `@read_only`, separated by commas.",
    ),
    Parameter("profile", "Only what this profile selects."),
    Parameter("mode", "`list`, or `find`: as where tools are found and not listed."),
)


def parse_caller(principal: Principal, query: Mapping[str, str]) -> Caller:
    """The caller the query speaks of, read as the MCP door reads it. Or InvalidRequest."""
    task_id, request = parse_selection(query)
    return Caller(principal, task_id, request, mode=parse_mode(query))


def selected_url(serving: Serving, call: Call[Any], caller: Caller) -> str:
    """Where the MCP door has the scope that the query of `call` selects."""
    names = ("servers", "tools", "profile", "mode")
    selection = {name: call.query[name] for name in names if name in call.query}
    return mcp_url(serving.door_url() or call.base_url, caller.task_id, selection)
