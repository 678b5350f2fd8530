"""The parameters of one chat session of a guest: what they say of tools, how far it may go, what models get.

What they say of tools is held against the policy as soon as it is said, as a whole and with all that was said
before: refused, nothing of it is kept. A scope is composed anew whenever it is used; nothing here widens one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidParams, TooManyTools
from toolgate.model.chat import BudgetsNarrowed
from toolgate.model.json_text import KnownNames
from toolgate.model.raw import UNREADABLE, Members
from toolgate.policy.layers import parse_session_params
from toolgate.surfaces.wasm.context import TaskContext, TaskGuest
from toolgate.surfaces.wasm.texts import decode_text, has_nul
from toolgate.wasm.faults import Errno, Fault

MAX_PARAM_BYTES: Final = 262_144
"""Of all parameters of a session together."""
MAX_PARAMS: Final = 256
MAX_CONTAINERS: Final = 20_000
"""Objects and arrays in one: read, many empty ones are far larger than they were written."""
_MCP: Final = "mcp."
_TEXTS: Final = frozenset({"model", "backend"})
_NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "max_iterations": ("max_iterations", 0),
    "max_total_tool_calls": ("max_total_tool_calls", 0),
    "max_tool_calls": ("max_total_tool_calls", 0),
    "max_tool_output_bytes": ("max_tool_output_bytes", 256),
    "timeout_ms": ("wall_clock_ms", 1),
}
"""The budgets that they narrow, and the least each can be narrowed to."""
_ARENA: Final = frozenset({"tool_arena_ptr", "tool_arena_len"})
_OWN: Final = _TEXTS | _NUMBERS.keys() | _ARENA
"""What is for the host, and never forwarded."""
_IGNORED: Final = frozenset({"messages", "tools", "stream", "stream_options"})
"""What a session says in another way."""
_KNOWN: Final = KnownNames(*_OWN, *_IGNORED, "tool_choice", "functions", "function_call", prefixes=(_MCP,))
"""A parameter that a model's server may take for one of these, or for another parameter, is refused."""


class _Param(msgspec.Struct):
    key: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


_decode_param = msgspec.json.Decoder(_Param).decode


def parse_param(data: bytes) -> tuple[str, msgspec.Raw]:
    """Key and value of a SET_PARAM. Fault EINVAL for what is no text, EIO for what is no parameter."""
    decode_text(data)
    if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS:
        raise Fault(Errno.EINVAL)
    try:
        param = _decode_param(data)
        msgspec.json.decode(param.value)
    except UNREADABLE as exc:
        raise Fault(Errno.EIO) from exc
    if has_nul(data):
        raise Fault(Errno.EINVAL)
    if not param.key:
        raise Fault(Errno.EIO)
    return param.key, param.value


class SessionParams:
    """What a guest has set so far."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._forwarded: Members = {}
        self._sizes: dict[str, int] = {}

    def set(self, guest: TaskGuest, key: str, value: msgspec.Raw) -> None:
        """One more, or another value. Raises what it is refused with; then all is as it was."""
        if key not in self._sizes and len(self._sizes) >= MAX_PARAMS:
            raise Fault(Errno.ENOMEM)
        if _KNOWN.find_impostor(dict.fromkeys((*self._forwarded, key))) is not None:
            raise Fault(Errno.EINVAL)
        size = len(key.encode()) + len(value)
        if self.size - self._sizes.get(key, 0) + size > MAX_PARAM_BYTES:
            raise Fault(Errno.ENOMEM)
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
            self._forwarded[key] = msgspec.Raw(bytes(value))

    @property
    def size(self) -> int:
        """In bytes, of all."""
        return sum(self._sizes.values())

    @property
    def mcp(self) -> Mapping[str, Any]:
        """Those that speak of tools."""
        return {key: value for key, value in self._values.items() if key.startswith(_MCP)}

    @property
    def forwarded(self) -> Members:
        """Those that models get, as the guest wrote them."""
        return dict(self._forwarded)

    @property
    def model(self) -> str:
        """Empty where none was set."""
        model: str = self._values.get("model", "")
        return model

    @property
    def backend(self) -> str:
        """The chat upstream to ask; empty where none was set."""
        backend: str = self._values.get("backend", "")
        return backend

    @property
    def arena(self) -> tuple[int, int]:
        """Where in the guest's memory arguments and results of its own tools are put, and how much fits."""
        return self._values.get("tool_arena_ptr", 0), self._values.get("tool_arena_len", 0)

    @property
    def budgets(self) -> BudgetsNarrowed:
        """How far one send may go. Nothing here makes a budget larger than it was."""
        return BudgetsNarrowed(
            **{
                budget: max(self._values[key], least)
                for key, (budget, least) in _NUMBERS.items()
                if key in self._values
            }
        )


async def _check_scope(context: TaskContext, params: Mapping[str, Any]) -> None:
    """Raises what a scope with `params` is refused with. One with too many tools may yet be narrowed."""
    with context.denials_recorded():
        try:
            context.gateway.check_scope(replace(context.caller, request=parse_session_params(params)))
        except TooManyTools:
            return


def _check_own(key: str, value: object) -> None:
    """InvalidParams for a value that the host could not use. What is a model's, models judge."""
    if key in _TEXTS and not isinstance(value, str):
        raise InvalidParams(f"`{key}` is not a string", hint="send a value of that kind")
    is_count = type(value) is int and 0 <= value < 2**32
    if (key in _NUMBERS or key in _ARENA) and not is_count:
        raise InvalidParams(f"`{key}` is not a count", hint="send a value of that kind")
