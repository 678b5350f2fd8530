"""Tools that a guest has itself: functions of its table that models may call.

Arguments and result pass through an arena, a stretch of the guest's memory that it has set aside for them:

    arguments, NUL | output, at the next multiple of 8 | the length of the output, 4 bytes

Whatever such a function does with it, the model is told something, and the run goes on; but a trap is one.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from toolgate.chat.declarations import parse_tools
from toolgate.gateway.chat.tool_loop import OwnToolFailed
from toolgate.model.raw import UNREADABLE, Members, decode_members, encode_raw
from toolgate.surfaces.wasm.context import TaskGuest
from toolgate.wasm.faults import Errno, Fault

MAX_OUTPUT_BYTES: Final = 1_048_576
_FUNCTION: Final = msgspec.Raw(b'"function"')
_CELL_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTool:
    """A function at `index` of the guest's table, and what models are told of it: an entry of `tools`."""

    name: str
    index: int
    declared: msgspec.Raw


class Arena(NamedTuple):
    """Where in the guest's memory it lies, and how long it is."""

    start: int
    length: int


def parse_guest_tool(data: bytes, index: int) -> GuestTool:
    """A tool as the OpenAI API writes it, or only what it holds. Raises Fault EINVAL and InvalidChat."""
    try:
        members = decode_members(data.decode(errors="replace"))
    except UNREADABLE as exc:
        raise Fault(Errno.EINVAL) from exc
    entry = encode_raw(_whole(members))
    declared = parse_tools({"tools": encode_raw([entry])})
    if declared.other_kinds:
        raise Fault(Errno.EINVAL)
    (name,) = declared.functions
    return GuestTool(name=name, index=index, declared=entry)


def call_guest_tool(
    guest: TaskGuest, tool: GuestTool, arena: Arena, arguments: bytes, *, max_bytes: int
) -> str:
    """What the function says; on the guest's thread. Raises OwnToolFailed, and Stopped where it traps."""
    try:
        return _call(guest, tool, _Exchange(guest, arena, arguments), max_bytes=max_bytes)
    except Fault as exc:
        raise OwnToolFailed(f"tool rc: {-exc.errno}") from exc


def _whole(members: Members) -> Members:
    if "function" in members:
        return {"type": _FUNCTION, **members}
    held = {name: raw for name, raw in members.items() if name != "type"}
    return {"type": members.get("type", _FUNCTION), "function": encode_raw(held)}


class _Exchange:
    """The arena during one call: arguments are in it, and the rest is for the output."""

    def __init__(self, guest: TaskGuest, arena: Arena, arguments: bytes) -> None:
        if arena.start <= 0 or arena.length <= 0:
            raise Fault(Errno.EFAULT)
        self.arguments = arena.start
        self.length = len(arguments)
        self.output = -(-(arena.start + len(arguments) + 1) // 8) * 8
        room = arena.start + arena.length - self.output - _CELL_BYTES
        self.room = min(room - room % _CELL_BYTES, MAX_OUTPUT_BYTES)
        if self.room <= 0:
            raise Fault(Errno.ENOSPC)
        guest.write(arena.start, arguments + b"\0")


def _call(guest: TaskGuest, tool: GuestTool, exchange: _Exchange, *, max_bytes: int) -> str:
    """Called once more where it says how much room it needs, and there is that much."""
    capacity = min(exchange.room, max_bytes)
    rc, length = _attempt(guest, tool, exchange, capacity)
    if rc == -Errno.ENOSPC and length <= exchange.room:
        capacity = max(length, capacity)
        rc, length = _attempt(guest, tool, exchange, capacity)
    if rc:
        raise OwnToolFailed(f"tool rc: {rc}")
    if length > capacity:
        raise Fault(Errno.EIO)
    try:
        return guest.read(exchange.output, length, most=MAX_OUTPUT_BYTES).decode()
    except UnicodeDecodeError as exc:
        raise Fault(Errno.EIO) from exc


def _attempt(guest: TaskGuest, tool: GuestTool, exchange: _Exchange, capacity: int) -> tuple[int, int]:
    """What the function returns, and the length it leaves in the cell after the output."""
    cell = exchange.output + -(-capacity // _CELL_BYTES) * _CELL_BYTES
    guest.write_u32(cell, capacity)
    rc = guest.call_table(tool.index, exchange.arguments, exchange.length, exchange.output, cell)
    return rc, guest.read_u32(cell)
