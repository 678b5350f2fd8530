"""What logins have earned, one file a server, for their owner only.

They are kept beside the registry and not in it: history, watch, exports and backups never hold a token.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from toolgate.upstream.oauth.tokens import Token

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class StoredGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A token with whom it is from, for and by: it is used for nothing else."""

    issuer: str
    client_id: str
    resource: str
    access: str
    refresh: str | None = None
    expires_at_s: float | None = None
    lifetime_s: float = 0.0

    def __repr__(self) -> str:
        return f"<grant for {self.resource} by {self.issuer}>"

    @property
    def token(self) -> Token:
        return Token(
            access=self.access,
            expires_at_s=self.expires_at_s,
            lifetime_s=self.lifetime_s,
            refresh=self.refresh,
        )


class GrantFiles:
    """The grants in a directory. Server ids are safe as names of files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, StoredGrant | None] = {}

    def get(self, server_id: str) -> StoredGrant | None:
        """The grant for a server. What cannot be read is as good as none: somebody has to log in again."""
        if server_id not in self._known:
            self._known[server_id] = self._load(server_id)
        return self._known[server_id]

    async def put(self, server_id: str, grant: StoredGrant) -> None:
        """Keep it. Raises OSError."""
        self._known[server_id] = grant
        await asyncio.to_thread(self._save, server_id, msgspec.json.encode(grant))

    def drop(self, server_id: str) -> bool:
        """Forget it; False where there was none."""
        had = self.get(server_id) is not None
        self._known[server_id] = None
        self._path(server_id).unlink(missing_ok=True)
        return had

    def _load(self, server_id: str) -> StoredGrant | None:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(self._path(server_id).read_bytes(), type=StoredGrant)
        return None

    def _save(self, server_id: str, content: bytes) -> None:
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        path = self._path(server_id)
        draft = path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def _path(self, server_id: str) -> Path:
        return self._directory / f"{server_id}.json"
