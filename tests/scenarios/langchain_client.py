"""langchain-mcp-adapters as a client: lists a URL's tools and calls some, over each transport; prints JSON.

Run by its path, in an environment of its own: the adapters want an older SDK than the rest of the tests.
"""

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(url: str, calls: str, *transports: str) -> None:
    sys.stdout.write(json.dumps([await use(url, json.loads(calls), transport) for transport in transports]))


async def use(url: str, calls: list[Any], transport: str) -> dict[str, list[str]]:
    client = MultiServerMCPClient({"gateway": {"transport": transport, "url": url}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    texts = []
    for name, arguments in calls:
        (content,) = await tools[name].ainvoke(arguments)
        texts.append(content["text"])
    return {"tools": list(tools), "texts": texts}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
