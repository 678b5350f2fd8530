"""What every HTTP endpoint does around its handler: challenges and retry hints on errors, request spans."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from toolgate.errors import Forbidden, ToolgateError, Unauthenticated
from toolgate.telemetry.spans import Attributes, Tracer

REALM: Final = 'realm="toolgate"'


def error_headers(
    exc: ToolgateError, *, has_credential: bool = False, metadata_url: str | None = None
) -> dict[str, str]:
    """The headers by which an answer says what to bring, or when to come back."""
    headers = {}
    challenge = _challenge(exc, has_credential=has_credential, metadata_url=metadata_url)
    if challenge is not None:
        headers["www-authenticate"] = challenge
    if exc.wire.http in (429, 503):
        headers["retry-after"] = str(exc.retry_after_s or 1)
    return headers


def _challenge(exc: ToolgateError, *, has_credential: bool, metadata_url: str | None) -> str | None:
    parts = [f"Bearer {REALM}"]
    if isinstance(exc, Forbidden):
        parts.append('error="insufficient_scope"')
    elif not isinstance(exc, Unauthenticated):
        return None
    elif has_credential:
        parts.append('error="invalid_token"')
    if metadata_url is not None:
        parts.append(f'resource_metadata="{metadata_url}"')
    return ", ".join(parts)


@contextmanager
def trace_request(
    tracing: Tracer | None, carried: Mapping[str, str], *, verb: str, route: str, notes: Attributes
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
