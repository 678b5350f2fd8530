"""The memory of one guest, as a call may touch it: between its bounds, and nowhere else.

Pointers and lengths come as the guest made them up, signed. wasmtime's own accessors cut what reaches over
the end, and count negative pointers from there; here that is EFAULT. The size is asked for each time: it may
have grown.
"""

import ctypes
import struct
from typing import Final

from wasmtime import Caller, Memory, Store

from toolgate.wasm.faults import Errno, Fault

_U32_MAX: Final = 0xFFFF_FFFF
_U32: Final = struct.Struct("<I")


class GuestMemory:
    """What the guest exports as `memory`; without it, every pointer is bad."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory: Memory | None = None
        self._is_sought = True

    def find(self, caller: Caller) -> None:
        """In the first call already: a guest may call before it has started."""
        if self._is_sought:
            self.adopt(caller.get("memory"))

    def adopt(self, exported: object) -> None:
        """What the guest exports by that name."""
        self._is_sought = False
        self._memory = exported if isinstance(exported, Memory) else None

    @property
    def size(self) -> int:
        return 0 if self._memory is None else self._memory.data_len(self._store)

    def read(self, pointer: int, length: int, *, most: int) -> bytes:
        pointer, length = pointer & _U32_MAX, length & _U32_MAX
        address = self._address(pointer, length)
        if length > most:
            raise Fault(Errno.EINVAL)
        return ctypes.string_at(address, length) if length else b""

    def write(self, pointer: int, data: bytes) -> None:
        address = self._address(pointer & _U32_MAX, len(data))
        if data:
            ctypes.memmove(address, data, len(data))

    def read_u32(self, pointer: int) -> int:
        value: int = _U32.unpack(self.read(pointer, _U32.size, most=_U32.size))[0]
        return value

    def write_u32(self, pointer: int, value: int) -> None:
        self.write(pointer, _U32.pack(value & _U32_MAX))

    def check_out(self, out_pointer: int, out_length_pointer: int) -> int:
        capacity = self.read_u32(out_length_pointer)
        self._address(out_pointer & _U32_MAX, capacity)
        return capacity

    def put_out(self, out_pointer: int, out_length_pointer: int, data: bytes) -> int:
        capacity = self.check_out(out_pointer, out_length_pointer)
        if len(data) <= capacity:
            self.write(out_pointer, data)
        self.write_u32(out_length_pointer, len(data))
        if len(data) > capacity:
            raise Fault(Errno.ENOSPC)
        return len(data)

    def _address(self, pointer: int, length: int) -> int:
        """Where in this process that is; of no use where `length` is 0."""
        memory = self._memory
        if memory is None or pointer + length > memory.data_len(self._store):
            raise Fault(Errno.EFAULT)
        if not length:
            return 0
        return ctypes.addressof(memory.data_ptr(self._store).contents) + pointer
