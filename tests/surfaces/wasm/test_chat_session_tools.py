"""Functions of a guest that models call: through its table and its arena, whatever they do there."""

from typing import Any

import pytest

from tests.surfaces.openai.chat_world import error_in, results
from tests.surfaces.wasm.chat_stage import ARENA, Chatter, chat_stage, content_of
from tests.upstream.scripted_model import calls, text

pytestmark = pytest.mark.anyio

EBADF, EAGAIN = -9, -11
ECHO = "mcp__one__echo"


async def test_a_function_of_the_guest_hides_a_tool_of_its_name_and_is_the_first_of_its_name() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool(ECHO, chat.says(lambda _: "first"), 1)
        chat.tool(ECHO, chat.says(lambda _: "second"), 2)
        return chat.prompt()

    async with chat_stage(calls((ECHO, "{}", "c")), text("done")) as stage:
        response = await stage.play(story)

        assert results(stage.model.requests[1]) == {"c": "first"}
        assert not stage.world.net.servers["one"].calls
        assert stage.model.requests[0].tool_names == [ECHO]
    assert response["toolgate"] == {"shadowed": [ECHO]}


async def test_a_function_of_the_guest_is_not_what_a_server_has_under_that_name() -> None:
    """`one.echo` is what the gateway itself calls the tool."""

    def story(chat: Chatter) -> Any:
        chat.tool("one.echo", chat.says(lambda _: "the guest's"))
        return chat.prompt()

    both = calls((ECHO, "{}", "m"), ("one.echo", "{}", "g"))
    async with chat_stage(both, text("done"), strict=False) as stage:
        await stage.play(story)

        assert results(stage.model.requests[1]) == {"m": "{}", "g": "the guest's"}


