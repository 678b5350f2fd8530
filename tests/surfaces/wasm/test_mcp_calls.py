"""`mcp_*`: a guest has of its task's servers what policy lets it have, and every failure is a number."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from tests.surfaces.mcp.mcp_world import task
from tests.surfaces.wasm.guest_world import TASK, GuestWorld, PlayedGuest, open_guest_world
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, record, text_result
from toolgate.model.invocations import InvocationCall
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.tasks import WorkloadLimits
from toolgate.policy.scope import ScopeLimits
from toolgate.surfaces.wasm.context import HostLimits
from toolgate.surfaces.wasm.descriptors import GET_STATUS
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

T = TypeVar("T")
EAGAIN, EACCES, EINVAL, ENOENT, EIO, EBADF, EMFILE, E2BIG = -11, -13, -22, -2, -5, -9, -24, -7
ENOSPC, ENOMEM, EFAULT, ETIMEDOUT = -28, -12, -14, -110


def net(**on_call: Callable[[Json], Any]) -> MemoryNet:
    server = MemoryServer(
        tools=(definition("read", description="Read."), definition("write"), *map(definition, on_call)),
        on_call=on_call,
    )
    return MemoryNet(one=server)


def one(server_id: str = "one", **fields: Any) -> Any:
    return record(server_id, **({"allowed_tools": ("*",)} | fields))


async def play(world: GuestWorld, story: Callable[[PlayedGuest], T], **limits: int) -> T:
    return await world.play(ALL_FUNCTIONS, story, limits=WorkloadLimits(**limits))


def status(guest: PlayedGuest, fd: int) -> Any:
    return guest.received("spear_fd_ctl", fd, GET_STATUS)


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.requirement("002-037", "002-038", "002-039", "002-040")
async def test_a_guest_lists_and_calls_the_tools_of_a_server_by_their_own_names() -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        listed = guest.received("mcp_list_tools", fd)
        result = guest.received("mcp_call_tool", fd, "read", '{"path": "a"}')

        assert fd == 1_000
        assert listed == {
            "server_id": "one",
            "tools": [
                {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}},
                {"name": "write", "description": "", "inputSchema": {"type": "object"}},
            ],
        }
        assert json.loads(text_of(result)) == {"path": "a"}
        assert guest.call("mcp_close", fd) == 0
        assert guest.call("mcp_close", fd) == EBADF

    async with open_guest_world(net(), one()) as world:
        await play(world, story)

        (audited,) = world.world.audited
        assert (audited.door, audited.principal, audited.task_id) == ("hostcall", "agent", TASK)
        assert (audited.server_id, audited.tool, audited.outcome) == ("one", "read", "ok")


@pytest.mark.requirement("000-20", "002-003")
async def test_a_server_outside_the_task_is_refused_whether_it_exists_or_not() -> None:
    def story(guest: PlayedGuest) -> list[int]:
        return [guest.call("mcp_open", name) for name in ("two", "nowhere", "No Server", "", "gone", "shy")]

    config = {"default_server_ids": ["one"], "allowed_server_ids": ["gone", "one", "shy"]}
    async with open_guest_world(
        net(), one(), one("two"), one("shy", allowed_tools=()), config=config
    ) as world:
        assert await play(world, story) == [EACCES, EACCES, EACCES, EACCES, ENOENT, ENOENT]
        assert [event.outcome for event in world.world.audited] == ["denied"] * 4


@pytest.mark.requirement("000-27")
async def test_a_task_that_is_not_enabled_or_gone_has_no_servers() -> None:
    def story(guest: PlayedGuest) -> tuple[int, Any]:
        return guest.call("mcp_open", "one"), guest.received("mcp_registry_list")

    config = {"enabled": False, "default_server_ids": ["one"]}
    async with open_guest_world(net(), one(), config=config) as world:
        assert await play(world, story) == (EACCES, {"servers": []})


async def test_each_call_asks_the_policy_again() -> None:
    """What was open before a task was narrowed is no way around it."""
    async with open_guest_world(net(), one()) as world:

        def narrow(**config: Any) -> None:
            world.world.apply(tasks={TASK: task(TASK, default_server_ids=["one"], **config)})

        def story(guest: PlayedGuest) -> None:
            fd = guest.call("mcp_open", "one")
            narrow(tool_denylist=["write"])
            assert [tool["name"] for tool in guest.received("mcp_list_tools", fd)["tools"]] == ["read"]
            assert guest.hostcall("mcp_call_tool", fd, "write", "{}")[0] == ENOENT
            assert guest.hostcall("mcp_call_tool", fd, "read", "{}")[0] > 0
            narrow(enabled=False)
            assert guest.hostcall("mcp_call_tool", fd, "read", "{}")[0] == EACCES
            assert guest.hostcall("mcp_list_tools", fd)[0] == EACCES
            world.world.apply(tasks={})
            assert guest.hostcall("mcp_call_tool", fd, "read", "{}")[0] == ENOENT

        await play(world, story)

        assert [seen.params["name"] for seen in world.net["one"].calls] == ["read"]


async def test_the_ceiling_of_the_invokers_key_holds() -> None:
    async with open_guest_world(net(), one()) as world:
        bound = Principal(id="bound", role="agent", ceiling=Ceiling(deny=("write",)))

        def story(guest: PlayedGuest) -> None:
            fd = guest.call("mcp_open", "one")
            assert [tool["name"] for tool in guest.received("mcp_list_tools", fd)["tools"]] == ["read"]
            assert guest.hostcall("mcp_call_tool", fd, "write", "{}")[0] == ENOENT

        await world.play(ALL_FUNCTIONS, story, principal=bound)


@pytest.mark.requirement("000-28")
async def test_a_hidden_tool_answers_like_one_that_does_not_exist() -> None:
    def story(guest: PlayedGuest) -> list[tuple[int, Any]]:
        fd = guest.call("mcp_open", "one")
        codes = []
        for name in ("write", "nope"):
            code, _ = guest.hostcall("mcp_call_tool", fd, name, "{}")
            error = status(guest, fd)["last_error"]
            codes.append((code, {**error, "message": error["message"].replace(name, "…")}))
        return codes

    config = {"default_server_ids": ["one"], "tool_denylist": ["write"]}
    async with open_guest_world(net(), one(), config=config) as world:
        hidden, missing = await play(world, story)

    assert hidden == missing
    assert hidden[0] == ENOENT
    assert hidden[1]["code"] == "unknown_tool"


@pytest.mark.parametrize(
    "arguments",
    ["", " ", "null", "[]", "1", "{", '{"a":1,"a":2}', '{"a":1}{}', b"\xff{}", b"{}\0", '{"a": NaN}'],
)
async def test_arguments_that_are_not_one_json_object_run_nothing(arguments: str | bytes) -> None:
    """WAS-10"""

    def story(guest: PlayedGuest) -> int:
        fd = guest.call("mcp_open", "one")
        return guest.hostcall("mcp_call_tool", fd, "read", arguments)[0]

    async with open_guest_world(net(), one()) as world:
        assert await play(world, story) == EINVAL
        assert world.net["one"].calls == []


@pytest.mark.parametrize("name", [b"\xc3\x28", b"one\0", b"\0", b"a" * 4_000])
async def test_names_that_are_no_text_are_invalid(name: bytes) -> None:
    """WAS-10"""

    def story(guest: PlayedGuest) -> list[int]:
        fd = guest.call("mcp_open", "one")
        return [
            guest.call("mcp_open", name),
            guest.hostcall("mcp_call_tool", fd, name, "{}")[0],
            guest.hostcall("mcp_registry_get", name)[0],
        ]

    async with open_guest_world(net(), one()) as world:
        assert await play(world, story) == [EINVAL] * 3


async def test_a_buffer_that_is_too_small_never_runs_a_tool_twice() -> None:
    """WAS-8"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        whole = guest.received("mcp_call_tool", fd, "read", '{"n": 1}')
        for room in (0, 1, 8):
            code, written = guest.hostcall("mcp_call_tool", fd, "read", '{"n": 1}', room=room)
            assert (code, written) == (ENOSPC, b"\xee" * room)
        needed = guest.needed
        assert status(guest, fd)["poll_mask"] == ["EPOLLIN"]
        code, written = guest.hostcall("mcp_call_tool", fd, "read", '{"n": 1}', room=needed)
        assert (code, json.loads(written)) == (needed, whole)
        assert status(guest, fd)["poll_mask"] == []

    async with open_guest_world(net(), one()) as world:
        await play(world, story)

        assert len(world.net["one"].calls) == 2


