"""Budgets over time at every door: what is used up is told there with when to come back, and is audited."""

import json
from typing import Any, Final

import pytest

from tests.registry.memory_store import MemoryQuotaLedger
from tests.surfaces.mcp.mcp_world import DAY_MS, NOON_MS, McpWorld, key, open_mcp_world, task
from tests.surfaces.mcp.test_endpoint_approvals import ONE as APPROVED_ONE
from tests.surfaces.mcp.test_endpoint_approvals import with_approvals
from tests.surfaces.mcp.test_endpoint_offers import docs, offering
from tests.surfaces.openai.chat_world import ChatWorld, asking, error_in, open_chat_world, upstream
from tests.surfaces.openai.responses_world import ALL
from tests.surfaces.openai.responses_world import URL as RESPONSES
from tests.surfaces.openai.responses_world import asking as asking_response
from tests.surfaces.rest_world import open_rest, stdio
from tests.surfaces.wasm.guest_world import PlayedGuest, open_guest_world
from tests.surfaces.wasm.test_mcp_calls import status
from tests.upstream.memory_link import MemoryNet
from tests.upstream.responses_model import ResponsesScript, say
from tests.upstream.scripted_model import calls, hang, scripted_model, text
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.principals import Quotas
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS

pytestmark = pytest.mark.anyio

EAGAIN: Final = -11
ADA: Final = "tg_ada" * 8
BEARER: Final = f"Bearer {ADA}"
USAGE: Final = {"prompt_tokens": 600, "completion_tokens": 500, "total_tokens": 1_100}
ECHO: Final = {"name": "one.echo", "arguments": {}}


def ada(**budgets: int) -> Any:
    return key("ada", ADA, budgets=Quotas(**budgets))


async def used(bank: MemoryQuotaLedger) -> dict[str, int]:
    return {f"{one.holder}: {one.budget}": one.used for one in await bank.usage()}


def outcomes(world: McpWorld) -> list[tuple[str, str, str, str]]:
    return [(one.outcome, one.code, one.layer, one.rule) for one in world.audited]


async def test_a_minute_that_is_used_up_is_busy_with_when_to_come_back_at_both_eras() -> None:
    async with open_mcp_world(MemoryNet(), keys=(ada(calls_per_minute=2),)) as world:
        modern = [await world.modern("/api/mcp", "tools/call", ECHO, key=ADA) for _ in range(3)]
        session = await world.session("/api/mcp", key=ADA)
        legacy = await session.call("one.echo")

        assert "isError" not in modern[1].json["result"]
        for refused in (modern[2], legacy):
            detail = refused.json["result"]["_meta"]["toolgate/error"]
            assert (detail["code"], detail["retryable"]) == ("mcp_busy", True)
            assert detail["data"] == {
                "budget": "calls_per_minute",
                "limit": 2,
                "holder": {"kind": "key", "id": "ada"},
                "retry_after_s": 60,
            }
        assert len(world.net["one"].calls) == 2
        assert outcomes(world)[2:] == [("denied", "mcp_busy", "key", "budgets: calls_per_minute = 2")] * 2
        assert world.gateway.metrics.budget_refusals == {"calls_per_minute": 2}


async def test_a_call_that_waits_for_a_person_takes_nothing() -> None:
    async with open_mcp_world(MemoryNet(), APPROVED_ONE, keys=(ada(calls_per_day=1),)) as world:
        approvals = with_approvals(world)
        waits = [await world.modern("/api/mcp", "tools/call", ECHO, key=ADA) for _ in range(3)]
        (waiting,) = await approvals.list()
        await approvals.decide(waiting.approval_id, is_approved=True, by="key:bob", reason="")
        passes = await world.modern("/api/mcp", "tools/call", ECHO, key=ADA)
        used_up = await world.modern("/api/mcp", "tools/call", ECHO, key=ADA)

        codes = [one.json["result"]["_meta"]["toolgate/error"]["code"] for one in (*waits, used_up)]
        assert codes == ["mcp_approval_required"] * 3 + ["budget_exceeded"]
        assert "isError" not in passes.json["result"]


async def test_results_count_as_tokens_and_a_day_s_tokens_end() -> None:
    async with open_mcp_world(MemoryNet(), keys=(ada(tokens_per_day=10),)) as world:
        bank = world.bank
        long = {"name": "one.echo", "arguments": {"text": "word " * 50}}
        first = await world.modern("/api/mcp", "tools/call", long, key=ADA)
        refused = await world.modern("/api/mcp", "tools/call", ECHO, key=ADA)

        assert "isError" not in first.json["result"]
        detail = refused.json["result"]["_meta"]["toolgate/error"]
        assert (detail["code"], detail["data"]["budget"]) == ("budget_exceeded", "tokens_per_day")
        assert (await used(bank))["key `ada`: tokens_per_day"] > 10


async def test_prompts_take_from_budgets_too_and_are_refused_by_an_error() -> None:
    net = MemoryNet(docs=offering("modern"))
    async with open_mcp_world(net, docs(), keys=(ada(calls_per_day=1),)) as world:
        await world.gateway.servers.settled(["docs"])
        greet = {"name": "docs.greet"}
        responses = [await world.modern("/api/mcp", "prompts/get", greet, key=ADA) for _ in range(2)]

        assert "result" in responses[0].json
        assert responses[1].code == -31040
        assert responses[1].json["error"]["data"]["retry_after_s"] == DAY_MS // 2000


