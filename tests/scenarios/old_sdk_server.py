"""A server on the last SDK of the handshake era, run in the environment that has it.

On stdio; with the word `sse=PORT`, over the transport of 2024, on a port that it says first.
"""

import socket
import sys

import uvicorn
from mcp.server.fastmcp import FastMCP

server = FastMCP("old")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def subtract(a: int, b: int) -> int:
    """Take the second number from the first."""
    return a - b


@server.tool()
def negate(a: int) -> int:
    """Change the sign."""
    return -a


def serve_sse(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(server.sse_app(), log_level="critical", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    ports = [int(word.removeprefix("sse=")) for word in sys.argv if word.startswith("sse=")]
    serve_sse(*ports) if ports else server.run()
