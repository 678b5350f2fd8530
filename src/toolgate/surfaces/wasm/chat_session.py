"""The descriptors of chats: sessions, which guests fill, and responses.

The host stores both, with limits for one session and for all open ones of a guest. Policy checks session
parameters about tools as soon as they are set, together with those set before; if it denies them, nothing
changes. A scope is resolved again at each use: parameters never widen one.

Guests can offer functions of their table as tools to models. Arguments and result pass through the arena, a
part of the guest's memory that it reserves:

    arguments, NUL | output, at the next multiple of 8 | the length of the output, 4 bytes

Whatever such a function writes there, the model gets a result and the run continues, unless the function
traps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import parse_tools
from toolgate.chat.parsing import MAX_MESSAGES
from toolgate.chat.requests import ChatRequest, parse_chat_request
from toolgate.errors import BodyTooLarge, InvalidParams, TooManyTools
from toolgate.gateway.chat.session import CallerToolFailed
from toolgate.model.json_text import UNREADABLE, KnownNames, Members, decode_members, encode_raw
from toolgate.policy.layers import parse_session_params
from toolgate.surfaces.wasm.context import HostLimits, TaskContext, TaskGuest, decode_text
from toolgate.wasm.abi import EPOLLIN, EPOLLOUT, Errno, FdEntry, HostcallFault

MAX_PARAM_BYTES: Final = 262_144  # of all parameters of a session together
MAX_PARAMS: Final = 256  # generous: the OpenAI API has some dozen
MAX_CONTAINERS: Final = 20_000
"""Objects and arrays in one parameter: many empty ones are far larger in memory than as text."""
MAX_OUTPUT_BYTES: Final = 1_048_576  # of a guest's function: as the default limit for results of tools

_MCP: Final = "mcp."
_TEXTS: Final = frozenset({"model", "backend"})
_NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "max_iterations": ("max_iterations", 0),
    "max_total_tool_calls": ("max_total_tool_calls", 0),
    "max_tool_calls": ("max_total_tool_calls", 0),
    "max_tool_output_bytes": ("max_tool_output_bytes", 256),
    "timeout_ms": ("wall_clock_ms", 1),
}
"""The budgets that these parameters narrow, and the least value of each."""
_COUNTS: Final = _NUMBERS.keys() | {"tool_arena_ptr", "tool_arena_len"}
_OWN: Final = _TEXTS | _COUNTS  # for the host; never forwarded to a model
_IGNORED: Final = frozenset({"messages", "tools", "stream", "stream_options"})
"""Members that other hostcalls of a session set."""
_KNOWN: Final = KnownNames(*_OWN, *_IGNORED, "tool_choice", "functions", "function_call", prefixes=(_MCP,))
"""A parameter that a model's server may confuse with one of these, or with another one, is an error."""
_FUNCTION: Final = msgspec.Raw(b'"function"')
_CELL_BYTES: Final = 4  # a 32-bit number, as WebAssembly has lengths


class _Param(msgspec.Struct):
    key: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


def parse_param(data: bytes) -> tuple[str, msgspec.Raw]:
    """The key and value of a SET_PARAM. EINVAL for data that is not text, EIO for an invalid parameter."""
    decode_text(data)
    if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS:
        raise HostcallFault(Errno.EINVAL)
    try:
        param = msgspec.json.decode(data, type=_Param)
        msgspec.json.decode(param.value)
    except UNREADABLE as exc:
        raise HostcallFault(Errno.EIO) from exc
    # In JSON, a NUL can only be an escape; an escaped backslash does not begin one.
    if b"\\u0000" in data.replace(b"\\\\", b""):
        raise HostcallFault(Errno.EINVAL)
    if not param.key:
        raise HostcallFault(Errno.EIO)
    return param.key, param.value