async def test_a_kept_result_is_for_the_same_call_on_the_same_descriptor_alone() -> None:
    """WAS-8"""

    def story(guest: PlayedGuest) -> None:
        fd, other = guest.call("mcp_open", "one"), guest.call("mcp_open", "one")
        assert guest.hostcall("mcp_call_tool", fd, "read", '{"n": 1}', room=0)[0] == ENOSPC
        assert text_of(guest.received("mcp_call_tool", other, "read", '{"n": 2}')) == '{"n":2}'
        assert text_of(guest.received("mcp_call_tool", fd, "read", '{"n": 3}')) == '{"n":3}'
        assert text_of(guest.received("mcp_call_tool", fd, "read", '{"n": 1}')) == '{"n":1}'

    async with open_guest_world(net(), one()) as world:
        await play(world, story)

        assert [seen.params["arguments"]["n"] for seen in world.net["one"].calls] == [1, 2, 3, 1]


async def test_a_buffer_that_cannot_be_written_runs_nothing() -> None:
    def story(guest: PlayedGuest) -> list[int]:
        fd = guest.call("mcp_open", "one")
        guest.write_u32(100, 64)
        return [
            guest.call("mcp_call_tool", fd, "read", "{}", out, length)
            for out, length in ((65_500, 100), (-1, 100), (0, 65_534), (0, -4))
        ]

    async with open_guest_world(net(), one()) as world:
        assert await play(world, story) == [EFAULT] * 4
        assert world.net["one"].calls == []


