"""The errors a caller may see, from the one table that has them."""

from collections.abc import Iterator
from typing import Final

from pages.markdown import code, page, sentence, wrap
from toolgate.errors import WIRE, ToolgateError

_INTRO: Final = """
Codes are stable; messages may change. REST answers `{"error": {"code", "message", "hint"}}` with the HTTP
status. The MCP door answers a JSON-RPC error with the code under `data.code`, or, where the call itself
failed, a tool result with `isError` and the same under `_meta["toolgate/error"]`
([why](../adr/0009-failed-calls-are-results.md)).
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
    again = "worth a retry" if error.retryable else "a plain retry changes nothing"
    meaning = "Something failed inside the gateway." if error is ToolgateError else sentence(error.__doc__)
    return "\n\n".join(
        [
            f"## {code(error.code)}",
            f"HTTP {wire.http}, JSON-RPC {wire.jsonrpc}, {again}.",
            wrap(meaning),
            wrap(f"What to do: {error.default_hint}."),
        ]
    )
