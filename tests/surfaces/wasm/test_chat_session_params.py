"""The parameters of a chat session: held against the policy when they are set, whole or not at all."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import task
from tests.surfaces.wasm.guest_world import TASK, GuestWorld, PlayedGuest, open_guest_world
from tests.upstream.memory_link import MemoryNet, record
from toolgate.policy.layers import SessionRequest, parse_session_params
from toolgate.policy.scope import ScopeLimits
from toolgate.surfaces.wasm.chat_session import GuestChat, SessionParams
from toolgate.surfaces.wasm.context import HostLimits
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS

pytestmark = pytest.mark.anyio

EACCES, EINVAL, EIO, EBADF, ENOMEM = -13, -22, -5, -9, -12
CONFIG = {"default_server_ids": ["one"], "allowed_server_ids": ["one", "two"], "tool_denylist": ["secret"]}
SERVERS = tuple(record(name, allowed_tools=("*",)) for name in ("one", "two", "three"))


@pytest.fixture
async def world() -> AsyncIterator[GuestWorld]:
    async with open_guest_world(MemoryNet(), *SERVERS, config=CONFIG) as world:
        yield world


async def play(world: GuestWorld, story: Callable[[PlayedGuest], None]) -> None:
    await world.play(ALL_FUNCTIONS, story)


def params_of(guest: PlayedGuest, fd: int) -> SessionParams:
    return guest.fds.get(fd, GuestChat).params


def request_of(guest: PlayedGuest, fd: int) -> SessionRequest:
    """What the session asks of the policy."""
    return parse_session_params(params_of(guest, fd).mcp)


def send_raw(guest: PlayedGuest, fd: int, data: bytes) -> int:
    guest.write(0, data)
    guest.write_u32(65_000, len(data))
    return guest.call("cchat_ctl", fd, 1, 0, 65_000)


@pytest.mark.requirement("000-29")
async def test_parameters_that_the_policy_admits_are_what_the_session_asks_for(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert request_of(guest, fd) == SessionRequest()
        for key, value in {
            "mcp.enabled": True,
            "mcp.server_ids": ["two", "one", "two"],
            "mcp.tool_allowlist": ["read_*"],
            "mcp.tool_denylist": ["read_secret"],
        }.items():
            assert guest.set_param(fd, key, value) == 0
        assert request_of(guest, fd) == SessionRequest(
            enabled=True, servers=("one", "two"), allow=("read_*",), deny=("read_secret",)
        )
        assert guest.set_param(fd, "mcp.server_ids", []) == 0
        assert request_of(guest, fd).servers == ()

    await play(world, story)


async def test_what_is_only_requested_leaves_no_trace_in_the_gateway(
    world: GuestWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        for number in range(20):
            assert guest.set_param(fd, "mcp.tool_allowlist", [f"nothing_{number}"]) == 0

    before = world.world.gateway.metrics.empty_scopes
    await play(world, story)

    assert (caplog.messages, world.world.gateway.metrics.empty_scopes) == ([], before)


@pytest.mark.requirement("002-019")
@pytest.mark.parametrize(
    "key", ["mcp.task_tool_allowlist", "mcp.task_tool_denylist", "mcp.task_", "mcp.task_x"]
)
async def test_what_the_task_says_is_not_for_a_guest_to_set(world: GuestWorld, key: str) -> None:
    """WAS-6"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        for value in (["*"], [], None, "x"):
            assert guest.set_param(fd, key, value) == EACCES
        assert request_of(guest, fd) == SessionRequest()

    await play(world, story)

    assert {event.outcome for event in world.world.audited} == {"denied"}


@pytest.mark.requirement("000-30")
@pytest.mark.parametrize("value", [["three"], ["one", "three"], ["nowhere"], ["one", "nowhere", "two"]])
async def test_servers_outside_the_task_are_refused_as_a_whole(world: GuestWorld, value: list[str]) -> None:
    """WAS-7"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert guest.set_param(fd, "mcp.server_ids", ["two"]) == 0
        assert guest.set_param(fd, "mcp.server_ids", value) == EACCES
        assert request_of(guest, fd) == SessionRequest(servers=("two",))

    await play(world, story)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mcp.enabled", 1),
        ("mcp.enabled", "true"),
        ("mcp.enabled", None),
        ("mcp.server_ids", "one"),
        ("mcp.server_ids", ["one", 1]),
        ("mcp.server_ids", [None]),
        ("mcp.server_ids", [""]),
        ("mcp.server_ids", ["no such id"]),
        ("mcp.server_ids", {"one": 1}),
        ("mcp.tool_allowlist", "read"),
        ("mcp.tool_allowlist", [["read"]]),
        ("mcp.tool_denylist", None),
        ("mcp.tool_denylist", ["x"] * 1_025),
        ("mcp.unknown", True),
        ("mcp.", True),
        ("model", 1),
        ("backend", None),
        ("timeout_ms", -1),
        ("timeout_ms", True),
        ("timeout_ms", 1.5),
        ("max_iterations", "8"),
        ("max_total_tool_calls", None),
        ("tool_arena_ptr", 2**32),
        ("tool_arena_len", "x"),
        ("MODEL", "other"),
        ("Timeout_MS", 1),
        ("MCP.enabled", True),
    ],
)
async def test_values_of_the_wrong_kind_are_invalid(world: GuestWorld, key: str, value: Any) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert guest.set_param(fd, key, value) == EINVAL
        params = params_of(guest, fd)
        assert (request_of(guest, fd), params.forwarded, params.size) == (SessionRequest(), {}, 0)

    await play(world, story)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"key":"mod\xffel","value":1}', EINVAL),
        (b'{"key":"model","value":"\xc3\x28"}', EINVAL),
        (b'{"key":"model","value":"m"}\0', EINVAL),
        (b'{"key":"mod\\u0000el","value":1}', EINVAL),
        (b'{"key":"temperature","value":{"a":["\\u0000"]}}', EINVAL),
        (b'{"key":"temperature","value":{"\\u0000":1}}', EINVAL),
        (b"", EIO),
        (b"{", EIO),
        (b"[]", EIO),
        (b'{"value":1}', EIO),
        (b'{"key":"","value":1}', EIO),
        (b'{"key":1,"value":1}', EIO),
        (b'{"key":"temperature","value":NaN}', EIO),
        (b'{"key":"temperature","value":[' + b"[]," * 20_000 + b"0]}", EINVAL),
        (b'{"key":"temperature","value":' + b"[" * 9_000 + b"]" * 9_000 + b"}", EIO),
    ],
)
async def test_bytes_that_are_no_parameter_change_nothing(world: GuestWorld, data: bytes, code: int) -> None:
    """WAS-10"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert send_raw(guest, fd, data) == code
        assert params_of(guest, fd).size == 0

    await play(world, story)


