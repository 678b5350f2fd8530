"""Which tools a request to `/v1/responses` gets: labels, filters, choices, tasks, and what is not ours."""

import json
from typing import Any

import pytest

from tests.docs.documents import EXAMPLES
from tests.surfaces.openai.chat_world import open_chat_world, upstream
from tests.surfaces.openai.responses_world import ALL, MINE, asking, refuse, respond, shape, stream
from tests.upstream.memory_link import MemoryNet, definition, record
from tests.upstream.responses_model import ResponsesScript, call, say
from tests.upstream.scripted_model import ScriptedModel, events, scripted_model
from toolgate.model.tasks import Task
from toolgate.policy.scope import ScopeLimits

pytestmark = pytest.mark.anyio

OWN_MCP = {
    "type": "mcp",
    "server_label": "deepwiki",
    "server_url": "https://mcp.example/mcp",
    "headers": {"a": "b"},
}
RECORDS = (record("one", allowed_tools=("*",)), record("two", allowed_tools=("*",)))
READ_ONLY = {"annotations": {"readOnlyHint": True}}


def two_servers() -> MemoryNet:
    net = MemoryNet()
    net["one"].tools = (definition("echo"), definition("look", **READ_ONLY))
    net["two"].tools = (definition("echo"),)
    return net


def offered(model: ScriptedModel, number: int = 0) -> list[str]:
    return [tool.get("name", tool["type"]) for tool in model.requests[number].body.get("tools", ())]


def label(name: str, **members: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": name, "require_approval": "never", **members}


def open_two(model: ScriptedModel, **fields: Any) -> Any:
    return open_chat_world(two_servers(), *RECORDS, upstreams=(upstream(model.url, **fields),))


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([ALL], ["mcp__one__echo", "mcp__one__look", "mcp__two__echo"]),
        ([label("one")], ["mcp__one__echo", "mcp__one__look"]),
        ([label("one", allowed_tools=["look"])], ["mcp__one__look"]),
        ([label("toolgate", allowed_tools=["two.echo"])], ["mcp__two__echo"]),
        ([label("toolgate", allowed_tools=["mcp__one__echo"])], ["mcp__one__echo"]),
        ([label("toolgate", allowed_tools={"read_only": True})], ["mcp__one__look"]),
        ([label("one", allowed_tools={"read_only": False, "tool_names": ["echo"]})], ["mcp__one__echo"]),
        ([label("one", allowed_tools=[]), MINE], ["mine"]),
        ([label("one", allowed_tools=["look"]), label("two")], ["mcp__one__look", "mcp__two__echo"]),
        ([label("two"), ALL], ["mcp__one__echo", "mcp__one__look", "mcp__two__echo"]),
    ],
)
async def test_labels_and_filters_decide_what_is_offered(tools: list[Any], expected: list[str]) -> None:
    async with scripted_model(ResponsesScript([say("done")])) as model, open_two(model) as world:
        await respond(world, "go", *tools)

    assert offered(model) == expected


async def test_items_name_tools_as_their_label_does() -> None:
    script = ResponsesScript([call("mcp__one__look"), call("mcp__two__echo")], [say("done")])
    async with scripted_model(script) as model, open_two(model) as world:
        response = await respond(world, "go", label("two"), ALL)

    assert shape(response) == [
        "lists two: echo",
        "lists toolgate: one.echo one.look",
        "completed toolgate:one.look {}",
        "completed two:echo {}",
        "says done",
    ]


@pytest.mark.parametrize("name", ["three", "No Such", "hidden"])
async def test_a_label_that_is_nothing_to_the_caller_answers_like_one_that_is_nothing(name: str) -> None:
    async with scripted_model(ResponsesScript()) as model, open_two(model) as world:
        task = Task(task_id="t", config={"mcp.enabled": "true", "mcp.default_server_ids": '["one"]'})
        world.world.apply(tasks={"t": task})
        refusals = [
            (await world.post(asking("go", label(one)), url="/t/t/v1/responses")).json
            for one in (name, "two")
        ]

    assert refusals[0] == refusals[1]
    assert refusals[0]["error"]["param"] == "tools"
    assert model.requests == []