async def test_what_a_guest_leaves_with_the_host_is_bounded() -> None:
    """No result is lost for it: where too much is left, no further tool runs until some of it is taken."""
    arguments = json.dumps({"n": "0123456789" * 50})

    def story(guest: PlayedGuest) -> None:
        fds = [guest.call("mcp_open", "one") for _ in range(4)]
        codes = [guest.hostcall("mcp_call_tool", fd, "read", arguments, room=0)[0] for fd in fds]
        assert codes == [ENOSPC, ENOSPC, ENOMEM, ENOMEM]
        assert text_of(guest.received("mcp_call_tool", fds[0], "read", arguments))
        assert guest.hostcall("mcp_call_tool", fds[2], "read", "{}")[0] > 0
        guest.call("mcp_close", fds[1])

    async with open_guest_world(net(), one(), host_limits=HostLimits(max_result_bytes=1_500)) as world:
        await play(world, story)

        assert len(world.net["one"].calls) == 3


async def fails(_: Json) -> RpcResponse:
    return RpcResponse(result=msgspec.json.encode({"content": [], "isError": True}))


async def refuses(_: Json) -> RpcResponse:
    return RpcResponse(error=b'{"code":-32602,"message":"no such path"}')


async def asks(_: Json) -> RpcResponse:
    question = {"method": "elicitation/create", "params": {"message": "who?"}}
    return RpcResponse(
        result=msgspec.json.encode({"resultType": "input_required", "inputRequests": {"q": question}})
    )


async def test_what_becomes_of_a_call_is_reported_as_a_result_or_as_a_number() -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        assert guest.received("mcp_call_tool", fd, "fails", "{}")["isError"] is True
        assert guest.received("mcp_call_tool", fd, "refuses", "{}") == {
            "error": {"code": "mcp_invalid_arguments", "message": "no such path", "retryable": True}
        }
        assert status(guest, fd)["last_error"] is None
        assert guest.hostcall("mcp_call_tool", fd, "asks", "{}")[0] == EIO
        assert status(guest, fd)["last_error"]["code"] == "mcp_input_not_given"
        calls = guest.context.calls
        assert calls.total == 3
        assert [(made.tool, made.code) for made in calls.kept] == [
            ("fails", "tool_error"),
            ("refuses", "mcp_invalid_arguments"),
            ("asks", "mcp_input_not_given"),
        ]

    async with open_guest_world(net(fails=fails, refuses=refuses, asks=asks), one()) as world:
        await play(world, story)


