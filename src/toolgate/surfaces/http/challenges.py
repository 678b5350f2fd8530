"""What a refusal says about credentials: challenges (RFC 6750), and where tokens come from (RFC 9728)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolgate.errors import Forbidden, ToolgateError, Unauthenticated

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Here stands the metadata of the whole gateway; that of a path, with the path behind it."""
REALM: Final = 'realm="toolgate"'
NAME: Final = "Toolgate"

# What goes into a header comes from one: nothing may end a quoted string there.
_PLAIN = re.compile(r"[A-Za-z0-9/_.:\[\]-]*")


@dataclass(frozen=True, slots=True)
class Discovery:
    """Tells clients which issuer's tokens this gateway takes."""

    issuer: str
    public_url: str | None = None
    """How clients reach the gateway, where that is not what they call it by."""

    def base_url(self, host: str) -> str:
        """Of a gateway that was called by this `Host`, which the guard has let pass."""
        return (self.public_url or f"http://{host}").rstrip("/")

    def metadata_url(self, host: str, path: str) -> str | None:
        """Where the metadata of `path` is found; that of the whole gateway for a path of odd spelling."""
        if self.public_url is None and not _PLAIN.fullmatch(host):
            return None
        return self.base_url(host) + WELL_KNOWN + (path.rstrip("/") if _PLAIN.fullmatch(path) else "")

    def metadata(self, host: str, path: str) -> Mapping[str, object]:
        """The metadata of `path`, empty for the whole gateway."""
        return {
            "resource": self.base_url(host) + path,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": NAME,
        }


def refusal_headers(
    exc: ToolgateError, *, has_credential: bool = False, metadata_url: str | None = None
) -> dict[str, str]:
    """The headers by which an answer says what to bring, or when to come back."""
    headers = {}
    challenge = _challenge(exc, has_credential=has_credential, metadata_url=metadata_url)
    if challenge is not None:
        headers["www-authenticate"] = challenge
    if exc.wire.http in (429, 503):
        headers["retry-after"] = str(exc.data.get("retry_after_s", 1))
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