async def test_nothing_is_applied_in_part_where_one_label_is_unknown() -> None:
    async with scripted_model(ResponsesScript()) as model, open_two(model) as world:
        refused = await refuse(world, "go", label("one"), label("three"))

    assert refused["status"] == 400
    assert model.requests == []


@pytest.mark.requirement("002-003")
async def test_mcp_tools_of_the_clients_own_pass_and_open_no_connection() -> None:
    """CHT-5"""
    net = MemoryNet()
    own = {**OWN_MCP, "server_label": "toolgate"}
    async with (
        scripted_model(ResponsesScript([call("mcp__one__echo")], [say("done")])) as model,
        open_chat_world(net, upstreams=(upstream(model.url),)) as world,
    ):
        await respond(world, "go", own, {"type": "web_search"}, label("one"))

    assert model.requests[0].body["tools"][:2] == [own, {"type": "web_search"}]
    assert offered(model)[2:] == ["mcp__one__echo"]


async def test_a_request_without_anything_of_the_gateway_passes_as_it_came() -> None:
    whole = {"id": "resp_x", "object": "response", "odd": [1]}
    ended = {"type": "response.completed", "response": whole}
    async with (
        scripted_model(lambda request: events(ended)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        sent = {"model": "m", "input": "go", "tools": [OWN_MCP], "odd": {"a": 1}}
        response = await world.post({**sent, "metadata": {"mcp.enabled": "false"}}, url="/v1/responses")
        streamed = await world.post({**sent, "stream": True}, url="/v1/responses")

    assert model.requests[0].body == sent
    assert model.requests[1].raw == json.dumps({**sent, "stream": True}).encode()
    assert response.json == whole
    assert streamed.body.startswith(b"event: response.completed\ndata: ")
    assert world.net["one"].calls == []


@pytest.mark.parametrize("by", ["upstream", "request"])
async def test_passthrough_resolves_nothing(by: str) -> None:
    async with (
        scripted_model(lambda request: events({"type": "x", "response": {"id": "r"}})) as model,
        open_two(model, mode="passthrough" if by == "upstream" else "inject") as world,
    ):
        own = {} if by == "upstream" else {"toolgate": {"mode": "passthrough"}}
        response = await world.post(asking("go", ALL, **own), url="/v1/responses")

        measured = world.world.gateway.metrics.model_latency_ms

    assert response.json == {"id": "r"}
    assert model.requests[0].body["tools"] == [ALL]
    assert [sum(spread.counts) for spread in measured.values()] == [1]


async def test_a_stream_that_ends_before_it_began_is_no_answer() -> None:
    async with scripted_model(events()) as model, open_two(model, mode="passthrough") as world:
        response = await world.post(asking("go", ALL, stream=True), url="/v1/responses")

    assert (response.status, response.json["error"]["code"]) == (502, "model_unavailable")


async def test_a_task_offers_its_tools_without_an_mcp_tool_and_no_one_is_asked() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("done")])
    async with scripted_model(script) as model, open_two(model) as world:
        task = Task(task_id="t", config={"mcp.enabled": "true", "mcp.default_server_ids": '["one"]'})
        world.world.apply(tasks={"t": task})
        response = await world.post({"model": "m", "input": "go"}, url="/t/t/v1/responses")

    assert shape(response.json) == [
        "lists toolgate: one.echo one.look",
        "completed toolgate:one.echo {}",
        "says done",
    ]


