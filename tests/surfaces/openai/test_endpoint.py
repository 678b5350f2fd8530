"""The chat door itself: who comes in, what is where, and how it says no."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import key, task
from tests.surfaces.openai.chat_world import URL, USER, asking, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet, record
from tests.upstream.scripted_model import calls, hang, scripted_model, text
from toolgate.model.chat import ChatBudgets
from toolgate.model.tasks import Task
from toolgate.upstream.models.client import find_upstream

pytestmark = pytest.mark.anyio

AGENT, NODE, BOUND = (f"{one}-secret-0123456789-0123456789" for one in ("agent", "node", "bound"))
ECHO = "mcp__one__echo"
NOWHERE = upstream("http://127.0.0.1:9/v1")


async def test_every_refusal_has_the_shape_of_openais_api() -> None:
    async with open_chat_world(MemoryNet(), upstreams=(NOWHERE,)) as world:
        responses = {
            "path": await world.get("/v1/embeddings"),
            "task": await world.post(asking(), url="/t/nope/v1/chat/completions"),
            "no task": await world.post(asking(), url="/t/NO!/v1/chat/completions"),
            "method": await world.get(URL),
            "media": await world.post(asking(), content_type="text/plain"),
            "json": await world.post(b"{"),
            "array": await world.post(b"[]"),
            "two models": await world.post(b'{"model":"a","model":"m","messages":[]}'),
            "two names": await world.post(b'{"model":"m","tools":[{"type":"x:","n\\":":1,"n\\":":2}]}'),
            "query": await world.post(asking(), url=f"{URL}?servers=one"),
            "field": await world.post({"model": "m", "messages": [USER], "toolgate": {"mcp": {"nope": 1}}}),
            "task's": await world.post(
                {"model": "m", "messages": [USER], "metadata": {"mcp.task_tool_allowlist": '["*"]'}}
            ),
            "two tasks": await world.post(
                asking(), url="/t/one/v1/chat/completions", x_toolgate_task="other"
            ),
        }

    assert {name: (one.status, one.json["error"]["code"]) for name, one in responses.items()} == {
        "path": (404, "not_found"),
        "task": (404, "not_found"),
        "no task": (404, "not_found"),
        "method": (405, "method_not_allowed"),
        "media": (415, "unsupported_media"),
        "json": (400, "parse_error"),
        "array": (400, "parse_error"),
        "two models": (400, "parse_error"),
        "two names": (400, "parse_error"),
        "query": (400, "invalid_request"),
        "field": (400, "invalid_chat"),
        "task's": (403, "mcp_policy_denied"),
        "two tasks": (400, "invalid_request"),
    }
    for one in responses.values():
        assert set(one.json["error"]) == {"message", "type", "param", "code"}
        assert ".." not in one.json["error"]["message"]
        assert one.headers["x-request-id"].startswith("req_")
    assert "/v1/chat/completions" in responses["path"].json["error"]["message"]
    assert responses["method"].headers["allow"] == "POST"
    assert responses["field"].json["error"]["param"] == "toolgate.mcp.nope"


async def test_no_one_comes_in_without_a_credential_that_reaches_far_enough() -> None:
    keys = (key("agent", AGENT), key("node", NODE, role="node"))
    async with (
        scripted_model(text("hello")) as model,
        open_chat_world(
            MemoryNet(), keys=keys, upstreams=(upstream(model.url),), trusts_local=False
        ) as world,
    ):
        no_client = await world.post(asking())
        stranger = await world.post(asking(), authorization=f"Bearer {AGENT}x")
        node = await world.post(asking(), authorization=f"Bearer {NODE}")
        agent = await world.post(asking(), authorization=f"Bearer {AGENT}")
        foreign = await world.post(asking(), authorization=f"Bearer {AGENT}", host="evil.example")
        twice = await world.get("/v1/models")

    assert [one.status for one in (no_client, stranger, node, agent, foreign, twice)] == [
        401,
        401,
        403,
        200,
        403,
        401,
    ]
    assert no_client.json["error"]["type"] == "authentication_error"
    assert no_client.headers["www-authenticate"].startswith("Bearer")
    assert len(model.requests) == 1


@pytest.mark.parametrize(("trusts_local", "status"), [(True, 200), (False, 401)])
async def test_where_a_client_insists_on_a_key_none_says_that_there_is_invalid(
    *, trusts_local: bool, status: int
) -> None:
    async with (
        scripted_model(text("hello")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),), trusts_local=trusts_local) as world,
    ):
        response = await world.post(asking(), authorization="Bearer none")

    assert response.status == status
    assert len(model.requests) == (status == 200)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_conversation_ends_with_the_credential_it_was_begun_with(*, is_stream: bool) -> None:
    async with (
        scripted_model(calls((ECHO, "{}"), content="I look."), hang()) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            keys=(key("agent", AGENT),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        request = world.open(asking(stream=is_stream), authorization=f"Bearer {AGENT}")
        async with asyncio.timeout(60):
            asked = await model.asked(2)
            world.world.apply(keys={})
            response = await request.whole()
            await asked.hung_up.wait()

    if is_stream:
        assert not response.body.endswith(b"[DONE]\n\n")
    else:
        assert (response.status, response.json["error"]["code"]) == (401, "unauthenticated")


@pytest.mark.requirement("000-01", "000-47")
@pytest.mark.parametrize("by", ["path", "header", "key"])
async def test_a_task_brings_its_tools_however_it_is_named(by: str) -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done"), strict=True) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            record("two", allowed_tools=("*",)),
            tasks=(task("ops", default_server_ids=["one"]),),
            keys=(key("bound", BOUND, default_task="ops"), key("agent", AGENT)),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        headers = {"x_toolgate_task": "ops"} if by == "header" else {}
        response = await world.post(
            {"model": "m", "messages": [USER]},
            url="/t/ops/v1/chat/completions" if by == "path" else URL,
            authorization=f"Bearer {BOUND if by == 'key' else AGENT}",
            **headers,
        )

        assert [(one.task_id, one.tool) for one in world.world.audited] == [("ops", "echo")]
        assert world.world.audited[0].request_id == response.headers["x-request-id"]
    assert response.json["choices"][0]["message"]["content"] == "done"
    assert model.requests[0].tool_names == [ECHO]


@pytest.mark.requirement("002-017")
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"toolgate": {"mcp": {"enabled": False}}, "task": "ops"},
        {"metadata": {"mcp.enabled": "false"}, "task": "ops"},
        {"toolgate": {"mcp": {"enabled": True}, "mode": "passthrough"}},
        {"toolgate": {"mcp": {"enabled": True}}, "tool_choice": "none"},
    ],
    ids=["neither task nor flag", "switched off", "in metadata", "passthrough", "choice none"],
)
async def test_without_a_scope_nothing_is_offered_and_nothing_is_run(members: Any) -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done")) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            tasks=(task("ops", default_server_ids=["one"]),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        headers = {"x_toolgate_task": members.pop("task")} if "task" in members else {}
        response = await world.post({"model": "m", "messages": [USER], **members}, **headers)

        assert world.called == []
    assert response.status == 200
    assert "tools" not in model.requests[0].body
    assert set(model.requests[0].body) <= {"model", "messages", "tool_choice"}


async def test_a_task_or_an_upstream_can_switch_tools_off_and_a_request_cannot_switch_them_on() -> None:
    quiet = Task(
        task_id="quiet",
        config={
            "mcp.enabled": "true",
            "mcp.default_server_ids": '["one"]',
            "chat.mode": '"passthrough"',
        },
    )
    async with (
        scripted_model(lambda _ask: text("hello")) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            tasks=(quiet,),
            upstreams=(upstream(model.url), upstream(model.url, "shy", mode="passthrough")),
        ) as world,
    ):
        want = {"toolgate": {"mcp": {"enabled": True}, "mode": "inject"}}
        await world.post(asking(**want), url="/t/quiet/v1/chat/completions")
        await world.post(asking(model="shy/m", **want))

    assert [request.body.get("tools") for request in model.requests] == [None, None]
    assert [request.body["model"] for request in model.requests] == ["m", "m"]


@pytest.mark.requirement("000-26")
async def test_a_request_for_more_than_its_task_may_have_is_refused_whole_and_audited() -> None:
    async with open_chat_world(
        MemoryNet(),
        record("one", allowed_tools=("*",)),
        record("two", allowed_tools=("*",)),
        tasks=(task("ops", default_server_ids=["one"]),),
        upstreams=(NOWHERE,),
    ) as world:
        response = await world.post(
            asking(toolgate={"mcp": {"server_ids": ["one", "two"]}}), url="/t/ops/v1/chat/completions"
        )

        assert [(one.outcome, one.code, one.door) for one in world.world.audited] == [
            ("denied", "mcp_policy_denied", "chat")
        ]
    assert (response.status, response.json["error"]["code"]) == (403, "mcp_policy_denied")


@pytest.mark.requirement("000-42")
async def test_a_chat_of_a_task_that_requires_servers_is_refused_without_one_and_no_model_is_asked() -> None:
    needy = task("ops", default_server_ids=["one"], require_servers=True)
    async with (
        scripted_model(text("Hello.")) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",), enabled=False),
            tasks=(needy,),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        response = await world.post(asking(), url="/t/ops/v1/chat/completions")

    assert (response.status, response.json["error"]["code"]) == (403, "mcp_policy_denied")
    assert "no server is left: `one` (server_disabled)" in response.json["error"]["message"]
    assert model.requests == []


async def test_budgets_only_narrow() -> None:
    loose = Task(
        task_id="loose",
        config={
            "mcp.enabled": "true",
            "mcp.default_server_ids": '["one"]',
            "chat.budgets": '{"max_iterations": 3}',
        },
    )
    async with (
        scripted_model(lambda request: calls((ECHO, json.dumps({"n": request.number})))) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            tasks=(loose,),
            upstreams=(upstream(model.url, budgets=ChatBudgets(max_iterations=5)),),
        ) as world,
    ):
        url = "/t/loose/v1/chat/completions"
        await world.post(asking(toolgate={"budgets": {"max_iterations": 100}}), url=url)
        first = len(model.requests)
        await world.post(asking(toolgate={"budgets": {"max_iterations": 1}}), url=url)

    assert (first, len(model.requests) - first) == (4, 2)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4", ("a", "gpt-4")),
        ("b/gpt-4", ("b", "gpt-4")),
        ("meta/llama", ("c", "meta/llama")),
        ("c/meta/llama", ("c", "meta/llama")),
        ("a/meta/llama", ("c", "a/meta/llama")),
        ("off/x", ("c", "off/x")),
    ],
)
def test_a_model_is_found_by_its_upstream_or_by_the_first_pattern_that_has_it(
    model: str, expected: tuple[str, str]
) -> None:
    known = {
        "off": upstream("http://off", "off", enabled=False),
        "c": upstream("http://c", "c", models=("*/*",)),
        "b": upstream("http://b", "b", models=("gpt-*",)),
        "a": upstream("http://a", "a", models=("gpt-*",)),
    }

    found = find_upstream(known, model)

    assert found is not None
    assert (found[0].upstream_id, found[1]) == expected


async def test_names_suit_models_that_take_identifiers_alone() -> None:
    async with (
        scripted_model(text("a")) as model,
        open_chat_world(
            MemoryNet(),
            record("my-fs", allowed_tools=("*",)),
            upstreams=(upstream(model.url, name_profile="identifier"),),
        ) as world,
    ):
        await world.chat()

    (name,) = model.requests[0].tool_names
    assert name.startswith("mcp__my_fs__echo_")
    assert name.isidentifier()
