"""pydantic-ai as a client: lists a URL's tools and calls some, over each transport named; prints JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp.client.transports import SSETransport
from pydantic_ai.mcp import MCPToolset


async def main(url: str, calls: str, *transports: str) -> None:
    sys.stdout.write(json.dumps([await use(url, json.loads(calls), transport) for transport in transports]))


async def use(url: str, calls: list[Any], transport: str) -> dict[str, list[str]]:
    async with MCPToolset[None](SSETransport(url) if transport == "sse" else url) as toolset:
        tools = [tool.name for tool in await toolset.list_tools()]
        return {
            "tools": tools,
            "texts": [await toolset.direct_call_tool(name, given) for name, given in calls],
        }


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
