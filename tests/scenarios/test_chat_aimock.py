"""The chat door before a model server that we have not written: what it gets is what OpenAI's API takes.

Every reply that the official client gets is held strictly against that client's own types.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai.types.responses import Response

from tests.eventually import eventually_equal
from tests.scenarios.aimock import Aimock, calls, open_aimock, says
from tests.scenarios.chat import MODEL, Chat, function, put_task, put_upstream, tool, user
from tests.scenarios.gateway import Gateway, Json, Site, running

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
KEY = "sk-only-for-the-model"
OWN = function("paint", colour="string")


def echo(reply: str) -> tuple[str, Json]:
    return "mcp__stage__echo", {"text": reply}


SCRIPT = [
    *says(
        "climb", calls(echo("first")), calls(echo("second")), calls(echo("third")), {"content": "At the top."}
    ),
    *says("all at once", calls(echo("a"), echo("b"), echo("c")), {"content": "a, b and c."}),
    *says("paint it", calls(echo("ready"), ("paint", {"colour": "blue"})), {"content": "It is blue."}),
    *says("just talk", {"content": "Of tools and gateways, and what connects them."}),
]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with open_aimock(tmp_path_factory.mktemp("aimock"), SCRIPT, key=KEY) as mock:
        yield mock


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, aimock: Aimock) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("chat"))
    site.place(site.stage("stage", "tools=echo"))
    with running(site, environ={"MODEL_KEY": KEY}) as gateway:
        put_task(gateway, "desk", {"mcp.enabled": True, "mcp.default_server_ids": ["stage"]})
        put_upstream(gateway, f"{aimock.url}/v1", auth_ref="MODEL_KEY")
        eventually_equal(lambda: gateway.modern("/api/mcp/t/desk").tools(), ["stage.echo"])
        yield gateway


@pytest.fixture
async def chat(gateway: Gateway) -> AsyncIterator[Chat]:
    client = Chat(f"{gateway.url}/t/desk/v1")
    async with client.client:
        yield client


def history(body: Json) -> list[tuple[str, object]]:
    """The messages of a request: who, and what was said or called."""
    return [
        (one["role"], [each["function"]["name"] for each in one.get("tool_calls") or []] or one["content"])
        for one in body["messages"]
    ]


@both
async def test_an_independent_model_is_led_through_three_rounds(
    aimock: Aimock, chat: Chat, stream: bool
) -> None:
    before = len(aimock.asked())
    reply = await chat.request("climb", stream=stream)

    assert (reply.text, reply.calls, reply.finish_reason) == ("At the top.", [], "stop")
    asked = aimock.asked()[before:]
    assert history(asked[-1]) == [
        ("user", "climb"),
        ("assistant", ["mcp__stage__echo"]),
        ("tool", "first"),
        ("assistant", ["mcp__stage__echo"]),
        ("tool", "second"),
        ("assistant", ["mcp__stage__echo"]),
        ("tool", "third"),
    ]
    assert [len(history(one)) for one in asked] == [1, 3, 5, 7]


@both
async def test_parallel_calls_are_answered_each_once_and_in_order(
    aimock: Aimock, chat: Chat, stream: bool
) -> None:
    reply = await chat.request("all at once", stream=stream)

    assert reply.text == "a, b and c."
    assert history(aimock.asked()[-1])[1:] == [
        ("assistant", ["mcp__stage__echo"] * 3),
        ("tool", "a"),
        ("tool", "b"),
        ("tool", "c"),
    ]


@both
async def test_a_function_of_the_client_is_handed_over_and_taken_up_again(
    aimock: Aimock, chat: Chat, stream: bool
) -> None:
    first = await chat.request("paint it", stream=stream, tools=[OWN])
    [given] = first.message["tool_calls"]
    messages = [user("paint it"), first.message, tool(given["id"], "painted")]
    second = await chat.request(messages, stream=stream, tools=[OWN])

    assert first.calls == [("paint", '{"colour":"blue"}')]
    assert (second.text, second.finish_reason) == ("It is blue.", "stop")
    assert history(aimock.asked()[-1]) == [
        ("user", "paint it"),
        ("assistant", ["mcp__stage__echo", "paint"]),
        ("tool", "ready"),
        ("tool", "painted"),
    ]


@both
async def test_the_journal_shows_nothing_of_ours_and_all_of_theirs(
    aimock: Aimock, chat: Chat, stream: bool
) -> None:
    own_fields = {"toolgate": {"mcp": {"server_ids": ["stage"]}, "progress": True}}
    reply = await chat.request(
        "just talk",
        stream=stream,
        seed=7,
        metadata={"mcp.enabled": "true", "team": "a"},
        extra_body=own_fields,
    )

    asked, headers = aimock.asked()[-1], aimock.headers()[-1]
    streaming: Json = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    offered = asked.pop("tools")
    assert reply.text == "Of tools and gateways, and what connects them."
    assert asked == {
        "model": MODEL,
        "messages": [user("just talk")],
        "seed": 7,
        "metadata": {"team": "a"},
        **streaming,
    }
    assert [one["function"]["name"] for one in offered] == ["mcp__stage__echo"]
    assert [one["function"]["strict"] for one in offered] == [False]
    assert [name for name in headers if "toolgate" in name.lower()] == []


@both
async def test_the_responses_of_an_independent_model_are_led_through_three_rounds(
    chat: Chat, stream: bool
) -> None:
    """The same script in the newer form: the official client puts the events together itself."""
    create: Any = chat.client.responses
    asking = {"model": MODEL, "input": "climb"}
    if stream:
        async with create.stream(**asking) as events:
            response = await events.get_final_response()
    else:
        raw = await create.with_raw_response.create(**asking)
        response = Response.model_validate_json(raw.text, strict=True)

    assert response.output_text == "At the top."
    calls_made = [one for one in response.output if one.type == "mcp_call"]
    assert [(one.name, one.status, one.output) for one in calls_made] == [
        ("stage.echo", "completed", reply) for reply in ("first", "second", "third")
    ]
