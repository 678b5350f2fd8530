"""Where tools are found and not listed: three tools stand for all, over exactly the caller's own scope."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import LegacyClient, McpWorld, Response, key, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.audit.events import CallRecorded
from toolgate.policy.scope import ScopeLimits
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

OWN = ["call_tool", "describe_tool", "search_tools"]
GIT = record("git", allowed_tools=("log", "push"), category="code", tags=("vcs",))
MAIL = record("mail", allowed_tools=("*",), category="office")
REVIEW = task("review", default_server_ids=["git"], tool_denylist=["push"])
BOUND = key("bound", "secret-of-bound", ceiling={"allow": ("log",)})

READS = {"readOnlyHint": True}


def world() -> MemoryNet:
    git = MemoryServer(
        tools=[
            definition("log", description="Show the history of commits", annotations=READS),
            definition("push", description="Send commits to a remote"),
            definition("wipe", description="Destroy the history of commits"),
        ]
    )
    mail = MemoryServer(era="legacy", tools=[definition("send", description="Send a letter to someone")])
    return MemoryNet(git=git, mail=mail)


async def use(
    opened: McpWorld, tool: str, url: str = "/mcp/find", secret: str | None = None, **arguments: Any
) -> Any:
    """The result of a find tool, for a modern client."""
    response = await opened.modern(url, "tools/call", {"name": tool, "arguments": arguments}, key=secret)
    return response.json["result"]


async def names_found(opened: McpWorld, query: str, **options: Any) -> list[str]:
    found = await use(opened, "search_tools", query=query, **options)
    return [tool["name"] for tool in found["structuredContent"]["tools"]]


async def listed(opened: McpWorld, url: str, **who: Any) -> list[str]:
    response = await opened.modern(url, "tools/list", **who)
    return [tool["name"] for tool in response.json["result"]["tools"]]


@pytest.mark.parametrize(
    "url",
    [
        "/api/mcp/find",
        "/mcp/find",
        "/api/mcp?mode=find",
        "/mcp/s/git?mode=find",
        "/mcp/t/review?mode=find",
        "/mcp/find?servers=mail",
        "/mcp/find?mode=find",
    ],
)
async def test_three_tools_stand_for_all_on_every_path(url: str) -> None:
    async with open_mcp_world(world(), GIT, MAIL, tasks=(REVIEW,)) as opened:
        session = await opened.session(url)

        assert await listed(opened, url) == await session.tools() == OWN


@pytest.mark.parametrize("url", ["/mcp?mode=all", "/mcp?mode=", "/mcp/find?mode=list", "/mcp?mode=FIND"])
async def test_a_mode_that_is_none_is_refused(url: str) -> None:
    async with open_mcp_world(world(), GIT) as opened:
        response = await opened.modern(url, "tools/list")

        assert response.status == 400


async def test_a_tool_is_found_described_and_called() -> None:
    async with open_mcp_world(world(), GIT, MAIL) as opened:
        found = await use(opened, "search_tools", query="history of commits")
        name = found["structuredContent"]["tools"][0]["name"]
        described = await use(opened, "describe_tool", name=name)
        called = await use(opened, "call_tool", name=name, arguments={"n": 1})

        assert found["structuredContent"]["tools"][0] == {
            "name": "git.log",
            "description": "Show the history of commits",
            "server": "git",
            "readOnly": True,
            "tokens": opened.gateway.snapshot.servers["git"].tools["log"].tokens,
        }
        assert found["structuredContent"]["total"] == 3
        assert "git.log: Show the history of commits" in found["content"][0]["text"]
        assert described["structuredContent"]["name"] == "git.log"
        assert described["structuredContent"]["inputSchema"] == {"type": "object"}
        assert json.loads(described["content"][0]["text"]) == described["structuredContent"]
        assert json.loads(called["content"][0]["text"]) == {"n": 1}


async def test_a_session_keeps_its_mode_also_on_a_node_that_sees_it_first() -> None:
    """SCO-12: what a session was opened for holds whatever its later URLs say."""
    async with open_mcp_world(world(), GIT) as opened, open_mcp_world(world(), GIT) as other:
        session = await opened.session("/mcp/find")
        session.url = "/mcp"
        elsewhere = LegacyClient(other, "/mcp", session.headers)

        assert await session.tools() == await elsewhere.tools() == OWN


async def test_names_are_bare_where_there_is_one_server() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        url = "/mcp/s/git?mode=find"
        found = await use(opened, "search_tools", url, query="history")
        called = await use(opened, "call_tool", url, name="log", arguments={})

        assert [tool["name"] for tool in found["structuredContent"]["tools"]] == ["log"]
        assert "isError" not in called


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"server": "mail"}, ["mail.send"], id="a server"),
        pytest.param({"category": "code"}, ["git.push", "git.log"], id="a category"),
        pytest.param({"tag": "vcs"}, ["git.push", "git.log"], id="a tag"),
        pytest.param({"read_only": False}, ["git.push", "mail.send"], id="what may change something"),
        pytest.param({"limit": 1}, ["git.push"], id="one only"),
    ],
)
async def test_a_search_is_narrowed_by(options: dict[str, Any], expected: list[str]) -> None:
    async with open_mcp_world(world(), GIT, MAIL) as opened:
        assert await names_found(opened, "send commits to a remote", **options) == expected


async def test_a_search_for_what_only_reads_finds_nothing_else() -> None:
    async with open_mcp_world(world(), GIT, MAIL) as opened:
        assert await names_found(opened, "send", read_only=True) == ["git.log"]


@pytest.mark.parametrize("query", ["", "  ", "!?…", "zzqx"])
async def test_a_query_that_says_nothing_lists_by_name(query: str) -> None:
    async with open_mcp_world(world(), GIT, MAIL) as opened:
        found = (await use(opened, "search_tools", query=query, limit=2))["structuredContent"]

        assert [tool["name"] for tool in found["tools"]] == ["git.log", "git.push"]
        assert (found["total"], "2 of 3" in found["note"]) == (3, True)


async def test_an_empty_search_says_so() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        found = await use(opened, "search_tools", query="log", server="no one")

        assert found["structuredContent"] == {
            "tools": [],
            "total": 0,
            "note": "No tool matches these filters.",
        }


@pytest.mark.parametrize("tool", ["call_tool", "describe_tool"])
@pytest.mark.parametrize(
    ("url", "secret", "name"),
    [
        pytest.param("/mcp/find", None, "git.wipe", id="the record"),
        pytest.param("/mcp/find", "secret-of-bound", "git.push", id="the key"),
        pytest.param("/mcp/t/review?mode=find", None, "git.push", id="the task"),
        pytest.param("/mcp/find?tools=git.log", None, "git.push", id="the request"),
        pytest.param("/mcp/find", None, "call_tool", id="itself"),
    ],
)
async def test_sco_1_what_is_denied_answers_and_is_recorded_like_a_direct_call(
    tool: str, url: str, secret: str | None, name: str
) -> None:
    async with open_mcp_world(world(), GIT, MAIL, tasks=(REVIEW,), keys=(BOUND,)) as opened:
        denied = await use(opened, tool, url, secret, name=name)
        missing = await use(opened, tool, url, secret, name="x" * len(name))
        await opened.modern(
            url.replace("/find", "").replace("mode=find", ""), "tools/call", {"name": name}, key=secret
        )

        assert (denied["isError"], denied["_meta"]["toolgate/error"]["code"]) == (True, "unknown_tool")
        assert json.dumps(denied).replace(name, "x" * len(name)) == json.dumps(missing)
        through, _, direct = opened.audited
        assert without_time(through) == without_time(direct)
        assert opened.net["git"].calls == []


def without_time(recorded: CallRecorded) -> dict[str, Any]:
    own = {"at_ms", "duration_us", "start"}
    return {name: getattr(recorded, name) for name in recorded.__struct_fields__ if name not in own}


async def test_a_call_is_recorded_and_counted_as_if_it_were_direct() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        await opened.modern("/mcp", "tools/call", {"name": "git.log", "arguments": {"n": 1}})
        await use(opened, "call_tool", name="git.log", arguments={"n": 1})

        direct, through = opened.audited
        assert without_time(through) == {**without_time(direct), "argument_bytes": through.argument_bytes}
        assert opened.gateway.metrics.calls["git", "log"].calls == 2
        assert ("", "call_tool") not in opened.gateway.metrics.calls


async def test_searches_are_recorded_under_their_own_name() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        await use(opened, "search_tools", query="log with --password hush")
        await use(opened, "describe_tool", name="git.log", arguments={"of": "its server's rules"})
        await use(opened, "search_tools", limit=0)

        recorded = [(one.tool, one.server_id, one.outcome, bytes(one.arguments)) for one in opened.audited]
        assert recorded == [
            ("search_tools", "", "ok", b'{"query":"log with --password ***"}'),
            ("describe_tool", "", "ok", b'{"name":"git.log"}'),
            ("search_tools", "", "tool_error", b""),
        ]
        assert opened.gateway.metrics.calls["", "search_tools"].calls == 2


async def test_what_is_found_is_callable_by_its_own_name_and_nothing_else_is() -> None:
    """SCO-2, for a client that knows a tool from a time when it was listed."""
    async with open_mcp_world(world(), GIT) as opened:
        session = await opened.session("/mcp/find?tools=git.log")
        direct = await opened.modern("/mcp/find", "tools/call", {"name": "git.log", "arguments": {}})
        missing = await opened.modern("/mcp/find", "tools/call", {"name": "git.lag", "arguments": {}})
        own_at_list = await opened.modern("/mcp", "tools/call", {"name": "search_tools", "arguments": {}})

        assert "isError" not in direct.json["result"]
        assert "isError" not in (await session.call("git.log")).json["result"]
        assert missing.code == own_at_list.code == (await session.call("git.push")).code == -32602
        assert [one.params["name"] for one in opened.net["git"].calls] == ["log"] * 2


async def test_a_find_tool_goes_before_a_tool_of_the_same_name() -> None:
    net = MemoryNet(odd=MemoryServer(tools=[definition("search_tools"), definition("other")]))
    async with open_mcp_world(net, record("odd", allowed_tools=("*",))) as opened:
        session = await opened.session("/mcp/s/odd?mode=find")
        found = await session.send("tools/call", {"name": "search_tools", "arguments": {"query": ""}})
        await session.send("tools/call", called("search_tools"))
        await session.call("other")

        assert found.json["result"]["structuredContent"]["total"] == 2
        assert [one.params["name"] for one in net["odd"].calls] == ["search_tools", "other"]


async def test_a_list_of_find_tools_is_the_same_bytes_whatever_happens() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        before = await find_lists(opened)
        await use(opened, "search_tools", query="log")
        opened.apply(servers={"mail": MAIL})
        pending = await find_lists(opened)
        await opened.gateway.servers.settled(["mail"])
        opened.apply(servers={}, keys={"bound": BOUND})

        assert before == pending == await find_lists(opened) == await find_lists(opened, "secret-of-bound")


async def find_lists(opened: McpWorld, secret: str | None = None) -> list[bytes]:
    session = await opened.session("/mcp/find", key=secret)
    modern = await opened.modern("/mcp/find", "tools/list", key=secret)
    return [modern.body, (await session.send("tools/list")).body]


async def test_a_find_endpoint_says_what_to_do_and_announces_no_change() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        session = await opened.session("/mcp/find")
        discovered = (await opened.modern("/mcp/find", "server/discover")).json["result"]

        for outcome_before in (session.initialized, discovered):
            assert outcome_before["capabilities"]["tools"] == {"listChanged": False}
            assert "search_tools" in outcome_before["instructions"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_tools", {"query": "x" * 1_025}),
        ("search_tools", {"query": "x", "limit": 51}),
        ("search_tools", {"query": "x", "word": 1}),
        ("search_tools", {"query": 1}),
        ("describe_tool", {}),
        ("call_tool", {"name": ""}),
        ("call_tool", {"name": "n" * 257}),
        ("call_tool", {"name": "git.log", "arguments": "{}"}),
        ("call_tool", {"name": "git.log", "arguments": [1]}),
    ],
)
async def test_arguments_that_do_not_fit_are_a_result_that_says_so(tool: str, arguments: Any) -> None:
    async with open_mcp_world(world(), GIT) as opened:
        result = await use(opened, tool, **arguments)

        assert (result["isError"], result["_meta"]["toolgate/error"]["code"]) == (
            True,
            "mcp_invalid_arguments",
        )
        assert opened.net["git"].calls == []


async def test_arguments_and_meta_reach_the_server_as_they_were_written() -> None:
    """Numbers keep their spelling: what is only carried is cut out, and never written again."""
    seen: list[bytes] = []

    async with open_mcp_world(world(), GIT) as opened:
        call = opened.gateway.servers.call

        async def watched(server_id: str, method: str, params: Any, /, **rest: Any) -> Any:
            seen.append(bytes(params["arguments"]))
            return await call(server_id, method, params, **rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opened.gateway.servers, "call", watched)
            session = await opened.session("/mcp/find")
            body = (
                b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","arguments":'
                b'{"name":"git.log","arguments":{"n" : 1.00, "x":"\\u00e9"}},"_meta":{"vendor/key":"kept"}}}'
            )
            headers = {name.replace("-", "_"): value for name, value in session.headers.items()}
            await opened.post("/mcp/find", body, **headers)

        assert seen == [b'{"n" : 1.00, "x":"\\u00e9"}']
        [arrived] = opened.net["git"].calls
        assert (arrived.params["name"], arrived.meta["vendor/key"]) == ("log", "kept")


async def test_structured_content_and_errors_of_a_tool_pass() -> None:
    async def log(_members: Any) -> RpcResponse:
        return RpcResponse(result=b'{"content":[],"structuredContent":{"a":1},"isError":true,"vendor":2}')

    async with open_mcp_world(world(), GIT) as opened:
        opened.net["git"].on_call = {"log": log}
        result = await use(opened, "call_tool", name="git.log")

        assert (result["structuredContent"], result["isError"], result["vendor"]) == ({"a": 1}, True, 2)
        assert opened.audited[-1].outcome == "tool_error"


async def test_the_servers_own_budgets_hold() -> None:
    """BUD-1, BUD-4"""
    hasty = record("git", allowed_tools=("*",), output_bytes=1_024)

    async def log(_members: Any) -> RpcResponse:
        return RpcResponse(result=text_result("x" * 5_000))

    async with open_mcp_world(world(), hasty) as opened:
        opened.net["git"].on_call = {"log": log}
        result = await use(opened, "call_tool", name="git.log")

        assert len(json.dumps(result)) < 2_000
        assert opened.net["git"].calls[-1].timeout_s == pytest.approx(30, abs=1)


async def test_a_call_is_cancelled_with_its_client() -> None:
    """BUD-8"""
    async with open_mcp_world(world(), GIT) as opened:
        await use(opened, "search_tools", query="log")
        began, hang = hanging()
        opened.net["git"].on_call = {"log": hang}
        stream = opened.open_modern("/mcp/find", "tools/call", called("git.log"))
        await began.wait()
        await stream.leave()

        assert opened.net["git"].stopped_by == ["log"]
        assert opened.audited[-1].outcome == "cancelled"


def hanging() -> tuple[Any, Any]:
    began = asyncio.Event()

    async def hang(_members: Any) -> RpcResponse:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    return began, hang


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "call_tool", "arguments": {"name": name, "arguments": arguments}}


async def test_try_12_a_session_whose_scope_grows_too_large_searches_it_and_calls_go_on() -> None:
    async with open_mcp_world(world(), GIT, limits=ScopeLimits(max_tools=2)) as opened:
        session = await opened.session("/mcp")
        stream = session.stream()
        await stream.status
        small = await session.tools()
        opened.apply(servers={"git": GIT, "mail": MAIL})
        changed = await stream.event()
        large = await session.tools()
        found = await session.send("tools/call", called("mail.send"))
        known = await session.call("git.log")
        late = await opened.modern("/mcp", "server/discover")
        asked = await opened.modern("/mcp/find", "server/discover")

        assert (small, large) == (["git.log", "git.push"], OWN)
        assert changed["method"] == "notifications/tools/list_changed"
        assert "isError" not in found.json["result"]
        assert "isError" not in known.json["result"]
        assert "1 more than `max_tools` 2" in late.json["result"]["instructions"]
        assert "max_tools" not in asked.json["result"]["instructions"]


async def test_a_refused_scope_goes_on_with_calls_in_sessions_opened_before() -> None:
    async with open_mcp_world(world(), GIT, limits=ScopeLimits(max_tools=2, on_too_many="refuse")) as opened:
        session = await opened.session("/mcp")
        before = await session.tools()
        opened.apply(servers={"git": GIT, "mail": MAIL})
        await opened.gateway.servers.settled(["mail"])
        refused = await session.send("tools/list")
        calls = [await session.call("git.log") for _ in range(2)]
        stateless = await opened.modern("/mcp", "tools/call", {"name": "mail.send", "arguments": {}})

        assert before == ["git.log", "git.push"]
        assert refused.json["error"]["data"]["code"] == "too_many_tools"
        assert not any("isError" in one.json["result"] for one in [*calls, stateless])


async def test_a_find_endpoint_has_no_limit_and_a_list_still_has() -> None:
    async with open_mcp_world(
        world(), GIT, MAIL, limits=ScopeLimits(max_tools=1, on_too_many="refuse")
    ) as opened:
        session = await opened.session("/mcp/find")
        refused = await opened.modern("/mcp", "tools/list")

        assert await session.tools() == OWN
        assert refused.json["error"]["data"]["code"] == "too_many_tools"


async def test_a_scope_of_nothing_is_found_to_be_empty() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        found = await use(opened, "search_tools", "/mcp/find?tools=", query="log")

        assert found["structuredContent"]["tools"] == []
        assert await listed(opened, "/mcp/find?tools=") == OWN


async def test_prompts_are_as_always() -> None:
    net = world()
    net["git"].capabilities = {"tools": {}, "prompts": {}}
    net["git"].prompts = [b'{"name":"review"}']
    async with open_mcp_world(net, record("git", allowed_tools=("*", "prompt:*"))) as opened:
        response = await opened.modern("/mcp/find", "prompts/list")

        assert [prompt["name"] for prompt in response.json["result"]["prompts"]] == ["git.review"]


def price(response: Response) -> Any:
    return response.json["result"]["_meta"]["toolgate/price"]


async def test_a_list_says_what_it_costs_and_what_all_would_cost_those_who_may_know() -> None:
    agent = key("agent", "secret-of-agent")
    async with open_mcp_world(world(), GIT, MAIL, keys=(agent,)) as opened:
        url = "/mcp?tools=git.log"
        await opened.modern("/mcp", "tools/list")
        for_admin = price(await opened.modern(url, "tools/list"))
        for_agent = price(await opened.modern(url, "tools/list", key="secret-of-agent"))
        found = price(await opened.modern("/mcp/find", "tools/list"))
        offers = opened.gateway.snapshot.servers
        tokens = {name: tool.tokens for offer in offers.values() for name, tool in offer.tools.items()}

        assert for_agent == {"tools": 1, "tokens": tokens["log"]}
        assert for_admin == {**for_agent, "of": {"tools": 4, "tokens": sum(tokens.values())}}
        assert (found["tools"], found.keys()) == (3, {"tools", "tokens"})


async def test_who_listens_at_a_find_endpoint_hears_of_other_lists_and_never_of_its_tools() -> None:
    net = world()
    net["mail"].capabilities = {"tools": {}, "prompts": {}}
    net["mail"].prompts = [b'{"name":"greet"}']
    async with open_mcp_world(net, GIT) as opened:
        session = await opened.session("/mcp/find")
        stream = session.stream()
        await stream.status
        opened.apply(servers={"git": GIT, "mail": record("mail", allowed_tools=("*", "prompt:*"))})
        received = await stream.event()
        await opened.gateway.servers.settled(["mail"])
        found = await use(opened, "search_tools", query="letter")

        assert received["method"] == "notifications/prompts/list_changed"
        assert found["structuredContent"]["tools"][0]["name"] == "mail.send"
        assert stream.chunks.empty()
