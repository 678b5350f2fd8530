"""A modern stdio server on the official SDK whose list of tools grows when `grow` is called."""

import asyncio
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

names = ["grow"]
bus = InMemorySubscriptionBus()


async def list_tools(ctx: ServerRequestContext[Any], page: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in names])


async def call_tool(ctx: ServerRequestContext[Any], call: CallToolRequestParams) -> CallToolResult:
    names.append(f"leaf_{len(names)}")
    await bus.publish(ToolsListChanged())
    return CallToolResult(content=[TextContent(type="text", text=names[-1])])


async def main() -> None:
    server: Server[Any] = Server(
        "growing",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
