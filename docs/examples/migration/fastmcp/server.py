"""Your own server, written with FastMCP. Run it with `fastmcp run server.py`."""

from fastmcp import FastMCP

mcp = FastMCP("rates")


@mcp.tool
def convert(amount: float, rate: float) -> float:
    """Convert an amount at an exchange rate."""
    return round(amount * rate, 2)