async def test_where_nothing_is_injected_functions_of_the_guest_come_back_and_nothing_is_run() -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", chat.says(lambda _: "never"))
        response = chat.prompt()
        assert chat.context.calls.total == 0
        chat.prompt()
        return response

    async with chat_stage(calls(("sum", "{}")), text("b"), upstream={"mode": "passthrough"}) as stage:
        response = await stage.play(story)

        assert [prompt.tool_names for prompt in stage.model.requests] == [["sum"], ["sum"]]
        assert [one["role"] for one in stage.model.requests[1].messages] == ["user", "user"]
    assert response["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "sum"


async def test_a_call_that_the_run_cannot_pay_for_any_more_is_reported_to_the_model() -> None:
    """A function of the guest has spent what was left when its chat began."""

    def story(chat: Chatter) -> Any:
        def greedy(_: Any) -> str:
            fd = chat.guest.call("mcp_open", "one")
            codes = [chat.guest.hostcall("mcp_call_tool", fd, "echo", '{"a": 1}')[0] for _ in range(5)]
            return str([code for code in codes if code < 0])

        chat.tool("greedy", chat.says(greedy))
        return chat.prompt()

    async with chat_stage(calls(("greedy", "{}", "g")), calls((ECHO, "{}", "m")), text("ok")) as stage:
        await stage.play(story, max_calls=4)

        assert results(stage.model.requests[1]) == {"g": "[-11, -11]"}
        assert error_in(stage.model.requests[2], "m")["code"] == "tool_call_limit"


async def test_a_function_of_the_guest_may_chat_itself_but_not_in_the_same_session() -> None:
    def story(chat: Chatter) -> Any:
        def ask_another(_: Any) -> str:
            assert chat.send() == EAGAIN
            assert chat.guest.hostcall("cchat_recv", chat.fd + 1)[0] == EAGAIN
            assert chat.guest.received("spear_fd_ctl", chat.fd + 1, 4)["poll_mask"] == []
            chat.say("meanwhile")
            other = Chatter(chat.guest)
            other.set("tool_arena_ptr", ARENA + 8_192)
            other.tool("inner", other.says(lambda _: "deep"), 2)
            return f"it says {content_of(other.prompt('nested'))}"

        chat.tool("outer", chat.says(ask_another))
        first = chat.prompt("start")
        return first, chat.prompt(None)

    script = [
        calls(("outer", "{}", "o")),
        calls(("inner", "{}", "i")),
        text("inside"),
        text("outside"),
        text("end"),
    ]
    async with chat_stage(*script) as stage:
        responses = await stage.play(story)
        asks = stage.model.requests

    assert [content_of(one) for one in responses] == ["outside", "end"]
    assert (asks[1].messages[0]["content"], results(asks[2])) == ("nested", {"i": "deep"})
    assert results(asks[3]) == {"o": "it says inside"}
    assert [one["content"] for one in asks[4].messages] == [
        "start",
        None,
        "it says inside",
        "outside",
        "meanwhile",
    ]


async def test_a_function_of_the_guest_may_close_what_its_chat_is_about() -> None:
    def story(chat: Chatter) -> Any:
        def close_both(_: Any) -> str:
            return str([chat.guest.call("cchat_close", fd) for fd in (chat.fd, chat.fd + 1)])

        chat.tool("close", chat.says(close_both))
        chat.say("go")
        response = chat.send()
        return response, chat.guest.hostcall("cchat_recv", response)[0], chat.send()

    async with chat_stage(calls(("close", "{}", "c")), text("done")) as stage:
        assert await stage.play(story) == (1001, EBADF, EBADF)
        assert results(stage.model.requests[1]) == {"c": "[0, 0]"}


def garbled(chat: Chatter, response: bytes, *, length: int | None = None) -> Any:
    def does(_arguments: int, _length: int, out: int, out_length: int) -> int:
        chat.guest.write(out, response)
        chat.guest.write_u32(out_length, len(response) if length is None else length)
        return 0

    return does


@pytest.mark.parametrize(
    ("does", "params", "rc"),
    [
        pytest.param(lambda _: lambda *_: -1, {}, -1, id="it fails"),
        pytest.param(lambda _: lambda *_: 1, {}, 1, id="by any other number"),
        pytest.param(lambda chat: garbled(chat, b"\xff"), {}, -5, id="no UTF-8"),
        pytest.param(lambda chat: garbled(chat, b"x", length=2**32 - 1), {}, -5, id="no length"),
        pytest.param(lambda chat: chat.says(lambda _: "x"), {"tool_arena_ptr": 0}, -14, id="no arena"),
        pytest.param(lambda chat: chat.says(lambda _: "x"), {"tool_arena_len": 0}, -14, id="an empty arena"),
        pytest.param(
            lambda chat: chat.says(lambda _: "x"), {"tool_arena_len": 12}, -28, id="too small for both"
        ),
        pytest.param(lambda chat: chat.says(lambda _: "x"), {"tool_arena_len": 2}, -28, id="for arguments"),
        pytest.param(
            lambda chat: chat.says(lambda _: "x"),
            {"tool_arena_ptr": 65_530},
            -14,
            id="an arena that ends outside",
        ),
        pytest.param(
            lambda chat: chat.says(lambda _: "x"),
            {"tool_arena_ptr": 2**32 - 1},
            -14,
            id="an arena that is nowhere",
        ),
        pytest.param(lambda chat: chat.says(lambda _: "x" * 9_000), {}, -28, id="too small for what it says"),
        pytest.param(lambda _: lambda *_: -28, {}, -28, id="it always wants more"),
    ],
)
async def test_a_function_of_the_guest_that_fails_is_reported_to_the_model(
    does: Any, params: Any, rc: int
) -> None:
    def story(chat: Chatter) -> Any:
        chat.tool("sum", does(chat))
        for key, value in params.items():
            assert chat.set(key, value) == 0
        return chat.prompt()

    async with chat_stage(calls(("sum", "{}", "c")), text("a pity")) as stage:
        assert content_of(await stage.play(story)) == "a pity"
        error = error_in(stage.model.requests[1], "c")

    assert error == {"code": "tool_exec_failed", "message": f"tool rc: {rc}", "retryable": False}


@pytest.mark.requirement("002-029")
async def test_a_function_that_is_not_in_the_table_fails() -> None:
    def story(chat: Chatter) -> Any:
        chat.write_fn({"name": "sum"}, -1)
        response = chat.prompt()
        assert [one.code for one in chat.context.calls.kept] == ["tool_exec_failed"]
        return response

    async with chat_stage(calls(("sum", "{}", "c")), text("a pity")) as stage:
        await stage.play(story)

        assert error_in(stage.model.requests[1], "c")["message"] == "tool rc: -22"


async def test_a_function_that_needs_more_room_is_called_once_more_with_it() -> None:
    seen: list[tuple[int, int]] = []

    def story(chat: Chatter) -> Any:
        says = chat.says(lambda sent: sent["word"] * 500)

        def does(arguments: int, length: int, out: int, out_length: int) -> int:
            assert chat.guest.memory[arguments + length] == 0
            assert (arguments, out % 8) == (ARENA, 0)
            code: int = says(arguments, length, out, out_length)
            seen.append((chat.guest.read_u32(out_length), code))
            return code

        chat.tool("sum", does)
        chat.set("max_tool_output_bytes", 256)
        return chat.prompt()

    async with chat_stage(calls(("sum", '{"word": "ab"}', "c")), text("ok")) as stage:
        await stage.play(story)

        assert results(stage.model.requests[1])["c"].startswith("ababab")
    assert seen == [(1_000, -28), (1_000, 0)]
