"""openai-agents as a client: lists a URL's tools and calls some, over `sse` if told so; prints both as JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys
from typing import Any

from agents.mcp import MCPServer, MCPServerSse, MCPServerStreamableHttp
from mcp.types import TextContent


async def main(url: str, calls: str, transport: str = "streamable_http") -> None:
    kind = MCPServerSse if transport == "sse" else MCPServerStreamableHttp
    async with kind(params={"url": url}) as server:
        tools = [tool.name for tool in await server.list_tools()]
        texts = [await text_of(server, name, arguments) for name, arguments in json.loads(calls)]
    sys.stdout.write(json.dumps({"tools": tools, "texts": texts}))


async def text_of(server: MCPServer, name: str, arguments: dict[str, Any]) -> str:
    (content,) = (await server.call_tool(name, arguments)).content
    assert isinstance(content, TextContent)
    return content.text


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
