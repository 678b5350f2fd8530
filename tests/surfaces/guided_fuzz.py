"""Coverage-guided fuzzing of one parser, in a process of its own.

Arguments are the parser, a directory of first inputs, and options of libFuzzer. It ends with 0 when nothing
was found. What a parser refuses it must refuse with its own error; anything else is a crash.
"""

import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["toolgate"]):
    from toolgate.errors import ToolgateError
    from toolgate.model.principals import Principal
    from toolgate.surfaces.mcp.exchange import parse_caller
    from toolgate.surfaces.mcp.jsonrpc import parse_message
    from toolgate.upstream.http.sse import SseParser, StreamRefused

MAX_EVENT_BYTES = 1024


def envelope(data: bytes) -> None:
    """Any bytes are one message or refused."""
    try:
        message = parse_message(data)
    except ToolgateError:
        return
    assert message.id is None or data.count(message.id)


def query(data: bytes) -> None:
    """Any path and query are a target or refused."""
    path, _, text = data.partition(b"?")
    try:
        parse_caller(Principal(id="ada", role="agent"), f"/api/mcp{path.decode('latin-1')}", text)
    except ToolgateError:
        return


def events(data: bytes) -> None:
    """However a stream is cut into pieces, the events are the same."""
    size = data[0] % 7 + 1 if data else 1
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    found = []
    for parts in ([data], pieces):
        parser = SseParser(MAX_EVENT_BYTES)
        try:
            found.append([event for part in parts for event in parser.feed(part)])
        except StreamRefused:
            return
    assert found[0] == found[1]


PARSERS: dict[str, Callable[[bytes], None]] = {one.__name__: one for one in (envelope, query, events)}

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], PARSERS[sys.argv[1]])
    atheris.Fuzz()
