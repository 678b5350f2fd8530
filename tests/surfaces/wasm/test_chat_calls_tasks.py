"""Chats of guests: the way of the chat door, with functions of the guest among the tools."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.surfaces.openai.chat_world import error_in, results
from tests.surfaces.wasm.chat_stage import Chatter, chat_stage, content_of
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, text_result
from tests.upstream.scripted_model import Ask, call, calls, cut, hang, status, text, whole
from toolgate.model.chat import ChatBudgets
from toolgate.model.invocations import InvocationCall
from toolgate.surfaces.wasm.chat_calls import AUTO_TOOL_CALL, ENABLE_METRICS, GET_METRICS
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

RAW = 0
EBADF, EAGAIN = -9, -11
ECHO = "mcp__one__echo"
USER = {"role": "user", "content": "go"}
SPEAR = {"backend": "main", "model": "m"}


async def test_an_answer_is_a_completion_and_says_who_was_asked() -> None:
    async with chat_stage(text("hello")) as stage:
        response = await stage.play(lambda chat: chat.prompt())
        (prompt,) = stage.model.requests

    assert (content_of(response), response["object"], response["_spear"]) == (
        "hello",
        "chat.completion",
        SPEAR,
    )
    assert (prompt.body["model"], prompt.messages, prompt.tool_names) == ("m", [USER], [ECHO])


async def test_parameters_pass_as_they_were_written_but_for_those_that_are_the_hosts() -> None:
    passed = {
        "temperature": 0.1,
        "response_format": {"type": "json_object"},
        "tool_choice": "auto",
        "x": None,
    }
    own = {"timeout_ms": 30_000, "max_iterations": 6, "max_tool_calls": 6, "messages": [], "tools": [1]}
    policy = {"mcp.enabled": True, "mcp.server_ids": ["one"], "mcp.tool_denylist": ["write_*"]}

    def story(chat: Chatter) -> Any:
        assert {chat.set(*one) for one in (passed | own | policy | {"stream": True}).items()} == {0}
        return chat.prompt()

    async with chat_stage(text("hello")) as stage:
        assert content_of(await stage.play(story)) == "hello"
        body = stage.model.requests[0].body

    assert {name: body.pop(name) for name in passed} == passed
    assert sorted(body) == ["messages", "model", "tools"]
    assert body["messages"] == [USER]


async def test_without_auto_the_tools_are_offered_and_their_calls_come_back() -> None:
    def story(chat: Chatter) -> list[Any]:
        chat.tool("sum", chat.says(lambda _: "never"))
        return [chat.prompt(flags=RAW), chat.prompt("once more", flags=RAW)]

    async with chat_stage(
        calls((ECHO, '{"a": 1}', "c1"), ("sum", "{}", "c2"), content="hm"), text("b")
    ) as stage:
        first, second = await stage.play(story)
        asks = stage.model.requests
        assert not stage.world.net.servers["one"].calls

    message = first["choices"][0]["message"]
    assert [one["id"] for one in message["tool_calls"]] == ["c1", "c2"]
    assert (first["_spear"], first["choices"][0]["finish_reason"]) == (SPEAR, "tool_calls")
    assert asks[0].tool_names == ["sum", ECHO]
    assert [one["content"] for one in asks[1].messages] == ["go", "once more"]
    assert content_of(second) == "b"


async def test_without_auto_an_answer_is_what_the_models_server_says() -> None:
    sent_text = {"id": 5, "choices": [{"message": {}}, {"message": {}}], "usage": None, "vendor": [1]}

    def story(chat: Chatter) -> Any:
        chat.set("n", 2)
        return [chat.prompt(flags=RAW), chat.prompt(flags=RAW), chat.prompt(flags=AUTO_TOOL_CALL)]

    async with chat_stage(whole(sent_text), whole([1])) as stage:
        raw, broken, refused = await stage.play(story)

    assert raw == sent_text | {"_spear": SPEAR}
    assert broken["error"]["code"] == "model_unavailable"
    assert (refused["error"]["code"], refused["error"]["retryable"]) == ("invalid_chat", False)


@pytest.mark.requirement("000-28")
async def test_tools_of_servers_and_of_the_guest_are_called_in_one_reply() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda sent: str(sent["a"] + sent["b"])))
        response = chat.prompt()
        kept = [(one.server_id, one.tool, one.code) for one in chat.context.calls.kept]
        assert sorted(kept) == [("", "sum", ""), ("one", "echo", "")]
        assert (chat.context.calls.total, chat.context.calls.model_asks) == (2, 2)
        return response

    both = calls(("sum", '{"a": 7, "b": 35}', "g"), (ECHO, '{"say": "hi"}', "m"))
    async with chat_stage(both, text("42")) as stage:
        response = await stage.play(story)
        received = results(stage.model.requests[1])
        audited = [(one.door, one.server_id, one.tool, one.outcome) for one in stage.world.world.audited]

    assert content_of(response) == "42"
    assert received == {"g": "42", "m": '{"say":"hi"}'}
    assert audited == [("hostcall", "one", "echo", "ok")]


async def test_a_session_remembers_what_was_sent() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda _: "42"))
        chat.prompt("first")
        return chat.prompt("second")

    async with chat_stage(calls(("sum", "{}", "c")), text("it is 42"), text("yes")) as stage:
        assert content_of(await stage.play(story)) == "yes"
        messages = stage.model.requests[2].messages

    assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [one["content"] for one in messages] == ["first", None, "42", "it is 42", "second"]


@pytest.mark.parametrize(
    ("story", "code", "sent_text"),
    [
        pytest.param(lambda chat: chat.recv(chat.send()), "invalid_chat", "empty array", id="no messages"),
        pytest.param(lambda chat: chat.prompt(None), "invalid_chat", "messages", id="none to go on with"),
        pytest.param(
            lambda chat: (chat.say("x", role="boss"), chat.prompt())[1], "invalid_chat", "boss", id="no role"
        ),
        pytest.param(
            lambda chat: (chat.set("model", ""), chat.prompt())[1], "invalid_chat", "model", id="no model"
        ),
        pytest.param(
            lambda chat: (chat.set("tool_choice", 5), chat.prompt())[1],
            "invalid_chat",
            "tool_choice",
            id="choice",
        ),
        pytest.param(
            lambda chat: (chat.set("backend", "other"), chat.prompt())[1],
            "model_not_found",
            "other",
            id="a backend that there is not",
        ),
        pytest.param(lambda chat: chat.prompt(), "model_refused", "no credit", id="the model refuses"),
    ],
)
async def test_what_cannot_be_answered_is_an_answer_that_says_why(
    story: Any, code: str, sent_text: str
) -> None:
    refusal = status(402, {"error": {"message": "no credit", "type": "x", "param": None, "code": None}})
    async with chat_stage(refusal) as stage:
        error = (await stage.play(story))["error"]

    assert (error["code"], error["retryable"]) == (code, False)
    assert sent_text in error["message"]


async def test_a_backend_is_asked_where_it_is_named() -> None:
    def story(chat: Chatter) -> Any:
        chat.set("backend", "main")
        return chat.prompt()

    async with chat_stage(text("hello"), upstream={"models": ("m",)}) as stage:
        assert (await stage.play(story))["_spear"] == SPEAR
        assert stage.model.requests[0].body["model"] == "m"


@pytest.mark.parametrize(
    ("key", "value"), [("mcp.enabled", False), ("mcp.server_ids", []), ("tool_choice", "none")]
)
async def test_a_guest_may_do_without_the_tools_of_its_task(key: str, value: Any) -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda _: "42"))
        chat.set(key, value)
        return chat.prompt()

    script = [text("hi")] if key == "tool_choice" else [calls(("sum", "{}", "c")), text("hi")]
    async with chat_stage(*script) as stage:
        assert content_of(await stage.play(story)) == "hi"
        assert [prompt.tool_names for prompt in stage.model.requests] == [["sum"]] * len(script)


async def test_what_a_model_calls_that_the_guest_may_not_have_is_not_there() -> None:
    """Also where the model knows its name: a task's scope is the same in chats."""

    def story(chat: Chatter) -> Any:
        chat.set("mcp.tool_allowlist", ["read"])
        return chat.prompt()

    net = MemoryNet(one=MemoryServer(tools=(definition("read"), definition("write"))))
    script = calls(("mcp__one__write", "{}", "w"), ("mcp.one.write", "{}", "d")), text("no")
    async with chat_stage(*script, net=net) as stage:
        await stage.play(story)

        assert {error_in(stage.model.requests[1], one)["code"] for one in "wd"} == {"unknown_tool"}
        assert not net.servers["one"].calls


