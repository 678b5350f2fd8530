"""A model's server that speaks the Responses API and is strict about it, for `scripted_model`.

    script = ResponsesScript([call("mcp__one__echo", '{"n": 1}')], [say("done")])
    async with scripted_model(script) as model: ...

One list of items a request. Responses are stored, so that `previous_response_id` and `conversation` go on
from them. It refuses with 400, as OpenAI does: calls without outputs and outputs without calls, items and
tools that are not its own to know, ids that are too long.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.upstream.model_replies import Ask, Reply, Wire, encode, events, status
from tests.upstream.strict_history import refusal

USAGE: Final[Mapping[str, Any]] = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}
MAX_ID: Final = 64
_KNOWN: Final = ("message", "function_call", "reasoning", "custom_tool_call")
Item = dict[str, Any]


def say(text: str, **members: Any) -> Item:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **members}


def call(name: str, arguments: Any = "{}", **members: Any) -> Item:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "status": "completed", "name": name, "arguments": text, **members}


def reason() -> Item:
    return {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}


class ResponsesScript:
    """A function of the request, as `scripted_model` takes it."""

    def __init__(self, *turns: Sequence[Item] | Reply, ending: str = "completed", **members: Any) -> None:
        """`members` are of every response; `ending` is how the last one ends."""
        self._turns = turns
        self._ending = ending
        self._members = members
        self._stored: dict[str, list[Item]] = {}

    def __call__(self, request: Ask) -> Reply:
        body = request.body
        kept = body.get("conversation") or body.get("previous_response_id")
        if body.get("previous_response_id") and kept not in self._stored:
            return status(400, refusal("Previous response not found.", "previous_response_id"))
        context = [*self._stored.get(kept, ()), *_items(body["input"])]
        fault = next(_faults(body, context), None)
        if fault is not None:
            return status(400, refusal(fault, "input"))
        turn = self._turns[request.number]
        if callable(turn):
            return turn
        is_last = request.number == len(self._turns) - 1
        response = self._response(request, turn, self._ending if is_last else "completed")
        self._stored[response["id"]] = [*context, *response["output"]]
        if body.get("conversation"):
            self._stored[body["conversation"]] = self._stored[response["id"]]
        return lambda request: _wire(request, response)

    def _response(self, request: Ask, turn: Sequence[Item], ending: str) -> Item:
        output = []
        for place, item in enumerate(turn):
            ids = {"id": f"{item['type'][:3]}_{request.number}_{place}"}
            if item["type"] in ("function_call", "custom_tool_call"):
                ids["call_id"] = f"call_{request.number}_{place}"
            output.append({**ids, **item})
        return {
            "id": f"resp_{request.number}",
            "object": "response",
            "created_at": 1_790_000_000,
            "status": ending,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if ending == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "model": request.body["model"],
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": request.body.get("previous_response_id"),
            "temperature": 1.0,
            "tool_choice": request.body.get("tool_choice", "auto"),
            "tools": request.body.get("tools", []),
            "usage": USAGE,
            **self._members,
        }


def _wire(request: Ask, response: Item) -> Wire:
    if not request.is_stream:
        return Wire([encode(response)])
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    return events(
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for index, item in enumerate(response["output"]) for event in _item_events(index, item)),
        {"type": f"response.{response['status']}", "response": response},
    )(request)


def _item_events(index: int, item: Item) -> Iterator[Item]:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"} if "status" in item else item
    if item["type"] == "message":
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "content": []}}
        part = item["content"][0]
        at = {**at, "content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for letter in part["text"]:
            yield {"type": "response.output_text.delta", **at, "delta": letter, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**begun, "arguments": ""},
        }
        arguments = {"type": "response.function_call_arguments.delta", **at}
        for begin in range(0, len(item["arguments"]), 4):
            yield {**arguments, "delta": item["arguments"][begin : begin + 4]}
        done = {"arguments": item["arguments"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **at, **done}
    else:
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _items(sent: Any) -> list[Item]:
    return [{"role": "user", "content": sent}] if isinstance(sent, str) else sent


def _faults(body: Mapping[str, Any], context: Sequence[Item]) -> Iterator[str]:
    for tool in body.get("tools", ()):
        if tool["type"] == "mcp" and not tool.get("server_url"):
            yield "an mcp tool needs a server_url"
        if tool["type"] == "function" and "function" in tool:
            yield "Missing required parameter: 'tools[0].name'."
    for item in context:
        kind = item.get("type", "message")
        if kind not in _KNOWN and not kind.endswith("_output"):
            yield f"Invalid value: '{kind}'."
        if len(item.get("call_id", "")) > MAX_ID:
            yield "Invalid 'call_id': string too long."
    yield from _open_calls(context)


def _open_calls(context: Sequence[Item]) -> Iterator[str]:
    open_ids: list[str] = []
    for item in context:
        if not item.get("type", "message").endswith("_output"):
            open_ids += [item["call_id"]] if "call_id" in item else []
        elif item["call_id"] in open_ids:
            open_ids.remove(item["call_id"])
        else:
            yield f"No tool call found for function call output with call_id {item['call_id']}."
    if open_ids:
        yield f"No tool output found for function call {open_ids[0]}."