async def test_a_tool_that_takes_too_long_is_a_timeout() -> None:
    async def hangs(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    def story(guest: PlayedGuest) -> tuple[int, Any]:
        fd = guest.call("mcp_open", "one")
        return guest.hostcall("mcp_call_tool", fd, "hangs", "{}")[0], status(guest, fd)["last_error"]

    async with open_guest_world(net(hangs=hangs), one(timeout_ms=10)) as world:
        code, error = await play(world, story)

    assert code == ETIMEDOUT
    assert (error["code"], error["retryable"]) == ("mcp_timeout", True)


async def test_a_run_makes_as_many_calls_as_it_may_and_no_more() -> None:
    def story(guest: PlayedGuest) -> list[int]:
        fd = guest.call("mcp_open", "one")
        names = ("read", "nope", "read", "read")
        return [guest.hostcall("mcp_call_tool", fd, name, "{}")[0] for name in names]

    async with open_guest_world(net(), one()) as world:
        ok, unknown, *spent = await play(world, story, max_calls=2)

        assert (ok > 0, unknown, spent) == (True, ENOENT, [EAGAIN, EAGAIN])
        assert len(world.net["one"].calls) == 1


async def test_the_calls_of_a_run_are_kept() -> None:
    def story(guest: PlayedGuest) -> list[InvocationCall]:
        fd = guest.call("mcp_open", "one")
        guest.hostcall("mcp_call_tool", fd, "read", "{}")
        guest.hostcall("mcp_call_tool", fd, "nope", "{}")
        return guest.context.calls.kept

    async with open_guest_world(net(), one()) as world:
        kept = await play(world, story)

    assert [(made.server_id, made.tool, made.code) for made in kept] == [
        ("one", "read", ""),
        ("one", "nope", "unknown_tool"),
    ]


@pytest.mark.requirement("002-041")
async def test_the_registry_shows_exactly_what_can_be_opened_and_nothing_of_where_it_runs() -> None:
    servers = (
        one(display_name="One", tags=("a", "b"), command="secret-command"),
        one("two", allowed_tools=()),
        one("three", enabled=False),
        one("four"),
    )

    def story(guest: PlayedGuest) -> None:
        shown = guest.received("mcp_registry_list")
        assert shown == {
            "servers": [
                {"server_id": "one", "display_name": "One", "tags": ["a", "b"], "tools": ["read", "write"]}
            ]
        }
        for server_id in ("one", "two", "three", "four", "gone", "nowhere"):
            opened = guest.call("mcp_open", server_id)
            code, data = guest.hostcall("mcp_registry_get", server_id)
            assert (opened >= 0) == (code > 0) == (server_id == "one")
            assert code == ENOENT or json.loads(data) == shown["servers"][0]

    config = {"default_server_ids": ["one"], "allowed_server_ids": ["gone", "one", "three", "two"]}
    async with open_guest_world(net(), *servers, config=config) as world:
        await play(world, story)


@pytest.mark.parametrize("on_too_many", ["refuse", "find"])
async def test_a_server_with_too_many_tools_is_refused_or_searched_as_on_its_own_path(
    on_too_many: Any,
) -> None:
    def story(guest: PlayedGuest) -> tuple[int, list[str], Any]:
        fd = guest.call("mcp_open", "one")
        servers = guest.received("mcp_registry_list")["servers"]
        if fd < 0:
            return fd, [one["server_id"] for one in servers], None
        names = [tool["name"] for tool in guest.received("mcp_list_tools", fd, room=16_000)["tools"]]
        call = '{"name": "read", "arguments": {"n": 1}}'
        return fd, names, text_of(guest.received("mcp_call_tool", fd, "call_tool", call))

    limits = ScopeLimits(max_tools=1, on_too_many=on_too_many)
    async with open_guest_world(net(), one(), limits=limits) as world:
        received = await play(world, story)

    if on_too_many == "refuse":
        assert received == (E2BIG, [], None)
    else:
        assert received == (1_000, ["call_tool", "describe_tool", "search_tools"], '{"n":1}')


async def test_results_of_modern_servers_have_their_plain_form() -> None:
    async def modern(_: Json) -> RpcResponse:
        result = {"resultType": "complete", "content": [], "structuredContent": [1, 2]}
        return RpcResponse(result=msgspec.json.encode(result))

    def story(guest: PlayedGuest) -> Any:
        return guest.received("mcp_call_tool", guest.call("mcp_open", "one"), "modern", "{}")

    async with open_guest_world(net(modern=modern), one()) as world:
        assert await play(world, story) == json.loads(text_result("[1,2]"))


async def test_a_guest_keeps_no_more_descriptors_than_it_may() -> None:
    def story(guest: PlayedGuest) -> None:
        fds = [guest.call("mcp_open", "one") for _ in range(4)]
        assert fds == [1_000, 1_001, 1_002, EMFILE]
        assert guest.call("spear_epoll_create") == EMFILE
        assert guest.call("mcp_close", 1_001) == 0
        assert guest.call("mcp_open", "one") == 1_003
        assert guest.call("mcp_close", 1_001) == EBADF

    async with open_guest_world(net(), one()) as world:
        await play(world, story, max_fds=3)


async def test_denials_of_one_guest_do_not_fill_the_audit() -> None:
    def story(guest: PlayedGuest) -> set[int]:
        return {guest.call("mcp_open", "two") for _ in range(300)}

    async with open_guest_world(net(), one()) as world:
        assert await play(world, story) == {EACCES}
        assert len(world.world.audited) == 100
