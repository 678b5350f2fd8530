"""Bodies that no one would write: each is answered as OpenAI's API would, and none is a fault of the
gateway."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.soak import rounds
from tests.surfaces.openai.chat_world import URL, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import calls, scripted_model, text

pytestmark = pytest.mark.anyio

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "function", "x"]) | JSON
CALLS = st.lists(st.fixed_dictionaries({}, optional={"id": JSON, "type": JSON, "function": JSON}), max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES},
        optional={
            "content": JSON,
            "tool_calls": CALLS | JSON,
            "tool_call_id": st.sampled_from(["tgc_", "tgc_AAAA", "a"]) | JSON,
            "function_call": JSON,
        },
    ),
    max_size=3,
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "mcp", "custom"]) | JSON}, optional={"function": JSON}
    )
)
OURS = st.dictionaries(
    st.sampled_from(["mcp", "mcp.enabled", "mcp.server_ids", "mode", "budgets", "explain", "progress", "x"]),
    JSON | st.dictionaries(st.sampled_from(["enabled", "server_ids", "tool_allowlist"]), JSON),
)
BODIES = st.fixed_dictionaries(
    {
        "model": st.just("m") | JSON,
        "messages": st.just([{"role": "user", "content": "go"}]) | MESSAGES | JSON,
    },
    optional={
        "toolgate": st.just({"mcp": {"enabled": True}}) | OURS | JSON,
        "metadata": OURS | JSON,
        "stream": st.booleans() | JSON,
        "stream_options": JSON,
        "tools": TOOLS | JSON,
        "functions": JSON,
        "function_call": JSON,
        "tool_choice": st.sampled_from(["none", "auto", "required"]) | JSON,
        "n": JSON,
    },
)


@settings(max_examples=rounds(suite=100, soak=5_000))
@given(body=BODIES | JSON)
async def test_whatever_is_sent_is_answered_as_openais_api_would(body: Any) -> None:
    async with (
        scripted_model(
            lambda request: text("done") if request.number else calls(("mcp__one__echo", "{}"))
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.open(json.dumps(body).encode(), url=URL).whole()

    assert response.status < 500, response.body
    if response.status != 200:
        assert set(response.json["error"]) == {"message", "type", "param", "code"}
