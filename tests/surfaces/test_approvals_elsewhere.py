"""Calls that a person must agree to, at the doors where models and guests make them."""

import json
from typing import Any, Final

import pytest

from tests.surfaces.mcp.test_endpoint_approvals import ONE, agree, with_approvals
from tests.surfaces.openai.chat_world import error_in, open_chat_world, results, upstream
from tests.surfaces.openai.responses_world import ALL, ASKED, respond
from tests.surfaces.openai.test_responses_mixed import approve, last
from tests.surfaces.wasm.guest_world import PlayedGuest, open_guest_world
from tests.surfaces.wasm.test_mcp_calls import EACCES, status
from tests.upstream.memory_link import MemoryNet
from tests.upstream.responses_model import ResponsesScript, say
from tests.upstream.responses_model import call as asks_for
from tests.upstream.scripted_model import calls, scripted_model, text
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS

pytestmark = pytest.mark.anyio

ECHO: Final = "mcp__one__echo"


async def test_a_model_gets_the_pending_approval_and_calls_again_after_it() -> None:
    script = (calls((ECHO, '{"n": 1}', "a")), text("wait"), calls((ECHO, '{"n": 1}', "b")), text("done"))
    async with (
        scripted_model(*script) as model,
        open_chat_world(MemoryNet(), ONE, upstreams=(upstream(model.url),)) as world,
    ):
        approvals = with_approvals(world.world)
        await world.chat()
        (waiting,) = await approvals.list()
        notified = error_in(model.requests[1], "a")
        await agree(approvals, waiting.approval_id)
        await world.chat()

        assert (notified["code"], notified["retryable"]) == ("mcp_approval_required", False)
        assert f"toolgate approvals approve {waiting.approval_id}" in notified["message"]
        assert waiting.question.door == "chat"
        assert results(model.requests[3]) == {"b": '{"n":1}'}
        assert world.called == ["one.echo denied", "one.echo ok"]


async def test_what_a_client_of_responses_agrees_to_waits_for_the_operators_agreement_too() -> None:
    """The client's own approval and the gateway's are two: neither means the other."""
    script = ResponsesScript(
        [asks_for(ECHO, {"n": 1})], [say("wait")], [asks_for(ECHO, {"n": 1})], [say("done")]
    )
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), ONE, upstreams=(upstream(model.url),)) as world,
    ):
        approvals = with_approvals(world.world)
        first = await respond(world, "go", ASKED)
        before = await approvals.list()
        request = last(first, "mcp_approval_request")
        second = await respond(world, [approve(request)], ASKED, previous_response_id=first["id"])
        (waiting,) = await approvals.list()
        await agree(approvals, waiting.approval_id)
        third = await respond(world, "go", ALL)

        assert before == []
        assert last(second, "mcp_call")["error"]["content"]["error"]["code"] == "mcp_approval_required"
        assert last(third, "mcp_call")["output"] == '{"n":1}'
        assert world.called == ["one.echo denied", "one.echo ok"]


async def test_a_guest_gets_a_number_and_the_reason_and_calls_again_once_it_is_approved() -> None:
    def play(guest: PlayedGuest) -> Any:
        fd = guest.call("mcp_open", "one")
        code, _ = guest.hostcall("mcp_call_tool", fd, "echo", '{"n": 1}')
        return code, status(guest, fd)

    def use(guest: PlayedGuest) -> Any:
        fd = guest.call("mcp_open", "one")
        passes = guest.received("mcp_call_tool", fd, "echo", '{"n": 1}')
        return passes, guest.hostcall("mcp_call_tool", fd, "echo", '{"n": 1}')[0]

    async with open_guest_world(MemoryNet(), ONE) as world:
        approvals = with_approvals(world.world)
        refused, notified = await world.play(ALL_FUNCTIONS, play)
        (waiting,) = await approvals.list()
        await agree(approvals, waiting.approval_id)
        passes, replayed = await world.play(ALL_FUNCTIONS, use)

    assert (refused, replayed) == (EACCES, EACCES)
    assert notified["last_error"]["code"] == "mcp_approval_required"
    assert waiting.approval_id in notified["last_error"]["message"]
    assert (waiting.question.principal, waiting.question.task_id) == ("agent", "job")
    assert json.loads(passes["content"][0]["text"]) == {"n": 1}
