"""The errors of all surfaces, from the table of error classes."""

from collections.abc import Iterator
from typing import Final

from pages.markdown import code, page, sentence, wrap
from toolgate.errors import WIRE, ToolgateError

_INTRO: Final = """
Error codes are stable; messages may change. REST responds with the HTTP status and
`{"error": {"code", "message", "hint"}}`. The MCP endpoint responds with a JSON-RPC error whose `data.code`
is the error code. If the call itself failed, it returns a tool result with `isError` and the same data in
`_meta["toolgate/error"]` ([why](../adr/0009-failed-calls-are-results.md)).
"""


def errors_page() -> str:
    """errors.md"""
    return page("Errors", _INTRO, *map(_section, sorted(_all_errors(), key=lambda one: one.code)))


def _all_errors(parent: type[ToolgateError] = ToolgateError) -> Iterator[type[ToolgateError]]:
    yield parent
    for subclass in parent.__subclasses__():
        yield from _all_errors(subclass)


def _section(error: type[ToolgateError]) -> str:
    wire = WIRE[error.code]
    again = "retryable" if error.retryable else "not retryable"
    meaning = "Something failed inside the gateway." if error is ToolgateError else sentence(error.__doc__)
    return "\n\n".join(
        [
            f"## {code(error.code)}",
            f"HTTP {wire.http}, JSON-RPC {wire.jsonrpc}, {again}.",
            wrap(meaning),
            wrap(f"What to do: {error.default_hint}."),
        ]
    )