async def test_what_a_request_says_of_tools_elsewhere_narrows_as_well() -> None:
    """In `metadata`, as at the chat door: it never widens, and never reaches the model."""

    def story(chat: Chatter) -> list[Any]:
        chat.set("mcp.tool_allowlist", ["read"])
        responses = []
        for metadata in (
            {"mcp.tool_allowlist": '["*"]', "user": "x"},
            {"mcp.tool_denylist": '["read"]'},
            {"mcp.server_ids": '["two"]'},
            {"mcp.task_tool_allowlist": '["*"]'},
        ):
            chat.set("metadata", metadata)
            responses.append(chat.prompt())
        return responses

    net = MemoryNet(one=MemoryServer(tools=(definition("read"), definition("write"))))
    async with chat_stage(text("a"), text("b"), net=net) as stage:
        responses = await stage.play(story)
        bodies = [prompt.body for prompt in stage.model.requests]
        denied = [one.outcome for one in stage.world.world.audited]

    assert [prompt.tool_names for prompt in stage.model.requests] == [["mcp__one__read"], []]
    assert [body.get("metadata") for body in bodies] == [{"user": "x"}, None]
    assert [one["error"]["code"] for one in responses[2:]] == ["mcp_policy_denied"] * 2
    assert denied == ["denied"] * 2


