"""Texts that guests hand over as names, keys and JSON: UTF-8 without NUL, or nothing."""

from toolgate.surfaces.wasm.context import TaskGuest
from toolgate.wasm.faults import Errno, Fault


def read_text(guest: TaskGuest, pointer: int, length: int, *, most: int) -> str:
    """The text at `pointer`. Fault EFAULT outside of the memory, and EINVAL as `decode_text`."""
    return decode_text(guest.read(pointer, length, most=most))


def decode_text(data: bytes) -> str:
    """Fault EINVAL for bytes that are no UTF-8, or hold a NUL."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise Fault(Errno.EINVAL) from exc
    if "\0" in text:
        raise Fault(Errno.EINVAL)
    return text


def has_nul(json: bytes) -> bool:
    """Whether a NUL stands in a text anywhere in `json`, where it can only be written as an escape."""
    return b"\\u0000" in json.replace(b"\\\\", b"")  # without backslashes that stand for themselves
