"""List the tools of a URL with the official SDK and call one of them.

    python examples/list_and_call.py http://127.0.0.1:8080/api/mcp/t/notes
    python examples/list_and_call.py http://127.0.0.1:8080/api/mcp/t/notes notes.search_notes words=demo

Needs `pip install mcp`. The URL decides what is there: another task, other tools.
"""

import asyncio
import sys

from mcp import Client


async def main(url: str, tool: str | None = None, *words: str) -> None:
    async with Client(url) as client:
        if tool is None:
            for one in (await client.list_tools()).tools:
                print(f"{one.name}: {(one.description or '').splitlines()[0]}")
            return
        arguments = dict(word.split("=", 1) for word in words)
        result = await client.call_tool(tool, arguments)
        for block in result.content:
            print(getattr(block, "text", block))
        if result.is_error:
            sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
