"""Modules made byte by byte, to be hard on what compiles them."""

MAGIC = b"\0asm\1\0\0\0"


def leb(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + leb(len(content)) + content


def functions(count: int, body: bytes) -> bytes:
    """So many functions that take and give nothing, each with this body; the first is `_start`."""
    code = leb(len(body)) + body
    types = section(1, b"\1\x60\0\0")
    entry = section(7, b"\1\6_start\0\0")
    return (
        MAGIC
        + types
        + section(3, leb(count) + b"\0" * count)
        + entry
        + section(10, leb(count) + code * count)
    )


def nested(depth: int) -> bytes:
    """A body of blocks in blocks."""
    return b"\0" + b"\x02\x40" * depth + b"\x0b" * depth + b"\x0b"


EMPTY_BODY = b"\0\x0b"
