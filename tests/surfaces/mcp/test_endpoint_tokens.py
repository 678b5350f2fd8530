"""What lists and results cost models is counted task by task, and told to the audit once."""

import asyncio

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.app import observability
from toolgate.audit.events import TokensCounted
from toolgate.gateway.scope.view import FIND_PRICE
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

GIT = record("git", allowed_tools=("*",))
REVIEW = task("review", default_server_ids=["git"], tool_denylist=["push"])


def world() -> MemoryNet:
    async def log(_params: object) -> RpcResponse:
        return RpcResponse(result=text_result("x" * 33))

    tools = [definition("log"), definition("push", description="Send commits. " * 20)]
    return MemoryNet(git=MemoryServer(tools=tools, on_call={"log": log}))


def notified(opened: McpWorld, *, at_ms: int) -> list[TokensCounted]:
    opened.gateway.tokens.audit_changes(at_ms=at_ms, registered=opened.gateway.snapshot.tasks)
    opened.gateway.audit.flush()
    return [one for _, one in opened.sink.events if isinstance(one, TokensCounted) and one.at_ms == at_ms]


async def test_lists_and_results_are_counted_by_task_and_reported_once() -> None:
    async with open_mcp_world(world(), GIT, tasks=(REVIEW,)) as opened:
        for _ in range(2):
            await opened.modern("/mcp/t/review", "tools/list")
        tools = opened.gateway.snapshot.servers["git"].tools
        price, full = tools["log"].tokens, sum(tool.tokens for tool in tools.values())
        await opened.modern("/mcp/t/review", "tools/call", {"name": "git.log", "arguments": {}})
        await opened.modern("/mcp/t/review", "tools/call", {"name": "git.push", "arguments": {}})
        await (await opened.session("/mcp")).tools()
        await opened.modern("/mcp/find", "tools/list")
        first, again = notified(opened, at_ms=1), notified(opened, at_ms=2)
        await opened.modern("/mcp/t/review", "tools/list")
        later = notified(opened, at_ms=3)
        recorded = [(one.tool, one.result_tokens) for one in opened.audited]

    assert first == [
        TokensCounted(1, "review", 2, 2 * price, 2 * full, 1, 10),
        TokensCounted(1, "", 2, full + FIND_PRICE["tokens"], 2 * full),
    ]
    assert again == []
    assert later == [TokensCounted(3, "review", 1, price, full)]
    assert recorded == [("log", 10), ("git.push", 0)]


async def test_the_pages_of_a_list_are_one_list() -> None:
    async with open_mcp_world(world(), GIT, page_size=1) as opened:
        response = await opened.modern("/mcp", "tools/list")
        await opened.modern("/mcp", "tools/list", {"cursor": response.json["result"]["nextCursor"]})

        assert [one.lists for one in notified(opened, at_ms=1)] == [1]


async def test_a_deleted_task_is_dropped_once_its_tokens_are_reported() -> None:
    async with open_mcp_world(world(), GIT, tasks=(REVIEW,)) as opened:
        await opened.modern("/mcp/t/review", "tools/list")
        opened.apply(tasks={})

        assert [one.task_id for one in notified(opened, at_ms=1)] == ["review"]
        assert notified(opened, at_ms=2) == []
        assert opened.gateway.tokens.read("lists") == {}


async def test_counts_are_metrics_and_are_reported_periodically_and_at_the_end() -> None:
    async with open_mcp_world(world(), GIT, tasks=(REVIEW,)) as opened:
        async with observability.open_token_audit(opened.gateway, every_s=0.01):
            await opened.modern("/mcp/t/review", "tools/list")
            async with asyncio.timeout(60):
                while not (first := _lists(opened)):
                    await asyncio.sleep(0.01)
            shown = opened.gateway.metrics.render().decode()
            await opened.modern("/mcp/t/review", "tools/list")
            await opened.modern("/mcp/t/review", "tools/list")
        everything = _lists(opened)

    assert (first, sum(everything)) == ([1], 3)
    assert 'toolgate_definition_tokens_total{task_id="review"}' in shown
    assert 'toolgate_definition_tokens_saved_total{task_id="review"}' in shown
    assert 'toolgate_result_tokens_total{task_id="review"} 0' in shown


def _lists(opened: McpWorld) -> list[int]:
    opened.gateway.audit.flush()
    return [one.lists for _, one in opened.sink.events if isinstance(one, TokensCounted)]
