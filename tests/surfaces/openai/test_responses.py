"""`POST /v1/responses`, whole: tools are resolved, run and told of as items of that API."""

import pytest

from tests.surfaces.openai.chat_world import open_chat_world, upstream
from tests.surfaces.openai.responses_world import respond, shape
from tests.upstream.memory_link import MemoryNet
from tests.upstream.responses_model import ResponsesScript, call, reason, say
from tests.upstream.scripted_model import scripted_model

pytestmark = pytest.mark.anyio


async def test_two_rounds_of_tools_end_in_one_response() -> None:
    script = ResponsesScript(
        [reason(), call("mcp__one__echo", {"n": 1}), call("mcp__one__echo", {"n": 2})],
        [say("and"), call("mcp.one.echo", {"n": 3})],
        [say("done")],
    )
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await respond(world)

    assert shape(response) == [
        "lists toolgate: one.echo",
        "reasoning",
        'completed toolgate:one.echo {"n": 1}',
        'completed toolgate:one.echo {"n": 2}',
        "says and",
        'completed toolgate:one.echo {"n": 3}',
        "says done",
    ]
    assert response["id"] == "resp_2"
    assert response["usage"]["total_tokens"] == 45
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    assert response["tools"] == [{"type": "mcp", "server_label": "toolgate", "require_approval": "never"}]
    assert [tool["name"] for tool in model.requests[0].body["tools"]] == ["mcp__one__echo"]
    assert len(model.requests[2].body["input"]) == 1 + 3 + 2 + 2 + 1
