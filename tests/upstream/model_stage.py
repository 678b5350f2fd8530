"""Models and a scripted one, for tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.upstream.scripted_model import ScriptedModel, scripted_model
from toolgate.model.chat import ChatUpstream
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import ModelRequest, ModelResponse, Models
from toolgate.upstream.models.endpoint import ModelEvent

PATH = "/chat/completions"
KEY = "sk-0123456789abcdef0123456789abcdef"
ASK: Mapping[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
BODY = json.dumps(ASK).encode()
STREAM = json.dumps({**ASK, "stream": True}).encode()
ANY = Egress(allow_private=True)


def at(url: str, upstream_id: str = "local", **fields: Any) -> ChatUpstream:
    return ChatUpstream(**{"upstream_id": upstream_id, "base_url": url, "models": ("*",), **fields})


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def asking(*script: Any, **options: Any) -> AsyncIterator[tuple[Models, ScriptedModel]]:
    """Models whose secret `model_key` is KEY, and which do not wait long between attempts."""
    async with (
        asyncio.timeout(60),
        scripted_model(*script, **options) as model,
        Models(Secrets({"model_key": KEY}), ANY, pauses_s=(0.0, 0.001)) as models,
    ):
        yield models, model


async def read(models: Models, model: ScriptedModel, **fields: Any) -> list[ModelEvent]:
    """Everything in the stream that answers one request."""
    upstream = at(model.url, **fields)
    async with models.stream(
        ModelRequest(upstream, PATH, STREAM, deadline_s=in_s(99), may_retry=False)
    ) as events:
        assert not isinstance(events, ModelResponse)
        return [event async for event in events]
