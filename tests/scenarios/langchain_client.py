"""langchain-mcp-adapters as a client: lists a URL's tools and calls some, over `sse` if told so; prints JSON.

Run by its path, in an environment of its own: the adapters want an older SDK than the rest of the tests.
"""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(url: str, calls: str, transport: str = "streamable_http") -> None:
    client = MultiServerMCPClient({"gateway": {"transport": transport, "url": url}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    texts = []
    for name, arguments in json.loads(calls):
        (content,) = await tools[name].ainvoke(arguments)
        texts.append(content["text"])
    sys.stdout.write(json.dumps({"tools": list(tools), "texts": texts}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
