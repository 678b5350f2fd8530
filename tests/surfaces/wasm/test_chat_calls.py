"""`cchat_*` by their numbers: what a session takes, what it refuses, and what it never lets a guest do."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.surfaces.wasm.chat_stage import Chatter, chat_stage, content_of
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from tests.upstream.scripted_model import calls, text
from toolgate.surfaces.wasm.chat_calls import AUTO_TOOL_CALL, ENABLE_METRICS, GET_METRICS, SET_PARAM
from toolgate.surfaces.wasm.context import HostLimits
from toolgate.wasm.abi import Errno, HostcallFault

pytestmark = pytest.mark.anyio

EIO, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, EINVAL, EMFILE, ENOSPC = -5, -9, -11, -12, -13, -14, -22, -24, -28
LENGTH_AT = 32_764


def ctl(chat: Chatter, fd: int, command: int, data: bytes) -> int:
    chat.guest.write_u32(LENGTH_AT, len(data))
    chat.guest.write(0, data)
    return chat.guest.call("cchat_ctl", fd, command, 0, LENGTH_AT)


USES: dict[str, Callable[[Chatter, int], int]] = {
    "cchat_write_msg": lambda chat, fd: chat.guest.call("cchat_write_msg", fd, "user", "hi"),
    "cchat_write_fn": lambda chat, fd: chat.guest.call("cchat_write_fn", fd, 1, '{"name": "f"}'),
    "cchat_ctl": lambda chat, fd: ctl(chat, fd, SET_PARAM, b'{"key": "a", "value": 1}'),
    "cchat_ctl metrics": lambda chat, fd: ctl(chat, fd, GET_METRICS, b""),
    "cchat_send": lambda chat, fd: chat.guest.call("cchat_send", fd, 0),
    "cchat_recv": lambda chat, fd: chat.guest.hostcall("cchat_recv", fd)[0],
    "cchat_close": lambda chat, fd: chat.guest.call("cchat_close", fd),
}
OF_SESSIONS = ("cchat_write_msg", "cchat_write_fn", "cchat_send")
OF_ANSWERS = ("cchat_recv", "cchat_ctl metrics")


@pytest.mark.requirement("002-099")
@pytest.mark.parametrize("name", USES)
async def test_a_descriptor_that_is_invalid_or_of_another_kind_is_bad(name: str) -> None:
    """WAS-4"""

    def story(chat: Chatter) -> list[int]:
        guest = chat.guest
        response, other = chat.send(), guest.call("spear_epoll_create")
        server, closed = guest.call("mcp_open", "one"), guest.call("cchat_create")
        assert guest.call("cchat_close", closed) == 0
        wrong = [response] if name in OF_SESSIONS else [chat.fd] if name in OF_ANSWERS else []
        return [
            USES[name](chat, fd) for fd in (-1, 0, 999, 2**31 - 1, -(2**31), other, server, closed, *wrong)
        ]

    async with chat_stage() as stage:
        codes = await stage.play(story)

    assert set(codes) == {EBADF}


async def test_a_guest_has_only_so_many_descriptors() -> None:
    """WAS-5. An answer needs one, and nothing is requested if there is no room for it."""

    def story(chat: Chatter) -> None:
        fds = [chat.guest.call("cchat_create") for _ in range(9)]

        assert fds == [*range(1001, 1008), EMFILE, EMFILE]
        chat.say("hi")
        assert chat.send() == EMFILE
        assert chat.guest.call("cchat_close", 1001) == 0
        assert content_of(chat.recv(chat.send())) == "hello"

    async with chat_stage(text("hello")) as stage:
        await stage.play(story, max_fds=8)

        assert len(stage.model.requests) == 1


async def test_a_send_that_cannot_even_begin_takes_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(_: object) -> None:
        raise HostcallFault(Errno.EAGAIN)

    def story(chat: Chatter) -> None:
        chat.say("hi")
        monkeypatch.setattr(chat.guest, "serve", too_deep)
        assert [chat.send() for _ in range(20)] == [EAGAIN] * 20
        monkeypatch.undo()
        assert content_of(chat.recv(chat.send())) == "hello"

    async with chat_stage(text("hello")) as stage:
        await stage.play(story, max_fds=2)


async def test_pointers_that_lead_out_of_the_memory_are_faults() -> None:
    """WAS-3"""

    def story(chat: Chatter) -> None:
        guest, out = chat.guest, 65_536
        response = chat.send()
        for pointer, length in ((out, 1), (out - 1, 2), (-1, 1), (0, -1), (2**31, 2**31 - 1)):
            assert guest.call("cchat_write_msg", chat.fd, pointer, length, 0, 1) == EFAULT
            assert guest.call("cchat_write_msg", chat.fd, 0, 1, pointer, length) == EFAULT
            assert guest.call("cchat_write_fn", chat.fd, 0, pointer, length) == EFAULT
        for pointer in (out, out - 3, -1, -4):
            assert guest.call("cchat_ctl", chat.fd, SET_PARAM, 0, pointer) == EFAULT
            assert guest.call("cchat_ctl", response, GET_METRICS, 0, pointer) == EFAULT
            assert guest.call("cchat_recv", response, 0, pointer) == EFAULT
        guest.write_u32(LENGTH_AT, 100)
        assert guest.call("cchat_recv", response, out - 99, LENGTH_AT) == EFAULT

    async with chat_stage() as stage:
        await stage.play(story)


async def test_a_message_is_bytes_made_text() -> None:
    """As SPEAR has it: what is no UTF-8 is replaced, and roles are judged when it is sent."""

    def story(chat: Chatter) -> Any:
        assert chat.guest.call("cchat_write_msg", chat.fd, b"user", b"a\xff\0b") == 0
        assert chat.guest.call("cchat_write_msg", chat.fd, b"x" * 300, b"long") == EINVAL
        return chat.prompt(None)

    async with chat_stage(text("hello")) as stage:
        assert content_of(await stage.play(story)) == "hello"

        assert stage.model.requests[0].messages == [{"role": "user", "content": "a�\0b"}]


async def test_a_session_takes_only_so_much() -> None:
    def story(chat: Chatter) -> None:
        write = ("cchat_write_msg", chat.fd, "user")
        assert chat.guest.call(*write, "x" * 1_900) == 0
        assert chat.guest.call(*write, "x" * 100) == ENOMEM
        assert [chat.write_fn({"name": f"f{at}"}) for at in range(4)] == [0, 0, 0, ENOMEM]
        assert chat.write_fn({"name": "f0"}) == 0
        other = Chatter(chat.guest)
        assert other.write_fn({"name": "f", "description": "x" * 2_000}) == ENOMEM

    async with chat_stage(host_limits=HostLimits(max_session_bytes=2_000, max_guest_tools=3)) as stage:
        await stage.play(story)


async def test_what_a_guest_has_open_is_bounded_as_a_whole() -> None:
    def story(chat: Chatter) -> None:
        chat.say("x" * 1_500)
        other = Chatter(chat.guest)
        other.say("x" * 500)
        assert other.guest.call("cchat_write_msg", other.fd, "user", "x") == ENOMEM
        assert other.write_fn({"name": "f"}) == ENOMEM
        assert other.send() == ENOMEM
        assert chat.guest.call("cchat_close", chat.fd) == 0
        assert content_of(other.recv(other.send())) == "hello"

    async with chat_stage(text("hello"), host_limits=HostLimits(max_chat_bytes=2_000)) as stage:
        await stage.play(story)


async def test_a_session_that_an_answer_has_made_too_large_is_asked_no_more() -> None:
    def story(chat: Chatter) -> Any:
        chat.prompt("hi")
        assert chat.guest.call("cchat_write_msg", chat.fd, "user", "x") == ENOMEM
        return chat.prompt(None)

    async with chat_stage(text("x" * 2_000), host_limits=HostLimits(max_session_bytes=1_000)) as stage:
        response = await stage.play(story)

        assert (response["error"]["code"], len(stage.model.requests)) == ("too_large", 1)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        pytest.param({"type": "function", "function": {"name": "f"}}, 0, id="a tool"),
        pytest.param({"function": {"name": "f"}}, 0, id="a tool without a type"),
        pytest.param({"name": "f", "parameters": {}}, 0, id="a function alone"),
        pytest.param({"type": "function", "name": "f"}, 0, id="a function with its type"),
        pytest.param(b'{"name": "f", "description": "\xff"}', 0, id="no UTF-8"),
        pytest.param(b'{"name": ', EINVAL, id="no JSON"),
        pytest.param(b"", EINVAL, id="nothing"),
        pytest.param([], EINVAL, id="no object"),
        pytest.param({}, EINVAL, id="no name"),
        pytest.param({"name": 1}, EINVAL, id="a name that is no text"),
        pytest.param({"name": "no name"}, EINVAL, id="what no function can be called"),
        pytest.param({"type": "function", "function": 1}, EINVAL, id="a function that is invalid"),
        pytest.param({"type": "custom", "custom": {"name": "f"}}, EINVAL, id="no function"),
    ],
)
async def test_what_may_be_declared_as_a_function(declared: Any, expected: int) -> None:
    async with chat_stage() as stage:
        assert await stage.play(lambda chat: chat.write_fn(declared)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"{", EIO, id="no JSON"),
        pytest.param(b"[]", EIO, id="no object"),
        pytest.param(b'{"value": 1}', EIO, id="no key"),
        pytest.param(b'{"key": "", "value": 1}', EIO, id="an empty key"),
        pytest.param(b'{"key": 1}', EIO, id="a key that is no text"),
        pytest.param(b'{"key": "a"}', 0, id="no value is null"),
        pytest.param(b'{"key": "\xff", "value": 1}', EINVAL, id="no UTF-8 in a key"),
        pytest.param(b'{"key": "a", "value": "\xff"}', EINVAL, id="no UTF-8 in a value"),
        pytest.param(b'{"key": "a\\u0000", "value": 1}', EINVAL, id="NUL in a key"),
        pytest.param(b'{"key": "a", "value": ["\\u0000"]}', EINVAL, id="NUL in a value"),
        pytest.param(b'{"key": "mcp.enabled", "value": 1}', EINVAL, id="no flag"),
        pytest.param(b'{"key": "mcp.server_ids", "value": "one"}', EINVAL, id="no list"),
        pytest.param(b'{"key": "mcp.server_ids", "value": ["one", 1]}', EINVAL, id="no texts"),
        pytest.param(b'{"key": "mcp.server_ids", "value": ["one", "two"]}', EACCES, id="WAS-7"),
        pytest.param(b'{"key": "mcp.task_tool_allowlist", "value": ["*"]}', EACCES, id="WAS-6"),
        pytest.param(b'{"key": "mcp.task_tool_denylist", "value": []}', EACCES, id="WAS-6 deny"),
    ],
)
async def test_parameters(data: bytes, expected: int) -> None:
    """WAS-10. On an answer they change nothing, and are refused all the same."""

    def story(chat: Chatter) -> list[int]:
        return [ctl(chat, fd, SET_PARAM, data) for fd in (chat.fd, chat.send())]

    async with chat_stage() as stage:
        assert await stage.play(story) == [expected, expected]


async def test_a_refused_parameter_changes_nothing() -> None:
    """WAS-6, WAS-7"""

    def story(chat: Chatter) -> Any:
        assert chat.set("mcp.tool_allowlist", ["read"]) == 0
        for key, value in {
            "mcp.server_ids": ["one", "secret"],
            "mcp.task_tool_allowlist": ["*"],
            "mcp.tool_allowlist": [1],
            "mcp.enabled": "yes",
            "model": 5,
            "max_iterations": -1,
        }.items():
            assert chat.set(key, value) < 0
        return chat.prompt("hi")

    async with chat_stage(text("hello"), net=two_tools()) as stage:
        await stage.play(story)

        assert stage.model.requests[0].tool_names == ["mcp__one__read"]
        assert [one.outcome for one in stage.world.world.audited if one.door == "hostcall"] == ["denied"] * 2


def two_tools() -> MemoryNet:
    return MemoryNet(one=MemoryServer(tools=(definition("read"), definition("write"))))


async def test_a_session_takes_only_so_many_parameters() -> None:
    def story(chat: Chatter) -> list[int]:
        codes = [chat.set(f"p{at}", at) for at in range(300)]
        assert chat.set("p0", "another") == 0
        assert Chatter(chat.guest).set("large", "x" * 20_000) == 0
        return [codes.count(0), codes.count(ENOMEM)]

    async with chat_stage() as stage:
        assert await stage.play(story) == [253, 47]


async def test_commands_that_there_are_not() -> None:
    def story(chat: Chatter) -> list[int]:
        return [ctl(chat, fd, command, b"{}") for fd in (chat.fd, chat.send()) for command in (0, 3, -1)]

    async with chat_stage() as stage:
        assert set(await stage.play(story)) == {EINVAL}


async def test_metrics_are_what_the_model_says_it_used_where_they_are_requested() -> None:
    def story(chat: Chatter) -> list[Any]:
        chat.say("hi")
        fds = [
            chat.send(AUTO_TOOL_CALL | ENABLE_METRICS),
            chat.send(AUTO_TOOL_CALL),
            chat.send(ENABLE_METRICS),
        ]
        assert chat.guest.hostcall("cchat_ctl", fds[0], GET_METRICS, room=3)[0] == ENOSPC
        received = [chat.guest.received("cchat_ctl", fd, GET_METRICS) for fd in fds]
        assert received == [chat.guest.received("spear_fd_ctl", fd, 5) for fd in fds]
        return received

    async with chat_stage(calls(("mcp__one__echo", "{}")), text("a"), text("b"), text("c")) as stage:
        received = await stage.play(story)

    one = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert received == [{name: 2 * count for name, count in one.items()}, {}, one]


async def test_an_answer_is_read_as_often_as_one_likes_and_gone_when_closed() -> None:
    """WAS-8"""

    def story(chat: Chatter) -> None:
        chat.say("hi")
        fd = chat.send()
        guest = chat.guest
        code, data = guest.hostcall("cchat_recv", fd, room=10)
        assert (code, data) == (ENOSPC, b"\xee" * 10)
        size = guest.needed
        again = [guest.hostcall("cchat_recv", fd, room=size) for _ in range(2)]
        assert again[0] == again[1]
        assert (again[0][0], content_of(json.loads(again[0][1]))) == (size, "hello")
        assert guest.received("spear_fd_ctl", fd, 4)["poll_mask"] == ["EPOLLIN"]
        assert [guest.call("cchat_close", fd) for _ in range(2)] == [0, EBADF]
        assert guest.hostcall("cchat_recv", fd)[0] == EBADF

    async with chat_stage(text("hello")) as stage:
        await stage.play(story)

        assert len(stage.model.requests) == 1