class SessionParams:
    """The parameters that a guest has set: for tools, for budgets, and for the model."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.forwarded: Members = {}
        """The model's parameters, as the guest wrote them."""
        self._sizes: dict[str, int] = {}

    def set(self, guest: TaskGuest, key: str, value: msgspec.Raw) -> None:
        """Set a parameter. If it is denied or invalid, raises and changes nothing."""
        if key not in self._sizes and len(self._sizes) >= MAX_PARAMS:
            raise HostcallFault(Errno.ENOMEM)
        if _KNOWN.find_impostor(dict.fromkeys((*self.forwarded, key))) is not None:
            raise HostcallFault(Errno.EINVAL)
        size = len(key.encode()) + len(value)
        if self.size - self._sizes.get(key, 0) + size > MAX_PARAM_BYTES:
            raise HostcallFault(Errno.ENOMEM)
        decoded = msgspec.json.decode(value)
        if key.startswith(_MCP):
            candidate = {**self.mcp, key: decoded}
            guest.wait(lambda: _check_scope(guest.context, candidate))
        else:
            _check_own(key, decoded)
        if key in _IGNORED:
            return
        self._sizes[key] = size
        if key.startswith(_MCP) or key in _OWN:
            self._values[key] = decoded
        else:
            self.forwarded[key] = msgspec.Raw(bytes(value))

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    @property
    def mcp(self) -> Mapping[str, Any]:
        return {key: value for key, value in self._values.items() if key.startswith(_MCP)}

    def text(self, key: str) -> str:
        return str(self._values.get(key, ""))

    @property
    def arena(self) -> tuple[int, int]:
        """The address and length of the arena in the guest's memory."""
        return self._values.get("tool_arena_ptr", 0), self._values.get("tool_arena_len", 0)

    @property
    def budgets(self) -> Mapping[str, int]:
        """The limits of one send. They only narrow other budgets."""
        values = self._values
        narrowed = ((key, *limit) for key, limit in _NUMBERS.items() if key in values)
        return {budget: max(values[key], least) for key, budget, least in narrowed}


async def _check_scope(context: TaskContext, params: Mapping[str, Any]) -> None:
    """Raises if policy denies a scope with `params`. A scope with too many tools may be narrowed later."""
    with context.record_denials():
        try:
            context.gateway.check_scope(replace(context.caller, request=parse_session_params(params)))
        except TooManyTools:
            return


def _check_own(key: str, value: object) -> None:
    """Raises InvalidParams for a value that the host cannot use. The model's server checks the others."""
    is_count = type(value) is int and 0 <= value < 2**32
    if key in _TEXTS and not isinstance(value, str):
        raise InvalidParams(f"`{key}` is not a string", hint="set it to a JSON string")
    if key in _COUNTS and not is_count:
        raise InvalidParams(f"`{key}` is not a count", hint="set it to a non-negative integer")


# Tools of the guest


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTool:
    """A function at `index` of the guest's table, and its entry in `tools`."""

    name: str
    index: int
    declared: msgspec.Raw


def parse_guest_tool(data: bytes, index: int) -> GuestTool:
    """Parse a tool in the OpenAI API's form, or only its function. Raises EINVAL and InvalidChat."""
    try:
        members = decode_members(data.decode(errors="replace"))
    except UNREADABLE as exc:
        raise HostcallFault(Errno.EINVAL) from exc
    if "function" in members:
        entry = encode_raw({"type": _FUNCTION, **members})
    else:
        function = {name: raw for name, raw in members.items() if name != "type"}
        entry = encode_raw({"type": members.get("type", _FUNCTION), "function": function})
    declared = parse_tools({"tools": encode_raw([entry])})
    if declared.other_kinds:
        raise HostcallFault(Errno.EINVAL)
    (name,) = declared.functions
    return GuestTool(name=name, index=index, declared=entry)


