"""How a stream of the Responses API that is passed on says that it broke off."""

import msgspec

from toolgate.errors import ToolgateError


def encode_error(exc: ToolgateError) -> bytes:
    """How a stream of the model's server ends that broke off. How many events there were is not counted."""
    said = {
        "type": "error",
        "sequence_number": 0,
        "code": exc.code,
        "message": f"{exc}. {exc.hint}",
        "param": None,
    }
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(said)
