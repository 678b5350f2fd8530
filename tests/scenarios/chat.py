"""The official `openai` client at the chat door; every reply is held strictly against the client's types."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import ChatCompletionMessage

from tests.scenarios.clients import UNTRUSTING
from tests.scenarios.gateway import Gateway, Json

MODEL = "scripted"
WITHIN_S = 300.0
"""Within which a chat ends. A real model on a busy machine takes its time."""


@dataclass(frozen=True)
class ChatOutput:
    """What a client has in its hands in the end, streamed or not."""

    text: str | None
    calls: list[tuple[str, str]]
    """Of its own functions: name and arguments."""
    finish_reason: str
    message: Json
    """As it goes into the next request."""
    usage: int | None
    """Tokens in all."""
    extension: Json = field(default_factory=dict)
    """What the gateway adds."""
    events: list[Json] = field(default_factory=list)
    """What it tells in between, in a stream."""


class Chat:
    """One client at one URL."""

    def __init__(self, url: str, *, key: str = "none", **defaults: Any) -> None:
        self.client = AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=WITHIN_S,
            http_client=DefaultAsyncHttpxClient(trust_env=False, verify=UNTRUSTING),
        )
        self._defaults = {"model": MODEL, **defaults}

    async def request(self, messages: str | list[Any], *, stream: bool = False, **fields: Any) -> ChatOutput:
        """One request. Fields that OpenAI does not have go into `extra_body`."""
        body = {**self._defaults, "messages": [user(messages)] if isinstance(messages, str) else messages}
        create: Any = self.client.chat.completions.create  # whose overloads take no mapping
        if stream:
            response = await create(**body, **fields, stream=True, stream_options={"include_usage": True})
            return _of_chunks([chunk async for chunk in response])
        raw = await self.client.chat.completions.with_raw_response.create(**body, **fields)
        return _of_completion(ChatCompletion.model_validate_json(raw.text, strict=True))


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def tool(call_id: str, text: str) -> Json:
    """A result that the client has got by itself."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def function(name: str, **properties: str) -> Json:
    """A function of the client's own, by the types of its parameters."""
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def put_upstream(gateway: Gateway, base_url: str, *, upstream_id: str = "scripted", **fields: Any) -> None:
    """Have the gateway ask the models there."""
    body = {"upstream_id": upstream_id, "base_url": base_url, "models": [MODEL], **fields}
    gateway.put(f"/admin/api/chat-upstreams/{upstream_id}", body)


def put_task(gateway: Gateway, task_id: str, config: Mapping[str, Any]) -> None:
    texts = {name: json.dumps(value) for name, value in config.items()}
    gateway.put(f"/admin/api/tasks/{task_id}", {"task_id": task_id, "config": texts})


def _of_completion(completion: ChatCompletion) -> ChatOutput:
    [choice] = completion.choices
    return ChatOutput(
        text=choice.message.content,
        calls=_calls_of(choice.message),
        finish_reason=choice.finish_reason,
        message=choice.message.model_dump(exclude_none=True),
        usage=None if completion.usage is None else completion.usage.total_tokens,
        extension=(completion.model_extra or {}).get("toolgate", {}),
    )


def _calls_of(message: ChatCompletionMessage) -> list[tuple[str, str]]:
    return [
        (one.function.name, one.function.arguments)
        for one in message.tool_calls or []
        if one.type == "function"
    ]


def _of_chunks(chunks: list[ChatCompletionChunk]) -> ChatOutput:
    """As clients put a stream together. One role, one finish reason, and usage at most once."""
    whole = [
        ChatCompletionChunk.model_validate_json(chunk.model_dump_json(exclude_unset=True), strict=True)
        for chunk in chunks
    ]
    choices = [choice for chunk in whole for choice in chunk.choices]
    texts = [choice.delta.content for choice in choices if choice.delta.content is not None]
    [finish_reason] = [one.finish_reason for one in choices if one.finish_reason]
    calls = _assembled(one for choice in choices for one in choice.delta.tool_calls or [])
    usages = [chunk.usage.total_tokens for chunk in whole if chunk.usage is not None]
    extensions = [(chunk.model_extra or {}).get("toolgate") for chunk in whole]
    notified = [one for one in extensions if one]

    assert [choice.delta.role for choice in choices if choice.delta.role] == ["assistant"]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in whole}) == 1
    assert len(usages) <= 1

    text = "".join(texts) or None
    message: Json = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return ChatOutput(
        text=text,
        calls=[(one["function"]["name"], one["function"]["arguments"]) for one in calls],
        finish_reason=finish_reason,
        message=message,
        usage=usages[0] if usages else None,
        extension={name: value for one in notified if "event" not in one for name, value in one.items()},
        events=[one for one in notified if "event" in one],
    )


def _assembled(deltas: Iterable[Any]) -> list[Json]:
    """The calls of a stream, by their index."""
    calls: dict[int, Json] = {}
    for delta in deltas:
        one = calls.setdefault(
            delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        one["id"] += delta.id or ""
        one["function"]["name"] += (delta.function and delta.function.name) or ""
        one["function"]["arguments"] += (delta.function and delta.function.arguments) or ""
    return [calls[index] for index in sorted(calls)]
