"""A guest that does what it reads: a real one in WebAssembly, for tests that say call by call what it calls.

Its standard input is a script of records; what its calls return, and what it is asked to show of its memory,
is its standard output. Descriptors are given out in order, so a script knows them before it runs.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.wasm.wat import compiled, job
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import SPEAR, HostFunction
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

OUT = 0x1_0000
"""Where a script has results put; their length is before it."""
ROOM = 0x8000
_PUT, _SHOW = 254, 255
_RECORD = struct.Struct("<9i")
_FUNCTIONS: Sequence[HostFunction[Any]] = tuple(
    one for one in ALL_FUNCTIONS if one.module == SPEAR and one.result == "i"
)
_OPS = {one.name: number for number, one in enumerate(_FUNCTIONS)}


def import_of(function: HostFunction[Any]) -> str:
    """The import of `function`, called `$name`."""
    types = {"i": "i32", "I": "i64"}
    params = "".join(f" (param {types[letter]})" for letter in function.params)
    result = "".join(f" (result {types[letter]})" for letter in function.result)
    return f'(import "{function.module}" "{function.name}" (func ${function.name}{params}{result}))'


def _case(function: HostFunction[Any]) -> str:
    args = " ".join(f"(i32.load (i32.const {0x30004 + 4 * at}))" for at in range(len(function.params)))
    return f"(i32.store (i32.const 0x30024) (call ${function.name} {args})) (br $done))"


PUPPET = f"""(module
  {" ".join(import_of(one) for one in _FUNCTIONS)}
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (func $transfer (param $is_write i32) (param $at i32) (param $left i32) (result i32) (local $count i32)
    (loop $more
      (if (i32.eqz (local.get $left)) (then (return (i32.const 1))))
      (i32.store (i32.const 0x30100) (local.get $at))
      (i32.store (i32.const 0x30104) (local.get $left))
      (i32.store (i32.const 0x30108) (i32.const 0))
      (drop (if (result i32) (local.get $is_write)
        (then (call $fd_write (i32.const 1) (i32.const 0x30100) (i32.const 1) (i32.const 0x30108)))
        (else (call $fd_read (i32.const 0) (i32.const 0x30100) (i32.const 1) (i32.const 0x30108)))))
      (local.set $count (i32.load (i32.const 0x30108)))
      (if (i32.eqz (local.get $count)) (then (return (i32.const 0))))
      (local.set $at (i32.add (local.get $at) (local.get $count)))
      (local.set $left (i32.sub (local.get $left) (local.get $count)))
      (br $more))
    unreachable)
  (func (export "_start") (local $op i32)
    (loop $next
      (if (i32.eqz (call $transfer (i32.const 0) (i32.const 0x30000) (i32.const {_RECORD.size})))
        (then (return)))
      (local.set $op (i32.load (i32.const 0x30000)))
      (if (i32.ge_u (local.get $op) (i32.const {_PUT}))
        (then
          (drop (call $transfer (i32.eq (local.get $op) (i32.const {_SHOW}))
            (i32.load (i32.const 0x30004)) (i32.load (i32.const 0x30008))))
          (br $next)))
      (block $done
        {"".join(f"(block $case{number} " for number in reversed(range(len(_FUNCTIONS))))}
        (br_table {" ".join(f"$case{number}" for number in range(len(_FUNCTIONS)))} (local.get $op)))
        {" ".join(_case(one) for one in _FUNCTIONS)[:-1]}
      )
      (drop (call $transfer (i32.const 1) (i32.const 0x30024) (i32.const 4)))
      (br $next))))
"""


class Recorded(NamedTuple):
    """What a call with a buffer returned, stored as the length, and left in the buffer."""

    code: int
    length: int
    buffer: bytes

    @property
    def json(self) -> Any:
        assert self.code == self.length <= len(self.buffer), self.code
        return json.loads(self.buffer[: self.length])

    @property
    def is_untouched(self) -> bool:
        return self.buffer == b"\xee" * len(self.buffer)


class Script:
    """What a puppet is to do, written down before it does it."""

    def __init__(self) -> None:
        self._input = bytearray()
        self._shown: list[int | None] = []
        """Of each answer, how large its buffer was; None: it has none."""

    def call(self, name: str, *args: int | str | bytes) -> None:
        """One call, for one number. A text refers to its pointer and its length."""
        flat: list[int] = []
        at = 0
        for arg in args:
            if isinstance(arg, int):
                flat.append(arg)
                continue
            data = arg.encode() if isinstance(arg, str) else arg
            self.put(at, data)
            flat += [at, len(data)]
            at += len(data)
        self._record(_OPS[name], *flat)
        self._shown.append(None)

    def hostcall(self, name: str, *args: int | str | bytes, room: int = ROOM) -> None:
        """A call that ends in a buffer of `room`, for what it told."""
        self.put(OUT - 4, struct.pack("<I", room) + b"\xee" * room)
        self.call(name, *args, OUT, OUT - 4)
        self._record(_SHOW, OUT - 4, 4 + room)
        self._shown[-1] = room

    def set_param(self, fd: int, key: str, value: Any) -> None:
        data = json.dumps({"key": key, "value": value}).encode()
        self.put(OUT - 4, struct.pack("<I", len(data)))
        self.put(0, data)
        self.call("cchat_ctl", fd, 1, 0, OUT - 4)

    def put(self, at: int, data: bytes) -> None:
        self._record(_PUT, at, len(data))
        self._input += data

    async def run(
        self, slots: Slots[TaskContext], context: TaskContext, directory: Path, **limits: int
    ) -> tuple[InvocationResult, list[Any]]:
        """How it ended, and its answers in order: numbers, and what calls told."""
        bounds = WorkloadLimits(**({"max_output_bytes": 2**26} | limits))
        module = compiled(PUPPET, directory)
        ending = await slots.run(GuestRun(job(module, context, limits=bounds, input_=bytes(self._input))))
        return ending, self._answers(ending.stdout)

    def _record(self, op: int, *args: int) -> None:
        self._input += _RECORD.pack(op, *args, *[0] * (8 - len(args)))

    def _answers(self, output: bytes) -> list[Any]:
        responses: list[Any] = []
        at = 0
        for room in self._shown:
            if at == len(output):
                break  # it was ended before it came to this
            (code,) = struct.unpack_from("<i", output, at)
            at += 4
            if room is None:
                responses.append(code)
                continue
            (stored,) = struct.unpack_from("<I", output, at)
            responses.append(Recorded(code, stored, output[at + 4 : at + 4 + room]))
            at += 4 + room
        return responses
