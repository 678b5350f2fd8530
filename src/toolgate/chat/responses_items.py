"""The items of the Responses API that the gateway makes: lists of tools, calls, requests for approval, words.

Their ids say whose they are. In a history that a client sends back, items of the same types may come from
the model's server, which ran tools itself; those are none of ours.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from toolgate.chat.responses.tools import Offer
from toolgate.model.raw import Members, decode_members, text_of

CALL: Final = "mcp_tg"
LIST: Final = "mcpl_tg_"
APPROVAL: Final = "mcpr_tg_"
MESSAGE: Final = "msg_tg_"

Item = dict[str, Any]


def mcp_list_tools(label: str, offers: Iterable[Offer], *, key: str) -> Item:
    """What is offered under one label."""
    return {
        "id": f"{LIST}{key}",
        "type": "mcp_list_tools",
        "server_label": label,
        "tools": [_listed(offer) for offer in offers],
        "error": None,
    }


def mcp_call(item_id: str, *, label: str, name: str, arguments: str = "") -> Item:
    """A call that has begun."""
    return {
        "id": item_id,
        "type": "mcp_call",
        "status": "in_progress",
        "server_label": label,
        "name": name,
        "arguments": arguments,
        "approval_request_id": None,
        "output": None,
        "error": None,
    }


def call_item_id(call_id: str, number: int) -> str:
    """The id of the `mcp_call` that is made of a model's call, the so-many-th of an answer."""
    return f"{CALL}{number}_{call_id}"


def parse_call_item_id(item_id: str) -> str | None:
    """The model's own id of the call; None where the item is not the gateway's."""
    number, separator, call_id = item_id.removeprefix(CALL).partition("_")
    is_ours = item_id.startswith(CALL) and number.isdecimal() and bool(separator) and bool(call_id)
    return call_id if is_ours else None


def ended(item: Item, text: str, *, is_error: bool) -> Item:
    """`item`, a call, with what came of it. The error is what the model is told."""
    if not is_error:
        return {**item, "status": "completed", "output": text}
    return {**item, "status": "failed", "error": {"type": "mcp_tool_execution_error", "content": _said(text)}}


def mcp_approval_request(item_id: str, *, label: str, name: str, arguments: str) -> Item:
    """A call that waits until somebody agrees to it."""
    return {
        "id": item_id,
        "type": "mcp_approval_request",
        "server_label": label,
        "name": name,
        "arguments": arguments,
    }


def message(text: str, *, key: str, status: str = "completed") -> Item:
    """What the gateway itself has to say to the caller."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
    return {
        "id": f"{MESSAGE}{key}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def function_call(call_id: str, *, name: str, arguments: str) -> Item:
    """A call as the model's server takes it back."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def function_call_output(call_id: str, output: str) -> Item:
    """What came of a call, for the model."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def output_text(members: Members) -> str:
    """What the model was told of a call that ended, from its `mcp_call` as a client sends it back."""
    output = member_text(members, "output")
    if output is not None:
        return output
    error = msgspec.json.decode(members.get("error", b"null"))
    content = error.get("content") if isinstance(error, dict) else None
    if content is None:
        return json.dumps({"error": error}) if error is not None else ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def member_text(members: Members, key: str) -> str | None:
    """A member that is a text; None where it is absent or anything else."""
    return text_of(members.get(key))


def _said(text: str) -> Any:
    """Errors are JSON where they are ours, and any text where they are a tool's."""
    try:
        return json.loads(text)
    except ValueError:
        return [{"type": "text", "text": text}]


def _listed(offer: Offer) -> Item:
    members = decode_members(offer.definition.raw)
    listed: Item = {
        "name": offer.name,
        "description": offer.definition.description or None,
        "input_schema": members.get("inputSchema", {"type": "object"}),
    }
    return {**listed, "annotations": members["annotations"]} if "annotations" in members else listed
