"""Conversations whose tools are run here, answered whole."""

import pytest

from tests.surfaces.openai.chat_house import open_chat_house, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import calls, scripted_model, text

pytestmark = pytest.mark.anyio


async def test_three_rounds_of_tools_end_in_one_answer() -> None:
    async with (
        scripted_model(
            calls(("mcp__one__echo", '{"n": 1}')),
            calls(("mcp__one__echo", '{"n": 2}')),
            calls(("mcp.one.echo", '{"n": 3}')),
            text("done"),
            strict=True,
        ) as model,
        open_chat_house(MemoryNet(), upstreams=(upstream(model.url),)) as house,
    ):
        answer = await house.chat()

    assert answer["choices"][0]["message"]["content"] == "done"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}
    assert "toolgate" not in answer