@pytest.mark.parametrize(
    ("choice", "asked", "after"),
    [
        ("required", "required", "auto"),
        (
            {"type": "mcp", "server_label": "toolgate", "name": "one.echo"},
            {"type": "function", "name": "mcp__one__echo"},
            "auto",
        ),
        (
            {"type": "function", "name": "mcp.one.echo"},
            {"type": "function", "name": "mcp__one__echo"},
            "auto",
        ),
        (
            {"type": "mcp", "server_label": "toolgate"},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [
                    {"type": "function", "name": "mcp__one__echo"},
                    {"type": "function", "name": "mcp__one__look"},
                    {"type": "function", "name": "mcp__two__echo"},
                ],
            },
            None,
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "mine"},
                    {"type": "mcp", "server_label": "toolgate", "name": "echo"},
                ],
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "mine"},
                    {"type": "function", "name": "mcp__one__echo"},
                    {"type": "function", "name": "mcp__two__echo"},
                ],
            },
            None,
        ),
    ],
)
async def test_a_choice_of_mcp_tools_is_one_of_functions_and_reset_once_obeyed(
    choice: Any, asked: Any, after: Any
) -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("done")])
    async with scripted_model(script) as model, open_two(model) as world:
        response = await respond(world, "go", ALL, MINE, tool_choice=choice)

    second = model.requests[1].body["tool_choice"]
    assert model.requests[0].body["tool_choice"] == asked
    assert second == (after or {**asked, "mode": "auto"})
    assert response["tool_choice"] == choice


