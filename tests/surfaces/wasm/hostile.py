"""A guest that calls everything there is, with whatever comes to its mind.

Its arguments are half wild and half well-chosen: pointers at every edge of its memory, descriptors there may
be, lengths of texts that stand in its memory. What it calls and with what follows from its seed alone.
"""

import struct
from collections.abc import Sequence
from typing import Any

from tests.surfaces.wasm.puppet import import_of
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import SPEAR, HostFunction

PAGES = 2
SIZE = PAGES * 65_536
TEXTS = (
    *[b"one"] * 4,
    *[b"echo"] * 4,
    *[b"{}"] * 4,
    b"two",
    b'{"a":1}',
    b"user",
    b"\xff\xfe",
    b"a\0b",
    b'{"key":"mcp.server_ids","value":["one"]}',
    b'{"key":"mcp.server_ids","value":["three"]}',
    b'{"key":"mcp.task_tool_denylist","value":[]}',
    b'{"key":"model","value":"m"}',
    b'{"key":"temperature","value":0.5}',
    b'{"set":["O_NONBLOCK"]}',
    b'{"type":"function","function":{"name":"own","parameters":{"type":"object"}}}',
    b"[[[[[[[[[[",
)
_LEFT_OUT = {"proc_exit", "poll_oneoff"}
"""The one ends the guest, and the other waits for as long as its memory says."""
_ROLES = {
    "sleep_ms": "0",
    "log": "ct",
    "cchat_write_msg": "ftt",
    "cchat_write_fn": "fct",
    "cchat_ctl": "fca",
    "cchat_send": "fc",
    "cchat_recv": "fo",
    "cchat_close": "f",
    "mcp_open": "t",
    "mcp_list_tools": "fo",
    "mcp_call_tool": "ftto",
    "mcp_close": "f",
    "mcp_registry_list": "o",
    "mcp_registry_get": "to",
    "spear_epoll_ctl": "fcfc",
    "spear_epoll_wait": "fo0",
    "spear_epoll_close": "f",
    "spear_fd_ctl": "fca",
}
"""What arguments mean: a descriptor, a command, a text with its length, a buffer and where its length is,
a text with such a place, or a time, which is invalid."""
_ROLE_CALLS = {
    "f": "(call $fd)",
    "c": "(call $command)",
    "t": "(call $text) (call $length)",
    "o": "(call $out) (call $cell)",
    "a": "(call $text) (call $text_cell)",
    "0": "(i32.const 0)",
    "i": "(call $value)",
    "I": "(i64.extend_i32_s (call $value))",
}
_LENGTHS_AT, _VALUES_AT, _TEXTS_AT, _IMAGE_SIZE = 512, 1_024, 2_048, 8_192


def functions() -> Sequence[HostFunction[Any]]:
    """Those that it calls; first those that it calls more often."""
    called = [one for one in ALL_FUNCTIONS if one.name not in _LEFT_OUT]
    return sorted(called, key=lambda one: one.module != SPEAR)


def hostile(calls: int, *, seed: int) -> str:
    """The module, which makes so many calls and ends well. Before each, its memory begins as it first did."""
    called = functions()
    often = sum(one.module == SPEAR for one in called)
    return f"""(module
  {" ".join(import_of(one) for one in called)}
  (memory (export "memory") {PAGES})
  (table (export "table") 1 funcref)
  (data $image "{_escaped(_image())}")
  (global $state (mut i64) (i64.const {seed}))
  (global $chosen (mut i32) (i32.const 0))
  {" ".join(f"(global $fd{number} (mut i32) (i32.const 0))" for number in range(4))}
  {_choosing()}
  (func $call (param $which i32)
    {"".join(f"(block $case{number} " for number in reversed(range(len(called))))}
    (br_table {" ".join(f"$case{number}" for number in range(len(called)))} (local.get $which)))
    {" ".join(_case(one) for one in called)[:-1]}
  )
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const {calls}))
    (loop $more
      (memory.init $image (i32.const 0) (i32.const 0) (i32.const {_IMAGE_SIZE}))
      (call $call (i32.rem_u (call $random)
        (select (i32.const {len(called)}) (i32.const {often}) (call $is_wild))))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $more (local.get $left)))))
"""


