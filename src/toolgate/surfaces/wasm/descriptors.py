"""`spear_epoll_*` and `spear_fd_ctl`: wait for descriptors, and query or narrow one.

Hostcalls are synchronous, so no descriptor becomes ready while a guest waits: a wait without a ready
descriptor is a sleep.

An MCP descriptor begins with everything that the task allows the guest. A change can only narrow it: fewer
tools, fewer calls, less time, less output. Policy checks the lists like those of a request, so a tool that a
descriptor excludes looks like a missing one.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from toolgate.errors import InvalidParams, PolicyDenied
from toolgate.model.json_text import UNREADABLE
from toolgate.model.names import ToolRef, kind_of
from toolgate.model.tools import UNSTATED
from toolgate.policy.layers import parse_session_params
from toolgate.policy.patterns import Patterns, effect_of, has_wildcard
from toolgate.surfaces.wasm.context import TaskGuest, decode_text
from toolgate.wasm import abi

MAX_POLICY_BYTES: Final = 65_536  # of one change: enough for a thousand patterns of usual length

_MIN_TIMEOUT_MS: Final = 100  # as for a server's `tool_timeout_ms`: less would end calls before they reach it
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class FdPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of an MCP descriptor, and a change of them. UNSET: no limit, and no change, by this member.

    Null differs from absent, and is invalid.
    """

    allow: tuple[str, ...] | UnsetType = UNSET
    deny: tuple[str, ...] = ()
    max_calls: _Count | UnsetType = UNSET
    """Calls since the descriptor was opened."""
    timeout_ms: _Count | UnsetType = UNSET
    max_output_bytes: _Count | UnsetType = UNSET

    def narrow(self, data: bytes, *, server_id: str) -> "FdPolicy":
        """Narrow it by the JSON in `data`. Raises InvalidParams, and PolicyDenied for a wider list."""
        try:
            change = msgspec.json.decode(data, type=FdPolicy)
        except UNREADABLE as exc:
            raise InvalidParams(f"invalid descriptor policy: {exc}") from exc
        # The limits of a list apply to all denials together, because each is matched against each tool.
        lists = {"mcp.tool_denylist": [*self.deny, *change.deny]}
        if change.allow is not UNSET:
            lists["mcp.tool_allowlist"] = [*change.allow]
        asked = parse_session_params(lists)
        if asked.allow is not None and self.allow is not UNSET:
            _check_within(self.allow, asked.allow, server_id)
        return FdPolicy(
            allow=self.allow if asked.allow is None else asked.allow,
            deny=asked.deny,
            max_calls=_narrow_limit(self.max_calls, change.max_calls),
            timeout_ms=_narrow_limit(self.timeout_ms, change.timeout_ms, at_least=_MIN_TIMEOUT_MS),
            max_output_bytes=_narrow_limit(self.max_output_bytes, change.max_output_bytes),
        )

    def describe(self) -> Mapping[str, Any]:
        members = msgspec.structs.asdict(self)
        return {name: value for name, value in members.items() if value not in (UNSET, ())}


NO_POLICY: Final = FdPolicy()


def _check_within(allowed: tuple[str, ...], wanted: tuple[str, ...], server_id: str) -> None:
    """Raises PolicyDenied for an entry outside the current list.

    A pattern, effect, prompt or resource is inside only as equal text: this does not compute whether one
    pattern covers another.
    """
    before = Patterns(allowed)
    for entry in wanted:
        ref = ToolRef(server_id, entry.removeprefix(f"{server_id}/"))
        is_name = not has_wildcard(entry) and effect_of(entry) is None and not kind_of(entry)
        matches = is_name and before.first_match(ref, effects=UNSTATED, is_deny=False) is not None
        if entry not in allowed and not matches:
            raise PolicyDenied(
                f"`{ascii(entry[:80])[1:-1]}` is not allowed by the descriptor's current policy",
                hint="open the server again: a descriptor can only be narrowed",
            )


def _narrow_limit(now: int | UnsetType, asked: int | UnsetType, *, at_least: int = 0) -> int | UnsetType:
    if asked is UNSET:
        return now
    wanted = max(asked, at_least)
    return wanted if now is UNSET else min(now, wanted)


# The commands of `spear_epoll_ctl` and `spear_fd_ctl`, with SPEAR's numbers.
EPOLL_CTL_ADD: Final = 1
EPOLL_CTL_MOD: Final = 2
EPOLL_CTL_DEL: Final = 3
SET_FLAGS: Final = 1
GET_FLAGS: Final = 2
GET_KIND: Final = 3
GET_STATUS: Final = 4
GET_METRICS: Final = 5
NARROW: Final = 100  # Toolgate's command; SPEAR's are below a hundred
MAX_FLAGS_BYTES: Final = 4_096  # a choice: there is one flag so far

