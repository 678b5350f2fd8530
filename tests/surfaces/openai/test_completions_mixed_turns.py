"""Turns in which a model calls tools of the gateway and functions of the caller's at once."""

import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import key
from tests.surfaces.openai.chat_world import USER, ChatWorld, asking, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet, record
from tests.upstream.scripted_model import Ask, ScriptedModel, call, calls, scripted_model, text
from toolgate.chat.hidden_turns import ID_PREFIX, HiddenTurn, decode_hidden, encode_hidden
from toolgate.gateway.auth.signing import SEAL_LIFETIME_S, SealedIds, Signer
from toolgate.surfaces.openai.completions import PURPOSE

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
OWN = {"type": "function", "function": {"name": "own"}}
ADA, BOB = "ada-ada-ada-ada-ada-ada-ada-ada-ada", "bob-bob-bob-bob-bob-bob-bob-bob-bob"
MIXED = calls(call(ECHO, {"n": 2}, id="a"), call("own", {"x": 1}, id="b"), call("own", {"x": 2}, id="c"))


def script(request: Ask) -> Any:
    """One round of tools, then a mixed turn, then an answer."""
    if request.number == 0:
        return calls((ECHO, '{"n": 1}', "z"), content="First.")
    return MIXED if request.number == 1 else text("done")


async def hand_over(world: ChatWorld, **headers: str) -> Any:
    """The message by which the caller is handed its functions."""
    response = await world.post(asking(tools=[OWN]), **headers)
    assert response.json["choices"][0]["finish_reason"] == "tool_calls"
    return response.json["choices"][0]["message"]


def with_results(message: Any) -> list[Any]:
    results = [
        {"role": "tool", "tool_call_id": one["id"], "content": f"own {at}"}
        for at, one in enumerate(message["tool_calls"])
    ]
    return [USER, message, *results]


def shape(request: Ask) -> list[Any]:
    """Who said what to whom."""
    return [
        one["tool_call_id"]
        if one["role"] == "tool"
        else [one["role"], *[call["id"] for call in one.get("tool_calls", ())]]
        for one in request.messages
    ]


def two(model: ScriptedModel, **options: Any) -> Any:
    return open_chat_world(
        MemoryNet(),
        record("one", allowed_tools=("*",)),
        keys=(key("ada", ADA), key("bob", BOB)),
        upstreams=(upstream(model.url),),
        **options,
    )


async def test_the_hidden_half_is_put_back_when_the_caller_comes_with_its_results() -> None:
    async with (
        scripted_model(script, strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        message = await hand_over(world)
        response = await world.chat(*with_results(message), tools=[OWN])

        assert world.called == ["one.echo ok"] * 2
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["own", "own"]
    assert message["tool_calls"][1]["id"] == "c"
    assert response["choices"][0]["message"]["content"] == "done"
    sent_text = model.requests[2]
    assert shape(sent_text) == [
        ["user"],
        ["assistant", "z"],
        "z",
        ["assistant", "a", "b", "c"],
        "a",
        "b",
        "c",
    ]
    received = {one["tool_call_id"]: one["content"] for one in sent_text.messages if one["role"] == "tool"}
    assert (json.loads(received["a"]), received["b"], received["c"]) == ({"n": 2}, "own 0", "own 1")


async def test_a_turn_of_the_callers_functions_alone_keeps_its_ids() -> None:
    async with (
        scripted_model(calls(("own", "{}", "b")), text("done"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        message = await hand_over(world)
        await world.chat(*with_results(message), tools=[OWN])

    assert message["tool_calls"][0]["id"] == "b"
    assert shape(model.requests[1]) == [["user"], ["assistant", "b"], "b"]


async def test_what_was_hidden_is_for_its_principal_alone() -> None:
    async with scripted_model(script, strict=True) as model, two(model) as world:
        message = await hand_over(world, authorization=f"Bearer {ADA}")
        response = await world.post(
            asking(*with_results(message), tools=[OWN]), authorization=f"Bearer {BOB}"
        )

        assert len(world.net.servers["one"].calls) == 2
    assert response.status == 200
    sent_text = model.requests[2]
    assert b'"n"' not in sent_text.raw
    assert [len(one) if isinstance(one, list) else one for one in shape(sent_text)[2:]] == [
        shape(sent_text)[1][1],
        "c",
    ]
    assert len(shape(sent_text)[1][1]) <= 40


@pytest.mark.parametrize("is_cut", [True, False])
async def test_an_id_that_does_not_open_is_forgotten_and_nothing_is_run_again(*, is_cut: bool) -> None:
    async with (
        scripted_model(script, strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        message = await hand_over(world)
        own = message["tool_calls"][0]
        own["id"] = own["id"][:-2] if is_cut else own["id"][:-2] + "é!"
        response = await world.chat(*with_results(message), tools=[OWN])

        assert len(world.net.servers["one"].calls) == 2
    assert response["choices"][0]["message"]["content"] == "done"
    assert len(model.requests[2].messages) == 4


def test_a_sealed_turn_opens_for_its_principal_until_it_expires() -> None:
    now = 0.0
    ids = SealedIds(Signer(b"k" * 32), lambda: now, PURPOSE)
    turn = HiddenTurn(message={}, results=(("a", "1"),), own_ids=("b",))
    call_id = ids.seal(ID_PREFIX, encode_hidden(turn), principal_id="ada")
    opened = ids.open(ID_PREFIX, call_id, principal_id="ada")
    others = SealedIds(Signer(b"x" * 32), lambda: now, PURPOSE)

    assert opened is not None
    assert decode_hidden(opened) == turn
    assert ids.open(ID_PREFIX, call_id, principal_id="bob") is None
    assert others.open(ID_PREFIX, call_id, principal_id="ada") is None
    now = SEAL_LIFETIME_S + 1.0
    assert ids.open(ID_PREFIX, call_id, principal_id="ada") is None
