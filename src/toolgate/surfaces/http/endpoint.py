"""What a refusal says about credentials, on every HTTP door: challenges (RFC 6750), when to come back."""

from typing import Final

from toolgate.errors import Forbidden, ToolgateError, Unauthenticated

REALM: Final = 'realm="toolgate"'


def refusal_headers(
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
