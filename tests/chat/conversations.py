"""Conversations for tests: models that answer, and what is made of it."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from toolgate.catalog.definitions import check_definition
from toolgate.chat.injection import InjectedTools, inject_tools
from toolgate.chat.model_completion import ModelCompletion, parse_completion
from toolgate.chat.requests import ChatRequest, parse_chat_request
from toolgate.model.tools import ToolDefinition

HI = {"role": "user", "content": "hi"}


def request_of(*messages: Any, **more: Any) -> ChatRequest:
    body = {"model": "m", "messages": messages or (HI,), **more}
    return parse_chat_request({name: raw(value) for name, value in body.items()})


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def call(call_id: str, name: str = "mcp__fs__read", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def reply_of(*calls: Any, content: Any = None, **more: Any) -> ModelCompletion:
    message = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = calls
    return parse_completion(json.dumps({"id": "c", "choices": [{"index": 0, "message": message}]}).encode())


def offered(*names: str, own: Sequence[str] = ()) -> InjectedTools:
    tools = {}
    for name in names:
        definition = check_definition("fs", json.dumps({"name": name}).encode())
        assert isinstance(definition, ToolDefinition)
        tools[f"mcp__fs__{name}"] = (f"fs.{name}", definition)
    return inject_tools(tools, own)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def plain(messages: Sequence[msgspec.Raw]) -> list[Any]:
    return [json.loads(bytes(one)) for one in messages]
