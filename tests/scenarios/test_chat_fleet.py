"""Chats over several nodes: what one has begun another goes on with, and none keeps anything for it."""

import json
from collections.abc import Iterator

import pytest

from tests.scenarios.chat import MODEL, Chat, function, tool, user
from tests.scenarios.fleet import Fleet, open_fleet
from tests.upstream.scripted_model import calls, scripted_model, text

pytestmark = pytest.mark.anyio

OWN = function("look_up", whom="string")
TASK = {"mcp.enabled": True, "mcp.default_server_ids": ["remote"]}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One control and two nodes, and a task."""
    with open_fleet(tmp_path_factory.mktemp("fleet"), None, controls=1, nodes=2) as fleet:
        config = {name: json.dumps(value) for name, value in TASK.items()}
        fleet.reaches_all(fleet.put("/admin/api/tasks/desk", {"task_id": "desk", "config": config}))
        yield fleet


def open_chats(fleet: Fleet, secret: str) -> list[Chat]:
    """A client at each node, all with one key."""
    return [Chat(f"{node.gateway.url}/t/desk/v1", key=secret) for node in fleet.nodes]


async def register(fleet: Fleet, url: str) -> None:
    body = {"upstream_id": "scripted", "base_url": url, "models": [MODEL]}
    fleet.reaches_all(fleet.put("/admin/api/chat-upstreams/scripted", body))


async def test_a_mixed_turn_begun_at_one_node_goes_on_at_another(fleet: Fleet) -> None:
    secret = fleet.make_key("ada", role="agent")
    echo = ("mcp__remote__echo", '{"text": "from here"}')
    async with scripted_model(
        calls(echo, ("look_up", '{"whom": "Ada"}')), text("Ada is here."), strict=True
    ) as model:
        await register(fleet, model.url)
        here, there = open_chats(fleet, secret)
        async with here.client, there.client:
            first = await here.request("Where is Ada?", tools=[OWN])
            [given] = first.message["tool_calls"]
            history = [user("Where is Ada?"), first.message, tool(given["id"], "in London")]
            second = await there.request(history, stream=True, tools=[OWN])

        assert first.calls == [("look_up", '{"whom": "Ada"}')]
        assert second.text == "Ada is here."
        put_back = [one["content"] for one in model.requests[1].messages if one["role"] == "tool"]
        assert put_back == ["from here", "in London"]


async def test_what_was_hidden_for_one_principal_is_not_put_back_for_another(fleet: Fleet) -> None:
    secrets = [fleet.make_key(name, role="agent") for name in ("bob", "eve")]
    echo = ("mcp__remote__echo", '{"text": "for bob alone"}')
    async with scripted_model(
        calls(echo, ("look_up", '{"whom": "Bob"}')), text("I know nothing."), strict=True
    ) as model:
        await register(fleet, model.url)
        bobs, eves = open_chats(fleet, secrets[0])[0], open_chats(fleet, secrets[1])[1]
        async with bobs.client, eves.client:
            first = await bobs.request("Where is Bob?", tools=[OWN])
            [given] = first.message["tool_calls"]
            stolen = [user("Where is Bob?"), first.message, tool(given["id"], "in London")]
            second = await eves.request(stolen, tools=[OWN])

        assert second.text == "I know nothing."
        assert "for bob alone" not in model.requests[1].raw.decode()
        [called] = model.requests[1].messages[1]["tool_calls"]
        assert called["function"]["name"] == "look_up"
