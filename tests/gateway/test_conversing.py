"""A conversation driven without a door: what the loop decides is done, and nothing else."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.surfaces.mcp.house import House, open_house
from tests.upstream.memory_link import MemoryNet, record
from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.tool_calls import ToolCall
from toolgate.chat.tool_loop import AskModel, RunTool, ToolLoop
from toolgate.errors import ModelTimedOut, ModelUnavailable, NotReady
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.chat.tool_loop import (
    ChatContext,
    Dialogue,
    DialogueOutcome,
    ModelTurn,
    ToolEvent,
    run_dialogue,
    run_tools,
)
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.chat import ChatBudgets

pytestmark = pytest.mark.anyio

NAMES = {"echo": "one.echo"}


class Played:
    """A model that says what it is told to, and the history it would have."""

    def __init__(self, *replies: ModelTurn | Exception) -> None:
        self._replies = list(replies)
        self.asked: list[AskModel] = []
        self.results: list[tuple[str, str]] = []

    async def ask(self, action: AskModel) -> ModelTurn:
        self.asked.append(action)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def answer(self, call: ToolCall, content: str) -> None:
        self.results.append((call.call_id, content))


def calling(*names: str) -> ModelTurn:
    calls = [ToolCall(call_id=f"{name}{at}", name=name, arguments="{}") for at, name in enumerate(names)]
    return ModelTurn(tuple(calls), has_text=False)


SAID = ModelTurn((), has_text=True)


def errand(*, left_s: float = 10.0, **fields: Any) -> ChatContext:
    return ChatContext(
        caller=Caller(LOCAL_ADMIN),
        budgets=ChatBudgets(),
        trace=Trace("chat", request_id="r1"),
        deadline_s=asyncio.get_running_loop().time() + left_s,
        **fields,
    )


async def drive(
    house: House, played: Played, *, own: Sequence[str] = (), left_s: float = 10.0
) -> DialogueOutcome:
    await house.gateway.wait_for_view(Caller(LOCAL_ADMIN))
    loop = ToolLoop(names=NAMES, own=frozenset(own), budgets=ChatBudgets(), choice=ToolChoice())
    talk = Dialogue(loop=loop, history=played, ask=played.ask, errand=errand(left_s=left_s))
    return await run_dialogue(house.gateway, talk)


async def test_it_asks_and_runs_until_there_is_an_answer() -> None:
    played = Played(calling("echo", "nope"), SAID)
    async with open_house(MemoryNet()) as house:
        outcome = await drive(house, played)

        assert [(one.tool, one.outcome, one.request_id) for one in house.audited] == [
            ("nope", "denied", "r1"),
            ("echo", "ok", "r1"),
        ]
    assert (outcome.finish.reason, outcome.handed) == ("answered", ())
    assert [name for name, _ in played.results] == ["echo0", "nope1"]
    assert json.loads(played.results[1][1])["error"]["code"] == "unknown_tool"


async def test_it_hands_over_what_is_the_callers_own_and_asks_no_more() -> None:
    played = Played(calling("echo", "own"))
    async with open_house(MemoryNet()) as house:
        outcome = await drive(house, played, own=["own"])

    assert (outcome.finish.reason, [one.name for one in outcome.handed]) == ("client_calls", ["own"])
    assert [name for name, _ in played.results] == ["echo0"]


@pytest.mark.parametrize("failure", [ModelUnavailable("gone"), ModelTimedOut("silent")])
async def test_what_asking_raises_is_raised_while_there_is_time(failure: Exception) -> None:
    async with open_house(MemoryNet()) as house:
        with pytest.raises(type(failure)):
            await drive(house, Played(failure))


async def test_a_model_is_not_asked_when_there_is_no_time() -> None:
    played = Played(SAID)
    async with open_house(MemoryNet()) as house:
        outcome = await drive(house, played, left_s=-1.0)

    assert (outcome.finish.reason, played.asked) == ("time_limit", [])
    assert outcome.finish.closing


async def test_whoever_may_see_nothing_any_more_has_no_tool_either() -> None:
    run = RunTool(call=ToolCall(call_id="a", name="echo", arguments="{}"), name="one.echo", arguments=b"{}")
    async with open_house(MemoryNet(), record("one", allowed_tools=("*",))) as house:
        house.gateway.suspend(lambda: NotReady("not now"))
        ((_, content),) = await run_tools(house.gateway, errand(), [run])

        assert not house.net.servers["one"].calls
    assert json.loads(content)["error"]["code"] == "not_ready"


async def test_those_who_follow_hear_of_each_call() -> None:
    heard: list[ToolEvent] = []

    async def on_event(event: ToolEvent) -> None:
        heard.append(event)

    run = RunTool(call=ToolCall(call_id="a", name="echo", arguments="{}"), name="one.echo", arguments=b"{}")
    async with open_house(MemoryNet()) as house:
        await house.gateway.wait_for_view(Caller(LOCAL_ADMIN))
        await run_tools(house.gateway, errand(on_event=on_event), [run])

    assert [(one.event, one.call_id, one.tool, one.ok) for one in heard] == [
        ("tool_started", "a", "one.echo", None),
        ("tool_finished", "a", "one.echo", True),
    ]