def _choosing() -> str:
    """How it comes by its arguments."""
    return f"""
  (func $random (result i32) (local $x i64)
    (local.set $x (global.get $state))
    (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
    (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
    (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
    (global.set $state (local.get $x))
    (i32.wrap_i64 (i64.shr_u (local.get $x) (i64.const 20))))
  (func $value (result i32) (local $r i32) (local $kind i32)
    (local.set $r (call $random))
    (local.set $kind (i32.and (local.get $r) (i32.const 7)))
    (if (i32.eqz (local.get $kind)) (then (return (call $random))))
    (if (i32.eq (local.get $kind) (i32.const 1))
      (then (return (i32.add (i32.const 1000) (i32.and (call $random) (i32.const 63))))))
    (local.set $r (i32.rem_u (i32.shr_u (local.get $r) (i32.const 3)) (i32.const {len(_values())})))
    (i32.load (i32.add (i32.const {_VALUES_AT}) (i32.mul (i32.const 4) (local.get $r)))))
  (func $is_wild (result i32) (i32.eqz (i32.and (call $random) (i32.const 7))))
  (func $fd (result i32) (local $which i32)
    (if (call $is_wild) (then (return (call $value))))
    (local.set $which (i32.and (call $random) (i32.const 3)))
    (if (i32.eqz (local.get $which)) (then (return (global.get $fd0))))
    (if (i32.eq (local.get $which) (i32.const 1)) (then (return (global.get $fd1))))
    (if (i32.eq (local.get $which) (i32.const 2)) (then (return (global.get $fd2))))
    (global.get $fd3))
  (func $note (param $fd i32)
    (if (i32.lt_s (local.get $fd) (i32.const 1000)) (then (return)))
    (global.set $fd3 (global.get $fd2))
    (global.set $fd2 (global.get $fd1))
    (global.set $fd1 (global.get $fd0))
    (global.set $fd0 (local.get $fd)))
  (func $command (result i32)
    (if (call $is_wild) (then (return (call $value))))
    (i32.and (call $random) (i32.const 7)))
  (func $text (result i32)
    (global.set $chosen (i32.rem_u (i32.and (call $random) (i32.const 0xffff)) (i32.const {len(TEXTS)})))
    (if (call $is_wild) (then (return (call $value))))
    (i32.add (i32.const {_TEXTS_AT}) (i32.mul (i32.const 256) (global.get $chosen))))
  (func $text_cell (result i32)
    (if (call $is_wild) (then (return (call $value))))
    (i32.add (i32.const {_LENGTHS_AT}) (i32.mul (i32.const 4) (global.get $chosen))))
  (func $length (result i32)
    (if (call $is_wild) (then (return (call $value))))
    (i32.load (i32.add (i32.const {_LENGTHS_AT}) (i32.mul (i32.const 4) (global.get $chosen)))))
  (func $out (result i32)
    (if (call $is_wild) (then (return (call $value))))
    (i32.const 32768))
  (func $cell (result i32)
    (if (call $is_wild) (then (return (call $value))))
    (i32.const {_LENGTHS_AT + 4 * len(TEXTS)}))"""


def _case(function: HostFunction[Any]) -> str:
    args = " ".join(_ROLE_CALLS[role] for role in _ROLES.get(function.name, function.params))
    call = f"(call ${function.name} {args})"
    what = {"": call, "i": f"(call $note {call})", "I": f"(drop {call})"}[function.result]
    return f"{what} (return))"


def _lengths() -> list[int]:
    """What is where lengths are read: those of texts, of buffers, and of neither."""
    return [*map(len, TEXTS), 4_096, 8, 7, 0, SIZE, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]


def _places() -> list[int]:
    return [_TEXTS_AT + 256 * at for at in range(len(TEXTS))]


def _values() -> list[int]:
    edges = [0, 1, 4, SIZE - 8, SIZE - 4, SIZE - 1, SIZE, SIZE + 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]
    cells = [_LENGTHS_AT + 4 * at for at in range(len(_lengths()))]
    small = [2, 3, 5, 10, 1_000, 1_001, 1_002, 1_003]
    return [*edges, *small, *_places(), *map(len, TEXTS), *cells, 32_768, 65_536]


def _image() -> bytes:
    """What its memory begins with."""
    image = bytearray(_IMAGE_SIZE)
    struct.pack_into(f"<{len(_lengths())}I", image, _LENGTHS_AT, *_lengths())
    struct.pack_into(f"<{len(_values())}I", image, _VALUES_AT, *_values())
    for at, text in zip(_places(), TEXTS, strict=True):
        image[at : at + len(text)] = text
    return bytes(image)


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in data)