_RECORD: Final = struct.Struct("<ii")
_ALWAYS: Final = abi.EPOLLERR | abi.EPOLLHUP  # events that are always reported
_MASK_NAMES: Final = {
    abi.EPOLLIN: "EPOLLIN",
    abi.EPOLLOUT: "EPOLLOUT",
    abi.EPOLLERR: "EPOLLERR",
    abi.EPOLLHUP: "EPOLLHUP",
}
_FLAGS: Final = frozenset({"O_NONBLOCK"})


class Epoll(abi.FdEntry):
    """Watched descriptors, each with its events."""

    kind = "Epoll"

    def __init__(self) -> None:
        super().__init__()
        self.interest: dict[int, int] = {}


def spear_epoll_create(guest: TaskGuest) -> int:
    return guest.fds.open(Epoll())


def spear_epoll_ctl(guest: TaskGuest, epfd: int, op: int, fd: int, events: int) -> int:
    epoll = guest.fds.get(epfd, Epoll)
    if isinstance(guest.fds.get(fd, abi.FdEntry), Epoll):
        raise abi.HostcallFault(abi.Errno.EINVAL)
    if op not in (EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL):
        raise abi.HostcallFault(abi.Errno.EINVAL)
    if op != EPOLL_CTL_ADD and fd not in epoll.interest:
        raise abi.HostcallFault(abi.Errno.ENOENT)
    if op == EPOLL_CTL_DEL:
        del epoll.interest[fd]
        return 0
    if op == EPOLL_CTL_ADD and len(epoll.interest) >= len(guest.fds):
        # Drop closed descriptors, so that they do not accumulate.
        entries = guest.fds.entries
        epoll.interest = {one: mask for one, mask in epoll.interest.items() if one in entries}
    epoll.interest[fd] = events
    return 0


def spear_epoll_wait(guest: TaskGuest, epfd: int, out: int, out_length: int, timeout_ms: int) -> int:
    """The number of ready descriptors. Writes as many records as fit."""
    epoll = guest.fds.get(epfd, Epoll)
    room = guest.check_out(out, out_length) // _RECORD.size
    if room == 0:
        guest.write_u32(out_length, _RECORD.size)
        raise abi.HostcallFault(abi.Errno.ENOSPC)
    entries = guest.fds.entries
    watched = ((fd, epoll.interest[fd] | _ALWAYS) for fd in sorted(epoll.interest) if fd in entries)
    ready = [(fd, mask) for fd, events in watched if (mask := entries[fd].poll_mask() & events)][:room]
    if not ready and timeout_ms:
        guest.sleep(None if timeout_ms < 0 else timeout_ms / 1e3)
    guest.put_out(out, out_length, b"".join(_RECORD.pack(fd, mask) for fd, mask in ready))
    return len(ready)


def spear_epoll_close(guest: TaskGuest, epfd: int) -> int:
    guest.fds.close(epfd, Epoll)
    return 0


def spear_fd_ctl(guest: TaskGuest, fd: int, command: int, argument: int, argument_length: int) -> int:
    entry = guest.fds.get(fd, abi.FdEntry)
    if command in (SET_FLAGS, NARROW):
        most = MAX_FLAGS_BYTES if command == SET_FLAGS else MAX_POLICY_BYTES
        data = guest.read(argument, guest.read_u32(argument_length), most=most)
        decode_text(data)
        if command == SET_FLAGS:
            entry.flags = _change_flags(entry.flags, data)
        else:
            entry.narrow(data)
        return 0
    report = _REPORTS.get(command)
    if report is None:
        raise abi.HostcallFault(abi.Errno.EINVAL)
    guest.check_out(argument, argument_length)
    return guest.put_out(argument, argument_length, msgspec.json.encode(report(entry)))


class _FlagsChange(msgspec.Struct):
    set: frozenset[str] = frozenset()
    clear: frozenset[str] = frozenset()


def _change_flags(flags: frozenset[str], data: bytes) -> frozenset[str]:
    try:
        change = msgspec.json.decode(data, type=_FlagsChange)
    except UNREADABLE as exc:
        raise abi.HostcallFault(abi.Errno.EINVAL) from exc
    if not change.set | change.clear <= _FLAGS:
        raise abi.HostcallFault(abi.Errno.EINVAL)
    return (flags | change.set) - change.clear


def _describe_status(entry: abi.FdEntry) -> Mapping[str, object]:
    mask = entry.poll_mask()
    return {
        "kind": entry.kind,
        "flags": sorted(entry.flags),
        "poll_mask": [name for bit, name in _MASK_NAMES.items() if mask & bit],
        "closed": False,
        "last_error": entry.last_error,
        **entry.status(),
    }


_REPORTS: Final[Mapping[int, Callable[[abi.FdEntry], Mapping[str, object]]]] = {
    GET_FLAGS: lambda entry: {"flags": sorted(entry.flags)},
    GET_KIND: lambda entry: {"kind": entry.kind},
    GET_STATUS: _describe_status,
    GET_METRICS: lambda entry: entry.metrics(),
}

CALLS: Final = (spear_epoll_create, spear_epoll_ctl, spear_epoll_wait, spear_epoll_close, spear_fd_ctl)
