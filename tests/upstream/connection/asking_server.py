"""A server on the last SDK of the handshake era that asks its client all there is to ask, as SDK users do.

On stdio; with the word `sse` or `http` over that transport, on a port that it says first.
"""

import socket
import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("asking")


class Name(BaseModel):
    """What it asks people for."""

    name: str


@server.tool()
async def consult(context: Context) -> str:
    """Ask a person, a model and for the roots, and tell how far it is."""
    await context.report_progress(1, 3, "a person")
    person = await context.elicit("who are you?", Name)
    await context.info(f"met {person.data.name}")
    await context.report_progress(2, 3, "a model")
    question = SamplingMessage(role="user", content=TextContent(type="text", text="2 + 2?"))
    sample = await context.session.create_message([question], max_tokens=10)
    await context.report_progress(3, 3, "the roots")
    roots = await context.session.list_roots()
    return f"{person.data.name} {sample.content.text} {roots.roots[0].uri}"


def main() -> None:
    apps = {"sse": server.sse_app, "http": server.streamable_http_app}
    wanted = [apps[word] for word in sys.argv[1:] if word in apps]
    if not wanted:
        server.run()
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(wanted[0](), log_level="critical", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
