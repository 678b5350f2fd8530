"""openai-agents as a client: lists a URL's tools and calls some, over each transport named; prints JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys
from typing import Any

from agents.mcp import MCPServer, MCPServerSse, MCPServerStreamableHttp
from mcp.types import TextContent


async def main(url: str, calls: str, *transports: str) -> None:
    sys.stdout.write(json.dumps([await use(url, json.loads(calls), transport) for transport in transports]))


async def use(url: str, calls: list[Any], transport: str) -> dict[str, list[str]]:
    kind = MCPServerSse if transport == "sse" else MCPServerStreamableHttp
    async with kind(params={"url": url}) as server:
        tools = [tool.name for tool in await server.list_tools()]
        return {"tools": tools, "texts": [await text_of(server, name, given) for name, given in calls]}


async def text_of(server: MCPServer, name: str, arguments: dict[str, Any]) -> str:
    (content,) = (await server.call_tool(name, arguments)).content
    assert isinstance(content, TextContent)
    return content.text


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