def call_guest_tool(
    guest: TaskGuest, tool: GuestTool, params: SessionParams, arguments: bytes, *, max_bytes: int
) -> str:
    """Call the function, on the guest's thread. Raises CallerToolFailed, and RunStopped if it traps.

    Calls it once more if it returns the size that it needs, and the arena has that size.
    """
    start, arena_length = params.arena
    if start <= 0 or arena_length <= 0:
        raise CallerToolFailed(f"tool rc: {-Errno.EFAULT}")
    output = -(-(start + len(arguments) + 1) // 8) * 8
    room = start + arena_length - output - _CELL_BYTES
    room = min(room - room % _CELL_BYTES, MAX_OUTPUT_BYTES)
    if room <= 0:
        raise CallerToolFailed(f"tool rc: {-Errno.ENOSPC}")

    def attempt(capacity: int) -> tuple[int, int]:
        """Call the function. Returns its result, and the length in the cell after the output."""
        cell = output + -(-capacity // _CELL_BYTES) * _CELL_BYTES
        guest.write_u32(cell, capacity)
        return guest.call_table(tool.index, start, len(arguments), output, cell), guest.read_u32(cell)

    try:
        guest.write(start, arguments + b"\0")
        capacity = min(room, max_bytes)
        rc, length = attempt(capacity)
        if rc == -Errno.ENOSPC and length <= room:
            capacity = max(length, capacity)
            rc, length = attempt(capacity)
        if rc:
            raise CallerToolFailed(f"tool rc: {rc}")
        if length > capacity:
            raise CallerToolFailed(f"tool rc: {-Errno.EIO}")
        return guest.read(output, length, most=MAX_OUTPUT_BYTES).decode()
    except HostcallFault as exc:
        raise CallerToolFailed(f"tool rc: {-exc.errno}") from exc
    except UnicodeDecodeError as exc:
        raise CallerToolFailed(f"tool rc: {-Errno.EIO}") from exc


# Sessions and responses


class ChatEntry(FdEntry):
    """A session or a response."""


class GuestChat(ChatEntry):
    """A session: the messages, parameters and tools from which a guest's requests are built."""

    kind = "ChatSession"

    def __init__(self, limits: HostLimits) -> None:
        super().__init__()
        self._limits = limits
        self.params = SessionParams()
        self.tools: dict[str, GuestTool] = {}
        self._messages: list[msgspec.Raw] = []
        self._bytes = 0
        self._tool_bytes = 0
        self._is_sending = False

    @property
    def kept_bytes(self) -> int:
        return self._bytes + self._tool_bytes + self.params.size

    def poll_mask(self) -> int:
        return 0 if self._is_sending else EPOLLOUT

    def write_message(self, message: msgspec.Raw) -> None:
        """Add a message. ENOMEM at the limit of messages or of their size."""
        is_too_much = self._bytes + len(message) > self._limits.max_session_bytes
        if is_too_much or len(self._messages) >= MAX_MESSAGES:
            raise HostcallFault(Errno.ENOMEM)
        self._messages.append(message)
        self._bytes += len(message)

    def write_tool(self, tool: GuestTool) -> None:
        """Add a tool. If its name exists, the first tool stays. ENOMEM as for messages."""
        if tool.name in self.tools:
            return
        is_too_much = self._tool_bytes + len(tool.declared) > self._limits.max_session_bytes
        if is_too_much or len(self.tools) >= self._limits.max_guest_tools:
            raise HostcallFault(Errno.ENOMEM)
        self.tools[tool.name] = tool
        self._tool_bytes += len(tool.declared)

    def build_request(self) -> ChatRequest:
        if self._bytes > self._limits.max_session_bytes:
            raise BodyTooLarge(
                f"the messages of this session exceed {self._limits.max_session_bytes} bytes",
                hint="continue in a new session with the messages that matter",
            )
        members: Members = {**self.params.forwarded, "messages": encode_raw(self._messages)}
        backend, model = self.params.text("backend"), self.params.text("model")
        if model:
            members["model"] = encode_raw(f"{backend}/{model}" if backend else model)
        if self.tools:
            members["tools"] = encode_raw([tool.declared for tool in self.tools.values()])
        return parse_chat_request(members)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """EAGAIN while another send runs: each would replace the other's history."""
        if self._is_sending:
            raise HostcallFault(Errno.EAGAIN)
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False

    def replace_history(self, history: Sequence[msgspec.Raw], *, of: ChatRequest) -> None:
        """Replace the messages of a request by its history. Messages that were added since follow it."""
        self._messages = [*history, *self._messages[len(of.messages) :]]
        self._bytes = sum(map(len, self._messages))

    def close(self) -> None:
        self._messages, self._bytes, self.tools = [], 0, {}


class ChatResponse(ChatEntry):
    """A response, empty until it arrives. It can be read any number of times."""

    kind = "ChatResponse"

    def __init__(self) -> None:
        super().__init__()
        self.body: bytes | None = None
        self.usage: Members = {}

    @property
    def kept_bytes(self) -> int:
        return 0 if self.body is None else len(self.body)

    def poll_mask(self) -> int:
        return 0 if self.body is None else EPOLLIN

    def metrics(self) -> Mapping[str, object]:
        return self.usage

    def close(self) -> None:
        self.body, self.usage = None, {}


def check_kept(guest: TaskGuest) -> None:
    """ENOMEM if a guest's open sessions and responses exceed the host's limit."""
    chats = (entry for entry in guest.fds.entries.values() if isinstance(entry, GuestChat | ChatResponse))
    if sum(chat.kept_bytes for chat in chats) >= guest.context.limits.max_chat_bytes:
        raise HostcallFault(Errno.ENOMEM)
