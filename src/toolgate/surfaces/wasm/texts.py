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


def has_nul(value: object) -> bool:
    """Whether a NUL stands in a text anywhere in a JSON value, written as an escape."""
    rest = [value]
    while rest:
        match rest.pop():
            case str(text):
                if "\0" in text:
                    return True
            case list(entries):
                rest.extend(entries)
            case dict(members):
                rest.extend(members.keys())
                rest.extend(members.values())
    return False
