"""`spear_epoll_*` and `spear_fd_ctl`, as the ABI has them."""

import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.surfaces.wasm.guest_world import GuestWorld, PlayedGuest, open_guest_world
from tests.upstream.memory_link import MemoryNet, record
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, FdEntry

pytestmark = pytest.mark.anyio

EBADF, EINVAL, ENOENT, ENOSPC, EFAULT = -9, -22, -2, -28, -14
ADD, MOD, DEL = 1, 2, 3
IN, OUT, ERR, HUP = EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP


@pytest.fixture
async def world() -> AsyncIterator[GuestWorld]:
    async with open_guest_world(MemoryNet(), record("one", allowed_tools=("*",))) as world:
        yield world


async def play(world: GuestWorld, story: Callable[[PlayedGuest], None]) -> None:
    await world.play(ALL_FUNCTIONS, story)


class Thing(FdEntry):
    """Ready for what a test says."""

    kind = "Thing"

    def __init__(self, mask: int = 0) -> None:
        super().__init__()
        self.mask = mask

    def poll_mask(self) -> int:
        return self.mask


def wait(guest: PlayedGuest, epfd: int, timeout_ms: int = 0, room: int = 64) -> tuple[int, list[Any]]:
    """What it returns, and the records."""
    out, length_at = 32_768, 32_764
    guest.write_u32(length_at, room)
    code = guest.call("spear_epoll_wait", epfd, out, length_at, timeout_ms)
    stored = guest.read_u32(length_at)
    if code < 0:
        return code, [stored]
    data = guest.read(out, stored, most=room)
    return code, list(struct.iter_unpack("<ii", data))