async def test_no_tool_is_offered_where_none_is_to_be_called() -> None:
    async with scripted_model(ResponsesScript([say("done")])) as model, open_two(model) as world:
        response = await respond(world, "go", ALL, MINE, tool_choice="none")

    assert shape(response) == ["says done"]
    assert offered(model) == ["mine"]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"background": True}, "background"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"max_tool_calls": "3"}, "max_tool_calls"),
        ({"tool_choice": {"type": "mcp", "server_label": "toolgate", "name": "no"}}, "tool_choice"),
        ({"tools": [ALL, ALL]}, "tools"),
        ({"tools": [{"type": "mcp", "server_label": 5}]}, "tools[0]"),
        ({"tools": {}}, "tools"),
        ({"input": 5}, "input"),
        ({"toolgate": {"mcp": {"enabled": False}}}, "tools"),
        ({"toolgate": {"such": 1}}, "toolgate.such"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_the_shape_clients_know(members: Any, param: str) -> None:
    async with scripted_model(ResponsesScript()) as model, open_two(model) as world:
        response = await world.post(asking() | members, url="/v1/responses")

    assert (response.status, response.json["error"]["param"]) == (400, param)
    assert model.requests == []


async def test_the_calls_of_a_request_end_at_the_number_it_allows() -> None:
    script = ResponsesScript(
        [call("mcp__one__echo", {"n": 1}), call("mcp__one__echo", {"n": 2})],
        [call("mcp__one__echo", {"n": 3})],
    )
    async with scripted_model(script) as model, open_two(model) as world:
        response = await respond(world, "go", ALL, max_tool_calls=1)
        called = world.called

    sent_text = shape(response)[1:]
    assert sent_text[:2] == ['completed toolgate:one.echo {"n": 1}', 'failed toolgate:one.echo {"n": 2}']
    assert len(sent_text) == 3
    assert sent_text[2].startswith("says ")
    assert response["status"] == "completed"
    assert response["toolgate"] == {"stopped": "call_limit"}
    assert model.requests[1].body["tool_choice"] == "none"
    assert sorted(called) == ["one.echo denied", "one.echo ok"]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_tool_that_is_not_there_is_answered_and_audited(is_stream: bool) -> None:
    """CHT-1, CHT-7"""
    script = ResponsesScript([call("mcp__two__echo"), call("nothing")], [say("done")])
    async with scripted_model(script) as model, open_two(model) as world:
        request = stream if is_stream else respond
        received = await request(world, "go", label("one"))
        response = received.response if is_stream else received
        called = world.called

    assert shape(response)[1:] == [
        "failed toolgate:mcp__two__echo {}",
        "failed toolgate:nothing {}",
        "says done",
    ]
    assert not [one for one in called if one.endswith("ok")]
    assert len(called) == 2


async def test_many_tools_are_found_and_those_named_are_offered_themselves() -> None:
    """Tools that are too many to list are found, unless the request names few enough of them."""
    limits = ScopeLimits(max_tools=2, on_too_many="find")
    async with (
        scripted_model(ResponsesScript([say("a")], [call("mcp__one__look")], [say("b")])) as model,
        open_chat_world(two_servers(), *RECORDS, upstreams=(upstream(model.url),), limits=limits) as world,
    ):
        await respond(world)
        response = await respond(world, "go", label("toolgate", allowed_tools=["look"]))
        refused = await refuse(world, "go", label("one"), label("two"))

    assert sorted(offered(model)) == ["call_tool", "describe_tool", "search_tools"]
    assert offered(model, 1) == ["mcp__one__look"]
    assert "completed toolgate:one.look {}" in shape(response)
    assert refused["code"] == "too_many_tools"


async def test_a_tool_that_waits_for_approval_is_not_called_by_another_name() -> None:
    approval = {"always": {"tool_names": ["look"]}}
    limits = ScopeLimits(max_tools=2, on_too_many="find")
    found = call("call_tool", {"name": "one.look", "arguments": {}})
    async with (
        scripted_model(ResponsesScript([call("describe_tool", {"name": "one.look"}), found])) as model,
        open_chat_world(two_servers(), *RECORDS, upstreams=(upstream(model.url),), limits=limits) as world,
    ):
        response = await respond(world, "go", label("toolgate", require_approval=approval))
        called = world.called

    assert response["output"][-1]["type"] == "mcp_approval_request"
    assert called == [".describe_tool ok"]


async def test_only_functions_pass_where_the_upstream_refuses_other_tools() -> None:
    """CHT-5"""
    async with (
        scripted_model(ResponsesScript([say("done")])) as model,
        open_two(model, other_tools="refuse") as world,
    ):
        refused = await refuse(world, "go", OWN_MCP)
        response = await respond(world, "go", ALL, MINE)

    assert (refused["status"], refused["param"]) == (400, "tools")
    assert "'mcp'" in refused["message"]
    assert shape(response)[-1] == "says done"


async def test_on_request_the_response_says_why_its_tools_are_what_they_are() -> None:
    async with scripted_model(ResponsesScript([say("a")], [say("b")])) as model, open_two(model) as world:
        response = await respond(world, "go", label("one"), toolgate={"explain": True})
        streamed = await stream(world, "go", label("one"), toolgate={"explain": True})

    explained = response["toolgate"]["explain"]
    assert (response["toolgate"]["rounds"], response["toolgate"]["tool_calls"]) == (0, 0)
    assert explained["servers"] == ["one"]
    assert {one["tool"] for one in explained["decisions"] if one["allowed"] and one["tool"]} == {
        "echo",
        "look",
    }
    assert streamed.response["toolgate"]["explain"]["servers"] == ["one"]
    assert "toolgate" not in model.requests[0].body


async def test_calls_are_audited_and_replies_counted() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("done")])
    async with scripted_model(script) as model, open_two(model) as world:
        await respond(world)
        metrics = world.world.gateway.metrics
        audited = world.world.audited

    assert [(one.door, one.tool) for one in audited] == [("responses", "echo")]
    assert metrics.chats == {("main", "answered"): 1}
    assert metrics.injections == {("one", "success"): 1, ("two", "success"): 1}
    assert sum(metrics.model_latency_ms["main"].counts) == 2


async def test_the_requests_of_the_guide_do_what_it_says() -> None:
    first, second = (
        json.loads((EXAMPLES / "chat" / f"{name}.json").read_text()) for name in ("responses", "approval")
    )
    net = MemoryNet()
    net["notes"].tools = (definition("search_notes"), definition("archive_note"), definition("forget"))
    script = ResponsesScript(
        [call("mcp__notes__search_notes"), call("mcp__notes__archive_note")], [say("done")]
    )
    async with (
        scripted_model(script) as model,
        open_chat_world(
            net, record("notes", allowed_tools=("*",)), upstreams=(upstream(model.url),)
        ) as world,
    ):
        asked = (await world.post(first, url="/v1/responses")).json
        second["previous_response_id"] = asked["id"]
        second["input"][0]["approval_request_id"] = asked["output"][-1]["id"]
        done = (await world.post(second, url="/v1/responses")).json

    assert shape(asked) == [
        "lists notes: archive_note search_notes",
        "completed notes:search_notes {}",
        "approval notes:archive_note {}",
    ]
    assert shape(done)[1:] == ["completed notes:archive_note {}", "says done"]
