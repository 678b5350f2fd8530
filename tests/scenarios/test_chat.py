"""The chat door of a real `toolgate up`, with the official client in front and a scripted model behind it.

The cases that other bridges are known to fail, each by its name, streamed and not. The model is strict: a
history that OpenAI would refuse, it refuses.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.eventually import eventually_equal
from tests.scenarios.chat import Chat, function, put_task, put_upstream, tool, user
from tests.scenarios.gateway import ROOT, Gateway, Site, running
from tests.upstream.scripted_model import Ask, Reply, ScriptedModel, calls, hold, scripted_model, text

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
REQUEST = ROOT / "docs/examples/chat/request.json"
AGENT = Path(__file__).with_name("agents_chat.py")
STREAMS = 200
OWN = function("look_up", whom="string")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With one server, and a task that sees two of its tools."""
    site = Site(tmp_path_factory.mktemp("chat"))
    site.place(site.stage("stage", budgets={"max_concurrency": STREAMS}))
    with running(site) as gateway:
        put_task(gateway, "desk", {"mcp.enabled": True, "mcp.default_server_ids": ["stage"]})
        eventually_equal(lambda: "stage.echo" in gateway.modern("/api/mcp/t/desk").tools(), expected=True)
        yield gateway


@pytest.fixture
async def chat(gateway: Gateway) -> AsyncIterator[Chat]:
    client = Chat(f"{gateway.url}/t/desk/v1")
    async with client.client:
        yield client


def echo(reply: str) -> tuple[str, str]:
    return "mcp__stage__echo", json.dumps({"text": reply})


def results(model: ScriptedModel, request: int) -> list[str]:
    """What the tools had said by the time of a request, in order."""
    return [one["content"] for one in model.requests[request].messages if one["role"] == "tool"]


@asynccontextmanager
async def script(gateway: Gateway, *replies: Reply) -> AsyncIterator[ScriptedModel]:
    """A model that says this, which the gateway has been told of."""
    async with scripted_model(*replies, strict=True) as model:
        put_upstream(gateway, model.url)
        yield model


@pytest.mark.requirement("002-002")
@both
async def test_three_rounds_of_tools_are_run_before_the_answer(
    gateway: Gateway, chat: Chat, stream: bool
) -> None:
    async with script(
        gateway, calls(echo("one")), calls(echo("two"), echo("three")), calls(echo("four")), text("All said.")
    ) as model:
        reply = await chat.request("Say them all.", stream=stream)

        assert (reply.text, reply.calls, reply.finish_reason, reply.usage) == ("All said.", [], "stop", 60)
        assert results(model, 3) == ["one", "two", "three", "four"]
        assert model.requests[0].tool_names == model.requests[3].tool_names
        assert "mcp__stage__echo" in model.requests[0].tool_names


@both
async def test_a_client_function_mixed_with_mcp_tools_goes_to_the_client_and_the_rest_is_run(
    gateway: Gateway, chat: Chat, stream: bool
) -> None:
    async with script(
        gateway, calls(echo("here"), ("look_up", '{"whom": "Ada"}')), text("Ada is here.")
    ) as model:
        first = await chat.request("Where is Ada?", stream=stream, tools=[OWN])
        [given] = first.message["tool_calls"]
        history = [user("Where is Ada?"), first.message, tool(given["id"], "in London")]
        second = await chat.request(history, stream=stream, tools=[OWN])

        assert (first.calls, first.finish_reason) == ([("look_up", '{"whom": "Ada"}')], "tool_calls")
        assert (second.text, second.finish_reason) == ("Ada is here.", "stop")
        put_back = model.requests[1].messages[1]
        assert [one["function"]["name"] for one in put_back["tool_calls"]] == ["mcp__stage__echo", "look_up"]
        assert sorted(results(model, 1)) == ["here", "in London"]


def count_calls(gateway: Gateway, tool: str) -> int:
    """How often it was called, by the audit."""
    ended = [line for line in gateway.audit.splitlines() if '"type":"call"' in line]
    return sum(f'"tool":"{tool}"' in line for line in ended)


