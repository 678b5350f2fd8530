"""A server on the Python SDK of both revisions, whose tools ask their client in one way each.

Run with a port it listens there over HTTP, else on its pipes.
"""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

server = MCPServer("both", instructions="Say who you are.")


class Name(BaseModel):
    name: str


@server.tool()
async def ask_in_session(ctx: Context) -> str:
    """By a request of the server's, which only a session can carry."""
    result = await ctx.elicit("Who are you?", Name)
    return result.data.name if result.action == "accept" else result.action


@server.tool()
async def ask_by_result(ctx: Context) -> str | InputRequiredResult:
    """By its result, which only a stateless connection can carry."""
    if response := (ctx.input_responses or {}).get("name"):
        assert isinstance(response, ElicitResult)
        return str((response.content or {})["name"])
    question = ElicitRequestFormParams(message="Who are you?", requested_schema=Name.model_json_schema())
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=question)})


@server.tool()
def echo(text: str) -> str:
    return text


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