async def test_a_chat_has_no_more_time_than_its_run() -> None:
    def story(chat: Chatter) -> Any:
        chat.guest.context = replace(chat.context, deadline_s=0.0)
        return chat.prompt()

    async with chat_stage() as stage:
        assert (await stage.play(story))["toolgate"]["stopped"] == "time_limit"
        assert not stage.model.requests


def circling(prompt: Ask) -> Any:
    """A model that never stops calling, whatever it is told."""
    return calls(
        (ECHO, json.dumps({"n": prompt.number}), f"c{prompt.number}"), ("sum", f'{{"n": {prompt.number}}}')
    )


@pytest.mark.requirement("002-036")
@pytest.mark.parametrize(
    ("key", "value", "stopped"),
    [
        ("max_iterations", 2, "round_limit"),
        ("max_total_tool_calls", 3, "call_limit"),
        ("max_tool_calls", 3, "call_limit"),
        ("max_iterations", 0, "round_limit"),
    ],
)
async def test_a_budget_ends_a_chat_with_an_answer_and_a_history_to_continue_with(
    key: str, value: int, stopped: str
) -> None:
    """The model is strict about histories."""

    def story(chat: Chatter) -> list[Any]:
        chat.tool("sum", chat.says(lambda _: "42"))
        chat.set(key, value)
        return [chat.prompt(), chat.prompt("and now?")]

    async with chat_stage(circling) as stage:
        responses = await stage.play(story)
        last = stage.model.requests[-1].messages

    assert [one["toolgate"]["stopped"] for one in responses] == [stopped, stopped]
    assert all(content_of(one).startswith("Stopped: ") for one in responses)
    assert content_of(responses[0]) in [one["content"] for one in last]
    assert "error" not in responses[1]


async def test_budgets_only_narrow_those_of_the_upstream() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda _: "42"))
        for key in ("max_iterations", "max_total_tool_calls", "max_tool_output_bytes", "timeout_ms"):
            assert chat.set(key, 1_000_000) == 0
        return chat.prompt()

    budgets = ChatBudgets(max_iterations=1, max_tool_output_bytes=300)
    async with chat_stage(circling, upstream={"budgets": budgets}) as stage:
        assert (await stage.play(story))["toolgate"]["stopped"] == "round_limit"


@pytest.mark.requirement("002-036")
async def test_results_are_cut_to_their_budget() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda _: "é" * 2_000))
        chat.set("max_tool_output_bytes", 300)
        return chat.prompt()

    async with chat_stage(
        calls(("sum", "{}", "g"), (ECHO, json.dumps({"a": "x" * 900}), "m")), text("ok")
    ) as stage:
        await stage.play(story)
        received = results(stage.model.requests[1])

    assert {name: len(one.encode()) <= 300 and "[cut: " in one for name, one in received.items()} == {
        "g": True,
        "m": True,
    }


async def test_the_calls_of_models_are_calls_of_the_run() -> None:
    def story(chat: Chatter) -> list[Any]:
        chat.tool("sum", chat.says(lambda _: "42"))
        first = chat.prompt()
        assert chat.context.calls.left == 0
        return [
            first,
            chat.prompt("more"),
            chat.guest.call("mcp_call_tool", chat.guest.call("mcp_open", "one"), "echo", "{}", 0, 8_000),
        ]

    async with chat_stage(circling) as stage:
        first, second, code = await stage.play(story, max_calls=3)

        assert len(stage.world.net.servers["one"].calls) == 2
    assert [one["toolgate"]["stopped"] for one in (first, second)] == ["call_limit", "call_limit"]
    assert code == EAGAIN


