"""Requests over plain HTTP as spans, where requests are traced."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from toolgate.errors import ToolgateError
from toolgate.telemetry.spans import Notes, Tracing


@contextmanager
def served(
    tracing: Tracing | None, carried: Mapping[str, str], *, verb: str, route: str, notes: Notes
) -> Iterator[None]:
    """The block answers a request. `route` is the pattern of its path, `carried` what its headers say."""
    if tracing is None:
        yield
        return
    fixed = {"http.request.method": verb, "http.route": route}
    with tracing.continued(carried), tracing.span(f"{verb} {route}", "server", {**fixed, **notes}) as span:
        try:
            yield
        except ToolgateError as exc:
            span.note("http.response.status_code", exc.wire.http)
            raise
