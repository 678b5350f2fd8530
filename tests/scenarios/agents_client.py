"""openai-agents as a client: lists a URL's tools and calls one, over `sse` if told so; prints both as JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys

from agents.mcp import MCPServerSse, MCPServerStreamableHttp
from mcp.types import TextContent


async def main(url: str, name: str, arguments: str, transport: str = "streamable_http") -> None:
    kind = MCPServerSse if transport == "sse" else MCPServerStreamableHttp
    async with kind(params={"url": url}) as server:
        tools = await server.list_tools()
        result = await server.call_tool(name, json.loads(arguments))
    (content,) = result.content
    assert isinstance(content, TextContent)
    sys.stdout.write(json.dumps({"tools": [tool.name for tool in tools], "text": content.text}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
