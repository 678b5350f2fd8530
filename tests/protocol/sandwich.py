"""A client that the conformance suite runs, with the gateway between the two.

The suite's server is registered at the gateway, all it offers there is used by a client of the official SDK,
and it is taken out again: the suite waits until no one is connected to it.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.eventually import eventually

GATEWAY = "SANDWICH_GATEWAY"
ERA = "SANDWICH_ERA"
EVERYTHING = ["*", "prompt:*", "resource:*"]
"""What a record allows when its server is to be seen whole."""
NOT_THERE = [
    f"invalid_{kind}" for kind in ("empty_header", "object_header", "space_in_name", "control_char_name")
]
"""Tools that the suite lists and that must not be called; the gateway is asked for them all the same."""

ERAS = {"legacy": ("legacy", HANDSHAKE_PROTOCOL_VERSIONS), "modern": ("auto", MODERN_PROTOCOL_VERSIONS)}
EXAMPLES = {"number": 1, "integer": 1, "string": "word"}

Json = dict[str, Any]


async def accept(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """With what the form says by default, and true where it says nothing."""
    assert isinstance(params, types.ElicitRequestFormParams)
    fields = params.requested_schema["properties"]
    return types.ElicitResult(
        action="accept", content={name: fields[name].get("default", True) for name in fields}
    )


async def sample(
    context: ClientRequestContext, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="a sample")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: ClientRequestContext) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


def arguments_for(tool: types.Tool, schemas: dict[str, Json]) -> Json:
    """Something of the right type for all that is required; the rich schema for the tool that echoes one."""
    if tool.name == "json_schema_echo":
        return {"schema": schemas["json_schema_2020_12_tool"]}
    fields = tool.input_schema["properties"]
    return {name: EXAMPLES[fields[name]["type"]] for name in tool.input_schema.get("required", ())}


async def use_tools(client: Client) -> None:
    tools = (await client.list_tools()).tools
    schemas = {tool.name: tool.input_schema for tool in tools}
    given: list[Json] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls", [])
    wanted = {tool.name: arguments_for(tool, schemas) for tool in tools}
    for name, arguments in (wanted | {call["name"]: call["arguments"] for call in given}).items():
        await client.call_tool(name, arguments)
    for name in NOT_THERE:
        try:
            await client.call_tool(name, {"value": "word"})
        except MCPError:
            continue


async def use_rest(client: Client) -> None:
    """What is not a tool, as far as the server says it has it."""
    if client.server_capabilities.resources:
        for resource in (await client.list_resources()).resources:
            await client.read_resource(resource.uri)
    if client.server_capabilities.prompts:
        for prompt in (await client.list_prompts()).prompts:
            await client.get_prompt(prompt.name)


async def use(url: str) -> None:
    mode, versions = ERAS[os.environ[ERA]]
    async with Client(
        url, mode=mode, elicitation_callback=accept, sampling_callback=sample, list_roots_callback=roots
    ) as client:
        assert client.protocol_version in versions
        await use_tools(client)
        await use_rest(client)


def main(upstream: str) -> None:
    server_id = f"suite-{urlsplit(upstream).port}"
    record = {
        "server_id": server_id,
        "transport": "streamable_http",
        "http": {"url": upstream},
        "allowed_tools": EVERYTHING,
    }
    with httpx2.Client(base_url=os.environ[GATEWAY], trust_env=False, timeout=60) as http:
        path = f"/admin/api/mcp/servers/{server_id}"
        http.put(path, json=record).raise_for_status()
        eventually(lambda: http.get(path).json()["health"]["state"] == "connected")
        asyncio.run(use(f"{os.environ[GATEWAY]}/mcp/s/{server_id}"))
        http.delete(path).raise_for_status()


if __name__ == "__main__":
    main(sys.argv[1])
