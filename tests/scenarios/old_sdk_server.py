"""A server on the last SDK of the handshake era, run in the environment that has it."""

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


if __name__ == "__main__":
    server.run()
