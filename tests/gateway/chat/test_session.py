"""A chat without an endpoint: the session does what the loop decides, and nothing else."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world
from tests.upstream.memory_link import MemoryNet, record
from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.tool_calls import ToolCall
from toolgate.chat.tool_loop import PromptModel, RunTool, ToolLoop
from toolgate.errors import ModelTimedOut, ModelUnavailable, NotReady
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import ChatContext, ChatOutcome, ChatSession, ModelTurn, ToolEvent
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.chat import ChatBudgets, ChatUpstream
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import Models

pytestmark = pytest.mark.anyio

NAMES = {"echo": "one.echo"}
UPSTREAM = ChatUpstream(upstream_id="main", base_url="http://127.0.0.1:9", models=("*",))
SCOPE = ChatScope(
    upstream=UPSTREAM,
    model="m",
    caller=Caller(LOCAL_ADMIN),
    mode="inject",
    budgets=ChatBudgets(),
    injects=True,
)
RUN = RunTool(call=ToolCall(call_id="a", name="echo", arguments="{}"), name="one.echo", arguments=b"{}")


class ScriptedSession(ChatSession):
    """A session whose model follows a script."""

    def __init__(
        self,
        world: McpWorld,
        *turns: ModelTurn | Exception,
        own: Sequence[str] = (),
        left_s: float = 10.0,
    ) -> None:
        world.apply(chat_upstreams={"main": UPSTREAM})
        context = ChatContext(
            gateway=world.gateway,
            models=Models(Secrets({}, None), Egress(allow_private=True)),
            scope=SCOPE,
            trace=Trace("chat", request_id="r1"),
            deadline_s=asyncio.get_running_loop().time() + left_s,
        )
        loop = ToolLoop(names=NAMES, own=frozenset(own), budgets=ChatBudgets(), choice=ToolChoice())
        super().__init__(context, loop)
        self._turns = list(turns)
        self.prompts: list[PromptModel] = []
        self.results: list[tuple[str, str]] = []
        self.events: list[ToolEvent] = []

    async def prompt(self, action: PromptModel) -> ModelTurn:
        self.prompts.append(action)
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn

    def add_result(self, call: ToolCall, content: str) -> None:
        self.results.append((call.call_id, content))

    async def on_tool_event(self, event: ToolEvent) -> None:
        self.events.append(event)


def calling(*names: str) -> ModelTurn:
    calls = [ToolCall(call_id=f"{name}{at}", name=name, arguments="{}") for at, name in enumerate(names)]
    return ModelTurn(tuple(calls), has_text=False)


TEXT = ModelTurn((), has_text=True)


async def run(world: McpWorld, session: ScriptedSession) -> ChatOutcome:
    await world.gateway.wait_for_view(Caller(LOCAL_ADMIN))
    return await session.run()


async def test_it_prompts_and_runs_tools_until_the_model_answers() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        session = ScriptedSession(world, calling("echo", "nope"), TEXT)
        outcome = await run(world, session)

        assert [(one.tool, one.outcome, one.request_id) for one in world.audited] == [
            ("nope", "denied", "r1"),
            ("echo", "ok", "r1"),
        ]
    assert (outcome.finish.reason, outcome.handed) == ("answered", ())
    assert [name for name, _ in session.results] == ["echo0", "nope1"]
    assert json.loads(session.results[1][1])["error"]["code"] == "unknown_tool"


async def test_it_hands_over_calls_of_the_clients_own_functions_and_ends() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        session = ScriptedSession(world, calling("echo", "own"), own=["own"])
        outcome = await run(world, session)

    assert (outcome.finish.reason, [one.name for one in outcome.handed]) == ("client_calls", ["own"])
    assert [name for name, _ in session.results] == ["echo0"]


@pytest.mark.parametrize("failure", [ModelUnavailable("gone"), ModelTimedOut("silent")])
async def test_errors_of_prompting_are_raised_before_the_deadline(failure: Exception) -> None:
    async with open_mcp_world(MemoryNet()) as world:
        with pytest.raises(type(failure)):
            await run(world, ScriptedSession(world, failure))


async def test_a_model_is_not_prompted_after_the_deadline() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        session = ScriptedSession(world, TEXT, left_s=-1.0)
        outcome = await run(world, session)

    assert (outcome.finish.reason, session.prompts) == ("time_limit", [])
    assert outcome.finish.closing


async def test_a_caller_without_a_scope_has_no_tool() -> None:
    async with open_mcp_world(MemoryNet(), record("one", allowed_tools=("*",))) as world:
        session = ScriptedSession(world)
        world.gateway.suspend(lambda: NotReady("not now"))
        ((_, content),) = await session.run_tools([RUN])

        assert not world.net.servers["one"].calls
    assert json.loads(content)["error"]["code"] == "not_ready"


async def test_a_session_is_notified_when_a_call_starts_and_ends() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        session = ScriptedSession(world)
        await world.gateway.wait_for_view(Caller(LOCAL_ADMIN))
        await session.run_tools([RUN])

    assert [(one.event, one.call_id, one.tool, one.ok) for one in session.events] == [
        ("tool_started", "a", "one.echo", None),
        ("tool_finished", "a", "one.echo", True),
    ]
