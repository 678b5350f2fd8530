"""What a caller was offered is audited: once for each scope that it saw, with what was excluded and why."""

import json
import logging
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, key, open_mcp_world, task
from tests.surfaces.openai.chat_world import asking, open_chat_world, stage, upstream
from tests.surfaces.wasm.guest_world import TASK, PlayedGuest, open_guest_world
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from tests.upstream.scripted_model import scripted_model, text
from toolgate.audit.log.files import MAX_LINE_BYTES, encode_line
from toolgate.gateway.scope.scope_audit import MAX_DETAILED
from toolgate.model.tasks import WorkloadLimits
from toolgate.policy.scope import ScopeLimits
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS

pytestmark = pytest.mark.anyio

SECRET = "agent-secret-agent-secret-agent-secret"
URL = "/api/mcp/t/ops"
OPS = task("ops", default_server_ids=["one", "two", "gone"], tool_denylist=["delete"])


def net_of_two() -> MemoryNet:
    return MemoryNet(
        one=MemoryServer(tools=(definition("delete"), definition("echo"))),
        two=MemoryServer(tools=(definition("read"),)),
    )


def records() -> tuple[Any, ...]:
    return record("one", allowed_tools=("*",)), record("two", allowed_tools=("*",))


def scopes(world: McpWorld) -> list[dict[str, Any]]:
    """The events about scopes, as the log has them."""
    world.gateway.audit.flush()
    lines = (encode_line(*line) for line in world.sink.events)
    return [event for line in lines if (event := json.loads(line))["type"] == "scope"]