async def test_rest_says_when_to_come_back_in_its_header_too() -> None:
    async with open_rest(MemoryNet(), quotas=MemoryQuotaLedger(lambda: NOON_MS)) as world:
        budgets = {"calls_per_minute": 2, "calls_per_day": 1}
        await world.seed(
            server=[stdio("one")],
            key=[{"key_id": "ada", "role": "agent", "sha256": hash_key(ADA), "budgets": budgets}],
        )
        first = await world.request("POST", "/api/v1/mcp/call", ECHO, key=ADA)
        refused = await world.request("POST", "/api/v1/mcp/call", ECHO, key=ADA)

        assert (first.status_code, refused.status_code) == (200, 429)
        assert refused.headers["retry-after"] == str(DAY_MS // 2000)
        assert refused.json()["error"]["data"]["retry_after_s"] == DAY_MS // 2000


async def test_an_exhausted_budget_is_the_result_of_the_models_call() -> None:
    script = (calls(("mcp__one__echo", "{}", "a"), ("mcp__one__echo", "{}", "b")), text("done"))
    async with (
        scripted_model(*script) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url),), keys=(ada(calls_per_minute=1),)
        ) as world,
    ):
        response = await world.post(asking(), authorization=BEARER)

        assert response.status == 200
        notified = error_in(model.requests[1], "b")
        assert (notified["code"], notified["retryable"]) == ("mcp_busy", True)
        assert "resets in 60 s" in notified["message"]


async def ask_twice(world: ChatWorld, body: Any, url: str) -> tuple[dict[str, int], Any]:
    """What the first took, and how the second was refused."""
    bank = world.world.bank
    first = await world.post(body, url=url, authorization=BEARER)
    assert first.status == 200, first.body
    second = await world.post(body, url=url, authorization=BEARER)
    assert second.headers["retry-after"] == str(DAY_MS // 2000)
    assert [(one.outcome, one.code) for one in world.world.audited] == [("denied", "budget_exceeded")]
    return await used(bank), (second.status, second.json["error"]["code"])


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("mode", ["inject", "passthrough"])
async def test_what_a_model_says_it_took_counts_and_a_chat_without_tokens_left_is_refused(
    mode: str, is_stream: bool
) -> None:
    body = asking(stream=is_stream, stream_options={"include_usage": True}) if is_stream else asking()
    async with (
        scripted_model(text("done", usage=USAGE)) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url, mode=mode),), keys=(ada(tokens_per_day=1_000),)
        ) as world,
    ):
        taken, refused = await ask_twice(world, body, "/v1/chat/completions")

        assert taken == {"key `ada`: tokens_per_day": 1_100}
        assert refused == (429, "budget_exceeded")
        assert len(model.requests) == 1


@pytest.mark.parametrize("mode", ["inject", "passthrough"])
async def test_requests_without_usage_are_counted_too(mode: str) -> None:
    """A model's server says what a stream took only where it is asked to. Who did not ask does not see it."""
    body = asking(stream=True, tool_choice="none")
    async with (
        scripted_model(text("done", usage=USAGE)) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url, mode=mode),), keys=(ada(tokens_per_day=1_000),)
        ) as world,
    ):
        bank = world.world.bank
        response = await world.post(body, authorization=BEARER)
        await world.world.gateway.quotas.report()

        assert model.requests[0].body["stream_options"] == {"include_usage": True}
        assert await used(bank) == {"key `ada`: tokens_per_day": 1_100}
        assert b"done" in response.body
        assert b"total_tokens" not in response.body
        assert response.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("mode", ["inject", "passthrough"])
async def test_leaving_before_the_end_is_counted_too(mode: str) -> None:
    response = hang(text("never", step=1, usage=USAGE), after=600)
    async with (
        scripted_model(response) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url, mode=mode),), keys=(ada(tokens_per_day=1_000),)
        ) as world,
    ):
        bank = world.world.bank
        stream = world.open(asking(stream=True), authorization=BEARER)
        await stream.event()
        await stream.leave()
        await world.world.gateway.quotas.report()

        (taken,) = (await used(bank)).values()
        assert 10 < taken < 200


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("tools", [(ALL,), ()])
async def test_responses_count_and_are_refused_alike(tools: tuple[Any, ...], is_stream: bool) -> None:
    body = asking_response("go", *tools, stream=is_stream) | {"tools": list(tools)}
    async with (
        scripted_model(ResponsesScript([say("done")], [say("more")])) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url),), keys=(ada(tokens_per_day=1),)
        ) as world,
    ):
        taken, refused = await ask_twice(world, body, RESPONSES)

        assert taken == {"key `ada`: tokens_per_day": 15}
        assert refused == (429, "budget_exceeded")


async def test_a_guest_gets_a_number_and_the_reason() -> None:
    def play(guest: PlayedGuest) -> Any:
        fd = guest.call("mcp_open", "one")
        guest.received("mcp_call_tool", fd, "echo", "{}")
        code, _ = guest.hostcall("mcp_call_tool", fd, "echo", "{}")
        return code, status(guest, fd)

    job = task("job", default_server_ids=["one"], budgets={"calls_per_day": 1})
    async with open_guest_world(MemoryNet()) as world:
        world.world.apply(tasks={"job": job})
        code, notified = await world.play(ALL_FUNCTIONS, play)

    assert code == EAGAIN
    assert notified["last_error"]["code"] == "budget_exceeded"
    assert f"resets in {DAY_MS // 2000} s" in json.dumps(notified)
