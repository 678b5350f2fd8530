"""Signs what clients keep for us and hand back: session ids, and the state of requests that wait for input.

Signed, not encrypted: it says nothing that its client does not know. All nodes share the key.
"""

import base64
import hashlib
import hmac
from typing import Final

_MAC_BYTES: Final = 32


class Signer:
    """Makes tokens, and opens those of its own key. A token for one purpose is none for another."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        """A token that holds `payload`, in characters that any header or URL keeps."""
        return base64.urlsafe_b64encode(self._mac(purpose, payload) + payload).rstrip(b"=")

    def open(self, purpose: bytes, token: bytes) -> bytes | None:
        """The payload of a token as it was made; None for any other bytes."""
        try:
            signed = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        payload = signed[_MAC_BYTES:]
        # The very bytes that were issued, and no other spelling of them: it would be another token.
        return payload if hmac.compare_digest(token, self.sign(purpose, payload)) else None

    def _mac(self, purpose: bytes, payload: bytes) -> bytes:
        return hmac.digest(self.key, b"%b\0%b" % (purpose, payload), hashlib.sha256)