def seen(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["principal"], event["task_id"], event["offered"], event.get("reasons", {})


@pytest.mark.requirement("000-04", "000-12", "000-13", "000-43")
async def test_a_list_is_audited_with_what_it_offers_and_every_exclusion() -> None:
    async with open_mcp_world(net_of_two(), *records(), tasks=(OPS,)) as world:
        await world.modern(URL, "tools/list")
        (event,) = scopes(world)

    assert len(event.pop("scope")) == 64
    assert event.pop("at_ms") >= 0
    assert event.pop("tokens") > 0
    assert event == {
        "seq": 1,
        "type": "scope",
        "door": "mcp",
        "principal": "local",
        "task_id": "ops",
        "revision": 1,
        "mode": "list",
        "servers": 2,
        "effective_servers": ["one", "two"],
        "filters": [{"layer": "task", "rule": "mcp.tool_denylist", "patterns": ["delete"], "is_deny": True}],
        "tools": 2,
        "prompts": 0,
        "resources": 0,
        "offered": ["one.echo", "two.read"],
        "excluded": 2,
        "reasons": {"denied_by_task": 1, "unknown_server": 1},
        "exclusions": [
            {
                "server_id": "gone",
                "reason": "unknown_server",
                "layer": "platform",
                "rule": "mcp.default_server_ids",
            },
            {
                "server_id": "one",
                "tool": "delete",
                "reason": "denied_by_task",
                "layer": "task",
                "rule": "mcp.tool_denylist `delete`",
            },
        ],
    }


@pytest.mark.requirement("000-04")
async def test_a_list_is_audited_again_only_when_it_changed_for_its_caller() -> None:
    other = task("other", default_server_ids=["two"])
    keys = (key("agent", SECRET),)
    async with open_mcp_world(net_of_two(), *records(), tasks=(OPS, other), keys=keys) as world:
        session = await world.session(URL)
        for _ in range(3):
            await session.tools()
            await world.modern(URL, "tools/list")
            await world.modern("/api/mcp/t/other", "tools/list", key=SECRET)
        world.apply(tasks={"ops": OPS, "other": other})
        await session.tools()
        before = scopes(world)
        world.apply(tasks={"ops": task("ops", default_server_ids=["one"]), "other": other})
        for _ in range(3):
            await session.tools()
            await world.modern("/api/mcp/t/other", "tools/list", key=SECRET)
        after = scopes(world)[len(before) :]

    assert [seen(one) for one in before] == [
        ("local", "ops", ["one.echo", "two.read"], {"denied_by_task": 1, "unknown_server": 1}),
        ("key:agent", "other", ["two.read"], {}),
    ]
    assert [seen(one) for one in after] == [("local", "ops", ["one.delete", "one.echo"], {})]
    assert len({one["scope"] for one in (*before, *after)}) == 3


async def test_a_list_is_audited_again_when_its_filters_or_its_servers_without_tools_changed() -> None:
    net = MemoryNet(one=MemoryServer(), bare=MemoryServer(tools=()))
    one, bare = record("one", allowed_tools=("*",)), record("bare", allowed_tools=("*",))
    async with open_mcp_world(net, one, tasks=(task("ops", default_server_ids=["one"]),)) as world:
        await world.modern(URL, "tools/list")
        world.apply(
            servers={"one": one},
            tasks={"ops": task("ops", default_server_ids=["one"], tool_allowlist=["e*"])},
        )
        await world.modern(URL, "tools/list")
        both = task("ops", default_server_ids=["one", "bare"], tool_allowlist=["e*"])
        world.apply(servers={"one": one, "bare": bare}, tasks={"ops": both})
        for _ in range(2):
            await world.modern(URL, "tools/list")
        events = scopes(world)

    assert len({event["scope"] for event in events}) == 1
    assert [
        (event["effective_servers"], [one["patterns"] for one in event.get("filters", ())])
        for event in events
    ] == [(["one"], []), (["one"], [["e*"]]), (["bare", "one"], [["e*"]])]


@pytest.mark.requirement("000-26", "000-43", "002-101")
async def test_a_request_that_its_task_refuses_is_audited_with_the_reason() -> None:
    async with open_mcp_world(
        net_of_two(), *records(), tasks=(task("ops", default_server_ids=["one"]),)
    ) as world:
        await world.modern(f"{URL}?servers=two", "tools/list")
        await world.modern(f"{URL}?servers=two,gone", "tools/list")
        denied = [(one.server_id, one.code, one.layer, one.rule) for one in world.audited]

    assert denied == [
        ("two", "mcp_policy_denied", "task", "task `ops` does not allow `two`"),
        ("", "mcp_policy_denied", "task", "task `ops` does not allow `gone`, `two`"),
    ]


@pytest.mark.requirement("000-04")
async def test_what_a_guest_opens_is_audited() -> None:
    def story(guest: PlayedGuest) -> None:
        for _ in range(2):
            fd = guest.call("mcp_open", "one")
            guest.received("mcp_list_tools", fd)

    config = {"default_server_ids": ["one"], "tool_denylist": ["delete"]}
    async with open_guest_world(net_of_two(), *records(), config=config) as world:
        await world.play(ALL_FUNCTIONS, lambda guest: guest.call("mcp_open", "one"), limits=WorkloadLimits())
        opened = scopes(world.world)
        await world.play(ALL_FUNCTIONS, story, limits=WorkloadLimits())
        (event,) = scopes(world.world)

    assert opened == [event]
    assert (event["door"], event["server_id"], event["task_id"]) == ("hostcall", "one", TASK)
    assert (event["offered"], event["reasons"]) == (["one.echo"], {"denied_by_task": 1})


@pytest.mark.requirement("002-077")
async def test_a_scope_is_composed_again_only_when_the_registry_changed() -> None:
    async with open_mcp_world(net_of_two(), *records(), tasks=(OPS,)) as world:
        composed = world.gateway.metrics.scope_tools.counts
        await world.modern(URL, "tools/list")  # both servers have listed their tools now
        first = sum(composed)
        for _ in range(3):
            await world.modern(URL, "tools/list")
            await world.modern(URL, "tools/call", {"name": "two.read", "arguments": {}})
        before = sum(composed)
        world.apply(tasks={"ops": task("ops", default_server_ids=["two"])})
        for _ in range(3):
            await world.modern(URL, "tools/list")

        assert (before, sum(composed)) == (first, first + 1)


async def test_calls_are_not_audited_as_offers() -> None:
    async with open_mcp_world(net_of_two(), *records(), tasks=(OPS,)) as world:
        await world.modern(URL, "tools/call", {"name": "two.read", "arguments": {}})

        assert scopes(world) == []
        assert len(world.audited) == 1


@pytest.mark.requirement("000-04")
async def test_what_a_chat_injects_is_audited() -> None:
    async with (
        scripted_model(text("one"), text("two")) as model,
        open_chat_world(
            stage(),
            record("one", allowed_tools=("*",)),
            tasks=(task("ops", default_server_ids=["one"]),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        for _ in range(2):
            await world.post(asking(toolgate={"mcp": {}}), url="/t/ops/v1/chat/completions")
        (event,) = scopes(world.world)

    assert (event["door"], event["task_id"]) == ("chat", "ops")
    assert event["offered"] == ["one.echo"]


async def test_an_event_about_a_large_scope_is_bounded_and_counts_everything() -> None:
    names = [f"tool_{n:04}_{'x' * 100}" for n in range(400)]
    net = MemoryNet(one=MemoryServer(tools=tuple(definition(name) for name in names)))
    unmatched = [f"none_{n}_{'y' * 100}" for n in range(60)]
    half = task("half", default_server_ids=["one"], tool_denylist=["tool_02*", "tool_03*", *unmatched])
    everything = record("one", allowed_tools=("*",))
    async with open_mcp_world(net, everything, tasks=(half,), limits=ScopeLimits(max_tools=1_000)) as world:
        await world.modern("/api/mcp/t/half", "tools/list")
        (event,) = scopes(world)

    assert (event["tools"], event["excluded"], event["reasons"]) == (200, 200, {"denied_by_task": 200})
    assert 10 < len(event["offered"]) < 200
    assert 10 < len(event["exclusions"]) < 200
    assert 10 < len(event["filters"][0]["patterns"]) < 60
    assert len(json.dumps(event)) < MAX_LINE_BYTES


async def test_a_caller_that_asks_for_ever_more_subsets_fills_a_bounded_memory() -> None:
    async with open_mcp_world(net_of_two(), *records()) as world:
        world.gateway.scope_audit.most = 3
        for n in range(5):
            await world.modern(f"/api/mcp?tools=one.echo,two.t{n}", "tools/list")
        await world.modern("/api/mcp?tools=one.echo,two.t4", "tools/list")
        audited, kept = len(scopes(world)), len(world.gateway.scope_audit.last)

    assert (audited, kept) == (5, 3)


async def test_a_caller_that_asks_for_ever_more_subsets_has_short_events_before_long() -> None:
    tools = tuple(definition(f"tool_{n:04}") for n in range(3 * MAX_DETAILED))
    async with open_mcp_world(
        MemoryNet(one=MemoryServer(tools=tools)), record("one", allowed_tools=("*",))
    ) as world:
        for n in range(3 * MAX_DETAILED):
            await world.modern(f"/api/mcp?tools=tool_0000,tool_{n:04}", "tools/list")
        events = scopes(world)

    short = [one for one in events if not one.get("offered")]
    assert len(events) == 3 * MAX_DETAILED
    # At most two minutes begin while this runs.
    assert len(short) >= MAX_DETAILED
    assert min(sum(one["reasons"].values()) for one in short) >= 3 * MAX_DETAILED - 2
    assert max(len(json.dumps(one)) for one in short) < 700


@pytest.mark.requirement("000-41")
async def test_the_warning_about_an_empty_scope_names_its_task(caplog: pytest.LogCaptureFixture) -> None:
    nothing = task("nothing", default_server_ids=["one"], tool_denylist=["*"])
    with caplog.at_level(logging.WARNING):
        async with open_mcp_world(net_of_two(), *records(), tasks=(nothing,)) as world:
            listed = await world.modern("/api/mcp/t/nothing", "tools/list")
            (event,) = scopes(world)

    warning = "no tool is left in the scope of task `nothing`: run `toolgate explain` for the reasons"
    assert listed.json["result"]["_meta"]["toolgate/warnings"] == [warning]
    assert [one.getMessage() for one in caplog.records] == [f"local: {warning}"]
    assert (event["tools"], event["reasons"]) == (0, {"denied_by_task": 2})
