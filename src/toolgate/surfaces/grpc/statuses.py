"""The one translation of errors to what gRPC says.

Status and details are for every client; the code of the error stands in the trailing metadata, alone and,
with message, hint and data, as JSON.
"""

from typing import Final, NamedTuple

import grpc
import msgspec

from toolgate.errors import ToolgateError

CODE_KEY: Final = "toolgate-code"
ERROR_KEY: Final = "toolgate-error-bin"
MAX_DETAILS: Final = 2_000
MAX_ERROR_BYTES: Final = 4_000
"""Clients take 8 KiB of metadata in all: past that they would see another error than ours."""


class Status(NamedTuple):
    """How a call ends."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str | bytes], ...]


def encode_error(exc: ToolgateError) -> Status:
    """The status, the words, and the metadata of an error."""
    message = str(exc)
    encoded = msgspec.json.encode(exc.detail)
    if len(encoded) > MAX_ERROR_BYTES:
        cut = {"code": exc.code, "message": message[: MAX_DETAILS // 2], "hint": exc.hint}
        encoded = msgspec.json.encode(cut)
    return Status(
        code=grpc.StatusCode[exc.wire.grpc],
        details=f"{message}; {exc.hint}"[:MAX_DETAILS],
        metadata=((CODE_KEY, exc.code), (ERROR_KEY, encoded)),
    )
