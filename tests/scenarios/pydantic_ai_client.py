"""pydantic-ai as a client: lists a URL's tools and calls some, over `sse` if told so; prints both as JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys

from fastmcp.client.transports import SSETransport
from pydantic_ai.mcp import MCPToolset


async def main(url: str, calls: str, transport: str = "streamable_http") -> None:
    async with MCPToolset[None](SSETransport(url) if transport == "sse" else url) as toolset:
        tools = [tool.name for tool in await toolset.list_tools()]
        texts = [await toolset.direct_call_tool(name, arguments) for name, arguments in json.loads(calls)]
    sys.stdout.write(json.dumps({"tools": tools, "texts": texts}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