async def test_an_escaped_backslash_before_a_u_is_no_nul(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert send_raw(guest, fd, b'{"key":"stop","value":"\\\\u0000"}') == 0
        assert {key: bytes(raw) for key, raw in params_of(guest, fd).forwarded.items()} == {
            "stop": b'"\\\\u0000"'
        }

    await play(world, story)


async def test_what_is_a_models_is_forwarded_as_it_was_written_and_nothing_else(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        own = {"model": "m", "backend": "b", "tools": [], "messages": [], "stream": True}
        counts = {"timeout_ms": 30_000, "max_iterations": 6, "max_tool_calls": 9, "tool_arena_ptr": 64}
        for key, value in {**own, **counts, "max_tool_output_bytes": 1, "mcp.enabled": True}.items():
            assert guest.set_param(fd, key, value) == 0
        assert send_raw(guest, fd, b'{"key":"seed","value":12345678901234567890123}') == 0
        assert send_raw(guest, fd, b'{"key":"tool_choice"}') == 0
        params = params_of(guest, fd)
        assert {key: bytes(raw) for key, raw in params.forwarded.items()} == {
            "seed": b"12345678901234567890123",
            "tool_choice": b"null",
        }
        assert (params.text("model"), params.text("backend"), params.arena) == ("m", "b", (64, 0))
        assert params.budgets == {
            "wall_clock_ms": 30_000,
            "max_iterations": 6,
            "max_total_tool_calls": 9,
            "max_tool_output_bytes": 256,
        }

    await play(world, story)


async def test_parameters_of_a_session_are_bounded_together(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        codes = {guest.set_param(fd, f"key_{number}", "x" * 30_000) for number in range(40)}
        assert codes == {0, ENOMEM}
        assert params_of(guest, fd).size <= 1_048_576
        assert guest.set_param(fd, "key_0", "x") == 0

    await play(world, story)


async def test_parameters_of_all_sessions_of_a_guest_are_bounded(
    world: GuestWorld,
) -> None:
    world.host_limits = HostLimits(max_chat_bytes=3_000)

    def story(guest: PlayedGuest) -> None:
        fds = [guest.call("cchat_create") for _ in range(4)]
        assert [guest.set_param(fd, "stop", "x" * 1_500) for fd in fds] == [0, 0, ENOMEM, ENOMEM]
        guest.call("cchat_close", fds[0])
        assert guest.set_param(fds[2], "stop", "x") == 0

    await play(world, story)


async def test_what_a_session_says_in_another_way_is_not_kept(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        for key in ("messages", "tools", "stream", "stream_options"):
            assert guest.set_param(fd, key, ["x" * 20_000]) == 0
        assert (params_of(guest, fd).size, params_of(guest, fd).forwarded) == (0, {})

    await play(world, story)


async def test_a_task_that_is_not_enabled_cannot_be_enabled_by_its_guest() -> None:
    config = {"enabled": False, "default_server_ids": ["one"]}
    async with open_guest_world(MemoryNet(), *SERVERS, config=config) as world:

        def story(guest: PlayedGuest) -> None:
            fd = guest.call("cchat_create")
            assert guest.set_param(fd, "mcp.enabled", True) == EACCES
            assert guest.set_param(fd, "mcp.enabled", False) == 0

        await play(world, story)


@pytest.mark.requirement("000-27")
async def test_the_policy_is_that_of_the_moment(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("cchat_create")
        assert guest.set_param(fd, "mcp.server_ids", ["two"]) == 0
        world.world.apply(tasks={TASK: task(TASK, default_server_ids=["one"])})
        assert guest.set_param(fd, "mcp.server_ids", ["two"]) == EACCES
        assert guest.set_param(fd, "mcp.server_ids", ["one"]) == 0

    await play(world, story)


async def test_a_scope_with_too_many_tools_can_still_be_narrowed() -> None:
    config = {"default_server_ids": ["one", "two"]}
    async with open_guest_world(
        MemoryNet(), *SERVERS, config=config, limits=ScopeLimits(max_tools=1)
    ) as world:

        def story(guest: PlayedGuest) -> None:
            fd = guest.call("cchat_create")
            assert guest.set_param(fd, "mcp.enabled", True) == 0
            assert guest.set_param(fd, "mcp.server_ids", ["one"]) == 0

        await play(world, story)


async def test_only_chats_have_parameters(world: GuestWorld) -> None:
    """WAS-4"""

    def story(guest: PlayedGuest) -> None:
        for fd in (guest.call("mcp_open", "one"), guest.call("spear_epoll_create"), -1, 2**31 - 1):
            assert guest.set_param(fd, "model", "m") == EBADF

    await play(world, story)
