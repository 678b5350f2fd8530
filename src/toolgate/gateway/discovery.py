"""Where the tokens come from that this gateway takes: protected resource metadata (RFC 9728)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Here stands the metadata of the whole gateway; that of a path, with the path behind it."""
NAME: Final = "Toolgate"

# What comes from a request goes into a header: nothing may end a quoted string there.
_PLAIN = re.compile(r"[A-Za-z0-9/_.:\[\]-]*")


@dataclass(frozen=True, slots=True)
class Discovery:
    """Tells clients which issuer's tokens this gateway takes."""

    issuer: str
    public_url: str | None = None
    """How clients reach the gateway, where that is not what they call it by."""

    def metadata_url(self, called_url: str, path: str) -> str | None:
        """Where the metadata of `path` is found; that of the whole gateway for a path of odd spelling."""
        base_url = self._base_url(called_url)
        if not _PLAIN.fullmatch(base_url):
            return None
        return base_url + WELL_KNOWN + (path.rstrip("/") if _PLAIN.fullmatch(path) else "")

    def metadata(self, called_url: str, path: str) -> Mapping[str, object]:
        """The metadata of `path`; empty means the whole gateway."""
        return {
            "resource": self._base_url(called_url) + path,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": NAME,
        }

    def _base_url(self, called_url: str) -> str:
        return (self.public_url or called_url).rstrip("/")