@both
async def test_arguments_that_are_not_json_are_never_executed_and_the_model_gets_an_error(
    gateway: Gateway, chat: Chat, stream: bool
) -> None:
    before = count_calls(gateway, "pid")
    async with script(
        gateway,
        calls(("mcp__stage__complain", '{"text": "cut')),
        calls(("mcp__stage__pid", "{}")),
        text("Said."),
    ) as model:
        reply = await chat.request("Say it.", stream=stream)

        assert reply.text == "Said."
        refused, answered = results(model, 2)
        assert json.loads(refused)["error"]["code"] == "mcp_invalid_arguments"
        assert json.loads(refused)["error"]["retryable"] is True
        assert answered.isdigit()
    eventually_equal(lambda: count_calls(gateway, "pid"), before + 1)
    begun = [line for line in gateway.audit.splitlines() if '"type":"start"' in line]
    assert [line for line in begun if '"complain"' in line] == []


@both
async def test_tool_choice_required_holds_until_a_tool_was_called_and_no_longer(
    gateway: Gateway, chat: Chat, stream: bool
) -> None:
    async with script(gateway, calls(echo("once")), text("Done.")) as model:
        reply = await chat.request("Use a tool.", stream=stream, tool_choice="required")

        assert reply.text == "Done."
        assert [one.body["tool_choice"] for one in model.requests] == ["required", "auto"]


@both
async def test_what_is_ours_in_a_request_is_not_forwarded_and_the_rest_is(
    gateway: Gateway, chat: Chat, stream: bool
) -> None:
    extra = {"toolgate": {"mcp": {"tool_allowlist": ["echo"]}}, "vendor_field": {"keep": [1]}}
    async with script(gateway, text("Hello.")) as model:
        reply = await chat.request(
            "Hello?", stream=stream, metadata={"mcp.server_ids": '["stage"]', "team": "a"}, extra_body=extra
        )

        [request] = model.requests
        assert reply.text == "Hello."
        assert request.tool_names == ["mcp__stage__echo"]
        assert request.body["metadata"] == {"team": "a"}
        assert request.body["vendor_field"] == {"keep": [1]}
        assert "toolgate" not in request.raw.decode().lower()


async def test_the_request_in_the_guide_works(gateway: Gateway, chat: Chat) -> None:
    body = json.loads(REQUEST.read_text("utf-8"))
    body["toolgate"]["mcp"]["server_ids"] = ["stage"]
    async with script(gateway, calls(echo("once")), text("Said.")) as model:
        put_upstream(gateway, model.url, models=[body["model"]])
        response = await chat.client.post("/chat/completions", cast_to=httpx2.Response, body=body)

        assert '"event":"tool_finished"' in response.text
        assert response.text.endswith("data: [DONE]\n\n")
        assert len(model.requests) == 2


async def test_the_models_that_can_be_asked_are_listed(gateway: Gateway, chat: Chat) -> None:
    async with script(gateway, text("unasked")):
        listed = [model.id async for model in chat.client.models.list()]

    assert listed == ["scripted"]


async def test_two_hundred_streams_at_once_end_whole_and_each_with_its_own_words(
    gateway: Gateway, chat: Chat
) -> None:
    reply: dict[str, str | None] = {}
    all_there = asyncio.Event()

    def respond(request: Ask) -> Reply:
        last = request.messages[-1]
        if last["role"] == "user":
            return calls(echo(last["content"]))
        return hold(text(f"It said {last['content']}.", step=2), all_there, after=1)

    async def request(number: int) -> None:
        reply[f"{number}"] = (await chat.request(f"{number}", stream=True)).text

    async with scripted_model(respond, strict=True) as model, anyio.create_task_group() as tasks:
        put_upstream(gateway, model.url, max_concurrency=STREAMS)
        for number in range(STREAMS):
            tasks.start_soon(request, number)
        with anyio.fail_after(60):
            await model.asked(2 * STREAMS)
        all_there.set()

    assert reply == {f"{number}": f"It said {number}." for number in range(STREAMS)}


async def test_an_agent_of_another_library_has_its_own_functions_and_the_tools_of_the_task(
    gateway: Gateway,
) -> None:
    turn = [calls(echo("here"), ("look_up", '{"whom": "Ada"}')), calls(echo("there")), text("In London.")]
    async with script(gateway, *turn, *turn) as model:
        program = [sys.executable, str(AGENT), f"{gateway.url}/t/desk/v1", "scripted", "Where is Ada?"]
        ran = await anyio.run_process(program)

        assert json.loads(ran.stdout) == {"answers": ["In London."] * 2, "asked": ["Ada", "Ada"]}
        assert [request.is_stream for request in model.requests] == [False] * 3 + [True] * 3
        for last in (2, 5):
            assert sorted(results(model, last)) == ["Ada is in London", "here", "there"]
