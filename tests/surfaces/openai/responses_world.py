"""What tests of `/v1/responses` ask, and what they see: every reply and event is taken strictly."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.surfaces.openai.chat_world import ChatWorld

URL = "/v1/responses"
ALL: dict[str, Any] = {"type": "mcp", "server_label": "toolgate", "require_approval": "never"}
ASKED: dict[str, Any] = {"type": "mcp", "server_label": "toolgate"}
MINE: dict[str, Any] = {"type": "function", "name": "mine", "parameters": {}, "strict": False}
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_ENDINGS = ("response.completed", "response.incomplete", "response.failed")


def asking(sent: Any = "go", *tools: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "input": sent, "tools": list(tools or (ALL,)), **members}


async def respond(world: ChatWorld, sent: Any = "go", *tools: Any, **members: Any) -> Any:
    """A response, whole."""
    response = await world.post(asking(sent, *tools, **members), url=URL)
    assert response.status == 200, response.body
    Response.model_validate_json(response.body, strict=True)
    return response.json


async def refuse(world: ChatWorld, sent: Any = "go", *tools: Any, **members: Any) -> Any:
    """The error of a request that is refused."""
    response = await world.post(asking(sent, *tools, **members), url=URL)
    assert response.status >= 400, response.body
    return {"status": response.status, **response.json["error"]}


async def stream(world: ChatWorld, sent: Any = "go", *tools: Any, **members: Any) -> "Streamed":
    """A response, as its events."""
    response = await world.post(asking(sent, *tools, stream=True, **members), url=URL)
    assert response.status == 200, response.body
    return Streamed(response.body)


class Streamed:
    """A whole stream that is as every one has to be."""

    def __init__(self, body: bytes) -> None:
        self.events = []
        for one in body.decode().split("\n\n"):
            if one and not one.startswith(":"):
                name, data = one.split("\n")
                event = json.loads(data.removeprefix("data: "))
                _EVENT.validate_json(data.removeprefix("data: "), strict=True)
                assert name == f"event: {event['type']}"
                self.events.append(event)
        self._check()

    @property
    def types(self) -> list[str]:
        return [one["type"].removeprefix("response.") for one in self.events]

    @property
    def response(self) -> Any:
        return self.events[-1]["response"]

    @property
    def text(self) -> str:
        return "".join(one["delta"] for one in self.events if one["type"] == "response.output_text.delta")

    def _check(self) -> None:
        events = self.events
        assert [one["sequence_number"] for one in events] == list(range(len(events)))
        assert [one["type"] for one in events[:2]] == ["response.created", "response.in_progress"]
        assert [one["type"] in _ENDINGS for one in events] == [False] * (len(events) - 1) + [True]
        assert len({one["response"]["id"] for one in events if "response" in one}) == 1
        added = [one["output_index"] for one in events if one["type"] == "response.output_item.added"]
        assert sorted(added) == list(range(len(added)))
        done = {
            one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.done"
        }
        assert [done[index] for index in sorted(done)] == self.response["output"]


def shape(response: Any) -> list[str]:
    """The items of a response in short."""
    return [_short(item) for item in response["output"]]


def _short(item: Any) -> str:
    match item["type"]:
        case "message":
            return "says " + "".join(part.get("text", "") for part in item["content"])
        case "mcp_list_tools":
            return f"lists {item['server_label']}: {' '.join(tool['name'] for tool in item['tools'])}"
        case "mcp_call":
            return f"{item['status']} {item['server_label']}:{item['name']} {item['arguments']}"
        case "mcp_approval_request":
            return f"approval {item['server_label']}:{item['name']} {item['arguments']}"
        case "function_call":
            return f"hands {item['name']} {item['arguments']}"
    return str(item["type"])
