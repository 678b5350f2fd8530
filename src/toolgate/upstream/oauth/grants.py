"""The grants of logins, one file each, readable by the gateway's own user only.

They are not in the registry: its history, watch, exports and backups never hold a token.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolgate.disk import DRAFT_SUFFIX, replace_file
from toolgate.upstream.oauth.authority import OAuthClient, OAuthToken

_DIRECTORY_MODE: Final = 0o700  # the gateway's own user only
_MAX_FILE_BYTES: Final = 256 * 1024  # two tokens of 16 KiB, a client and 256 scopes, more than twice over


class LoginKey(NamedTuple):
    """Identifies a login: the server and the principal; empty if the login serves all callers."""

    server_id: str
    owner: str = ""

    @property
    def file_name(self) -> str:
        """Server ids are safe as file names and hold no `@`; principals may have any name."""
        digest = hashlib.sha256(self.owner.encode()).hexdigest()
        return f"{self.server_id}@{digest}.json" if self.owner else f"{self.server_id}.json"


class StoredGrant(OAuthToken, frozen=True, kw_only=True):
    """A token with its issuer, resource and client: it is used for nothing else."""

    issuer: str
    client_id: str
    resource: str
    owner: str = ""
    client_secret: str | None = None
    client_method: str | None = None
    """Set for a client that the gateway registered, for this login only."""
    scopes: tuple[str, ...] = ()
    """The requested scopes."""

    def __repr__(self) -> str:
        return f"<grant for {self.resource} by {self.issuer}>"

    def renewed(self, token: OAuthToken) -> "StoredGrant":
        """The same grant with another token; keeps the refresh token unless there is a new one."""
        changes = {**msgspec.structs.asdict(token), "refresh": token.refresh or self.refresh}
        return msgspec.structs.replace(self, **changes)

    @property
    def registered_client(self) -> OAuthClient | None:
        """The client that the gateway registered for this login; None if an operator did."""
        if self.client_method is None:
            return None
        return OAuthClient(id=self.client_id, secret=self.client_secret, method=self.client_method)


class GrantFiles:
    """The grants in a directory. It is read once; after that, the files follow the memory."""

    def __init__(self, directory: Path) -> None:
        """Unreadable files are ignored: a person has to log in again."""
        self._directory = directory
        self._lock = asyncio.Lock()
        self._grants = dict(_load(directory))
        for draft in directory.glob(f"*{DRAFT_SUFFIX}"):
            with contextlib.suppress(OSError):
                draft.unlink()  # left by a process that was killed while it wrote

    def __iter__(self) -> Iterator[LoginKey]:
        """A copy of all keys."""
        return iter(tuple(self._grants))

    def get(self, key: LoginKey) -> StoredGrant | None:
        return self._grants.get(key)

    async def put(self, key: LoginKey, grant: StoredGrant) -> None:
        """Raises OSError."""
        self._grants[key] = grant
        await self._write_file(key)

    async def drop(self, key: LoginKey) -> StoredGrant | None:
        """Forget a grant and return it. Raises OSError."""
        grant = self._grants.pop(key, None)
        if grant is not None:
            await self._write_file(key)
        return grant

    async def _write_file(self, key: LoginKey) -> None:
        """Write the current state, one file at a time: a grant dropped during a write does not come back."""
        async with self._lock:
            grant = self._grants.get(key)
            content = None if grant is None else msgspec.json.encode(grant)
            await asyncio.to_thread(self._write, self._directory / key.file_name, content)

    def _write(self, path: Path, content: bytes | None) -> None:
        if content is None:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        self._directory.chmod(_DIRECTORY_MODE)
        replace_file(path, content)


def _load(directory: Path) -> Iterator[tuple[LoginKey, StoredGrant]]:
    for path in sorted(directory.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with os.fdopen(os.open(path, flags), "rb") as file:
                grant = msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=StoredGrant)
            key = LoginKey(path.stem.partition("@")[0], grant.owner)
            # A renamed file would give its token to another principal.
            if key.file_name == path.name:
                yield key, grant