async def test_a_wait_tells_in_order_what_is_ready_as_long_as_it_is(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        late, early = Thing(IN | OUT), Thing(IN)
        epfd = guest.call("spear_epoll_create")
        one, two = guest.fds.open(early), guest.fds.open(late)
        assert guest.call("spear_epoll_ctl", epfd, ADD, two, IN | OUT) == 0
        assert guest.call("spear_epoll_ctl", epfd, ADD, one, IN) == 0
        assert wait(guest, epfd) == wait(guest, epfd) == (2, [(one, IN), (two, IN | OUT)])
        assert wait(guest, epfd, room=15) == (1, [(one, IN)])
        assert guest.call("spear_epoll_ctl", epfd, MOD, two, OUT) == 0
        early.mask = 0
        assert wait(guest, epfd) == (1, [(two, OUT)])
        assert guest.call("spear_epoll_ctl", epfd, DEL, two, 0) == 0
        assert wait(guest, epfd) == (0, [])
        early.mask = ERR | HUP
        assert wait(guest, epfd) == (1, [(one, ERR | HUP)])

    await play(world, story)


async def test_a_wait_with_nothing_ready_is_a_sleep(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        epfd = guest.call("spear_epoll_create")
        for timeout_ms in (0, 250, -1):
            assert wait(guest, epfd, timeout_ms) == (0, [])
        assert guest.slept_s == [0.25, None]
        fd = guest.fds.open(Thing(IN))
        guest.call("spear_epoll_ctl", epfd, ADD, fd, IN)
        assert wait(guest, epfd, 250) == (1, [(fd, IN)])
        assert guest.slept_s == [0.25, None]

    await play(world, story)


async def test_a_buffer_for_less_than_a_record_is_too_small(world: GuestWorld) -> None:
    """WAS-8"""

    def story(guest: PlayedGuest) -> None:
        epfd = guest.call("spear_epoll_create")
        assert wait(guest, epfd, -1, room=7) == (ENOSPC, [8])
        assert guest.slept_s == []
        assert guest.call("spear_epoll_wait", epfd, 0, -4, 0) == EFAULT

    await play(world, story)


async def test_what_was_closed_is_watched_no_longer_and_does_not_pile_up(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        epfd = guest.call("spear_epoll_create")
        for _ in range(100):
            fd = guest.fds.open(Thing(IN))
            assert guest.call("spear_epoll_ctl", epfd, ADD, fd, IN) == 0
            guest.fds.close(fd)
            assert guest.call("spear_epoll_ctl", epfd, DEL, fd, 0) == EBADF
        assert wait(guest, epfd) == (0, [])
        assert len(guest.fds.get(epfd, FdEntry).interest) <= 2  # type: ignore[attr-defined]

    await play(world, story)


async def test_what_cannot_be_watched_is_refused(world: GuestWorld) -> None:
    """WAS-4"""

    def story(guest: PlayedGuest) -> None:
        epfd, other = guest.call("spear_epoll_create"), guest.call("spear_epoll_create")
        fd = guest.fds.open(Thing())
        refused = {
            (epfd, ADD, epfd): EINVAL,
            (epfd, ADD, other): EINVAL,
            (epfd, 0, fd): EINVAL,
            (epfd, 4, fd): EINVAL,
            (epfd, MOD, fd): ENOENT,
            (epfd, DEL, fd): ENOENT,
            (epfd, ADD, -1): EBADF,
            (epfd, ADD, 2**31 - 1): EBADF,
            (fd, ADD, fd): EBADF,
            (-1, ADD, fd): EBADF,
        }
        for (ep, op, target), code in refused.items():
            assert guest.call("spear_epoll_ctl", ep, op, target, IN) == code
        assert guest.call("spear_epoll_close", fd) == EBADF
        assert guest.call("spear_epoll_close", other) == 0
        assert guest.call("spear_epoll_close", other) == EBADF
        assert wait(guest, other)[0] == EBADF

    await play(world, story)


def set_flags(guest: PlayedGuest, fd: int, data: bytes) -> int:
    guest.write(0, data)
    guest.write_u32(8_000, len(data))
    return guest.call("spear_fd_ctl", fd, 1, 0, 8_000)


async def test_flags_kind_status_and_metrics_of_a_descriptor(world: GuestWorld) -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        assert guest.received("spear_fd_ctl", fd, 2) == {"flags": []}
        assert set_flags(guest, fd, b'{"set":["O_NONBLOCK"]}') == 0
        assert guest.received("spear_fd_ctl", fd, 2) == {"flags": ["O_NONBLOCK"]}
        assert guest.received("spear_fd_ctl", fd, 3) == {"kind": "McpSession"}
        assert guest.received("spear_fd_ctl", fd, 4) == {
            "kind": "McpSession",
            "flags": ["O_NONBLOCK"],
            "poll_mask": [],
            "closed": False,
            "last_error": None,
        }
        assert guest.received("spear_fd_ctl", fd, 5) == {}
        assert set_flags(guest, fd, b'{"set":[],"clear":["O_NONBLOCK"]}') == 0
        assert guest.received("spear_fd_ctl", fd, 2) == {"flags": []}
        code, written = guest.hostcall("spear_fd_ctl", fd, 3, room=4)
        assert (code, written, guest.needed) == (ENOSPC, b"\xee" * 4, len('{"kind":"McpSession"}'))
        assert guest.received("spear_fd_ctl", guest.call("cchat_create"), 3) == {"kind": "ChatSession"}
        thing = guest.fds.open(Thing(IN | HUP))
        assert guest.received("spear_fd_ctl", thing, 4)["poll_mask"] == ["EPOLLIN", "EPOLLHUP"]

    await play(world, story)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}\0",
        b"\xff",
        b'{"set":"O_NONBLOCK"}',
        b'{"set":["O_APPEND"]}',
        b'{"set":[null]}',
        b'{"clear":["O_\xc3\x28"]}',
        b'{"set":["O_NONBLOCK\\u0000"]}',
        json.dumps({"set": ["x"] * 2_000}).encode(),
    ],
)
async def test_unknown_flags_change_nothing(world: GuestWorld, data: bytes) -> None:
    """WAS-10"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        assert set_flags(guest, fd, data) == EINVAL
        assert guest.received("spear_fd_ctl", fd, 2) == {"flags": []}

    await play(world, story)


async def test_commands_and_descriptors_that_do_not_exist(world: GuestWorld) -> None:
    """WAS-4"""

    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        for command in (0, 6, -1, 2**31 - 1):
            assert guest.hostcall("spear_fd_ctl", fd, command)[0] == EINVAL
        for bad in (-1, 0, 1_001, 2**31 - 1):
            assert guest.hostcall("spear_fd_ctl", bad, 3)[0] == EBADF
        guest.call("mcp_close", fd)
        assert guest.hostcall("spear_fd_ctl", fd, 4)[0] == EBADF

    await play(world, story)
