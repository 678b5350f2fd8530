"""langchain-mcp-adapters as a client: lists a URL's tools and calls one, over `sse` if told so; prints JSON.

Run by its path, in an environment of its own: the adapters want an older SDK than the rest of the tests.
"""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(url: str, name: str, arguments: str, transport: str = "streamable_http") -> None:
    client = MultiServerMCPClient({"gateway": {"transport": transport, "url": url}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    (content,) = await tools[name].ainvoke(json.loads(arguments))
    sys.stdout.write(json.dumps({"tools": list(tools), "text": content["text"]}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
