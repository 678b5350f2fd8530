"""What the traps of a guest are called, where nothing else has ended it."""

from typing import Final

from wasmtime import Trap, TrapCode

from toolgate.model.invocations import EndedBy
from toolgate.wasm.run import Cause

MAX_MESSAGE: Final = 2_000
"""Guests name their functions themselves."""

_LIMITS: Final[dict[TrapCode, tuple[EndedBy, str]]] = {
    TrapCode.OUT_OF_FUEL: (
        "out_of_fuel",
        "it used up its fuel: raise `limits.fuel` of its workload, or do less",
    ),
    TrapCode.STACK_OVERFLOW: ("stack_overflow", "its stack overflowed: it recurses too deep"),
}


def cause_of(trap: Trap) -> Cause:
    """Of a trap that came back from the guest."""
    try:
        code = trap.trap_code
    except ValueError:  # one that the bindings do not know
        code = None
    ended_by, message = _LIMITS.get(code, ("trap", "")) if code else ("trap", "")
    return Cause(ended_by, message or render_trap(trap.message))


def render_trap(message: str) -> str:
    """The cause first, then where it was."""
    where, _, cause = message.partition("Caused by:")
    lines = [cause.strip() or where.strip()]
    if cause:
        lines.append(where.strip())
    return "\n".join(lines).removeprefix("wasm trap: ")[:MAX_MESSAGE]