async def test_a_model_that_breaks_off_after_tools_leaves_a_history_to_continue_with() -> None:
    def story(chat: Chatter) -> Any:
        chat.say("go")
        fd = chat.send(AUTO_TOOL_CALL | ENABLE_METRICS)
        assert chat.guest.received("cchat_ctl", fd, GET_METRICS)["total_tokens"] == 15
        return [chat.recv(fd), chat.prompt(None)]

    script = [calls((ECHO, "{}", "c")), cut(text("hello"), 5), text("there you are")]
    async with chat_stage(*script) as stage:
        broken, response = await stage.play(story)

        assert len(stage.world.net.servers["one"].calls) == 1
    assert (broken["error"]["code"], broken["error"]["retryable"]) == ("model_unavailable", True)
    assert content_of(response) == "there you are"


async def test_a_model_that_says_nothing_leaves_a_history_to_continue_with() -> None:
    silent = whole({"id": "c", "choices": [{"message": {"role": "assistant", "content": None}}]})

    async with chat_stage(silent, text("b")) as stage:
        first, second = await stage.play(lambda chat: [chat.prompt(), chat.prompt()])

    assert (first["toolgate"]["stopped"], content_of(second)) == ("model_silent", "b")


@pytest.mark.parametrize("alongside", [[], [{"id": "f", "function": {"name": ECHO, "arguments": "{}"}}]])
async def test_a_tool_that_is_no_function_leaves_a_history_to_continue_with(alongside: list[Any]) -> None:
    custom = {"id": "x", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    odd = whole({"id": "c", "choices": [{"message": {"content": "hm", "tool_calls": [custom, *alongside]}}]})

    async with chat_stage(odd, text("b")) as stage:
        first, second = await stage.play(lambda chat: [chat.prompt(), chat.prompt()])

        assert error_in(stage.model.requests[1], "x")["code"] == "unknown_tool"
    assert first["choices"][0]["message"]["tool_calls"] == [custom]
    assert content_of(second) == "b"


async def test_the_time_of_a_chat_is_what_it_asks_for_at_most() -> None:
    def script(prompt: Ask) -> Any:
        return hang() if len(prompt.messages) == 1 else text("b")

    def story(chat: Chatter) -> Any:
        chat.set("timeout_ms", 300)
        first = chat.prompt()
        chat.set("timeout_ms", 60_000)
        return [first, chat.prompt()]

    async with chat_stage(script) as stage:
        first, second = await stage.play(story)
        async with asyncio.timeout(60):
            await asyncio.gather(*(prompt.hung_up.wait() for prompt in stage.model.requests[:-1]))

    assert (first["toolgate"]["stopped"], first["model"]) == ("time_limit", "m")
    assert content_of(second) == "b"


async def test_a_call_that_the_end_of_a_chat_cuts_off_is_on_record() -> None:
    net = MemoryNet()

    async def for_ever(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        return RpcResponse(result=text_result(""))

    net.servers["one"].on_call = {"echo": for_ever}

    def story(chat: Chatter) -> Any:
        chat.set("timeout_ms", 600)
        response = chat.prompt()
        assert chat.context.calls.kept == [
            InvocationCall(server_id="one", tool="echo", code="cancelled", ms=0)
        ]
        return response

    async with chat_stage(calls((ECHO, "{}", "c")), net=net) as stage:
        response = await stage.play(story)

        assert net.servers["one"].stopped_by == ["echo"]
    assert response["toolgate"]["stopped"] == "time_limit"


async def test_chats_of_guests_are_counted_as_all_chats_are() -> None:
    def story(chat: Chatter) -> None:
        chat.prompt()
        chat.prompt()
        chat.prompt(flags=RAW)

    async with chat_stage(calls((ECHO, "{}")), text("a"), status(400, {}), text("c")) as stage:
        await stage.play(story)
        metrics = stage.world.world.gateway.metrics

        assert metrics.chats == {
            ("main", "answered"): 1,
            ("main", "model_refused"): 1,
            ("main", "forwarded"): 1,
        }
        assert metrics.chat_rounds.total == 1


async def test_signatures_next_to_calls_are_sent_back() -> None:
    """As Gemini wants it: what is only the model's server's to understand stays."""
    signed = calls(call(ECHO, {}, id="c", extra_content={"google": {"thought_signature": "s"}}))
    async with chat_stage(signed, text("a"), text("b")) as stage:
        await stage.play(lambda chat: [chat.prompt(), chat.prompt()])

        (sent,) = stage.model.requests[2].messages[1]["tool_calls"]
    assert sent["extra_content"] == {"google": {"thought_signature": "s"}}
