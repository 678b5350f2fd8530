"""What logins have earned, one file each, for the gateway's own user only.

They are kept beside the registry and not in it: history, watch, exports and backups never hold a token.
"""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolgate.upstream.oauth.tokens import OAuthClient, OAuthToken

_DIRECTORY_MODE: Final = 0o700
_DRAFT: Final = ".new"
_MAX_FILE_BYTES: Final = 256 * 1024


class LoginKey(NamedTuple):
    """A login: to which server, and of which principal; of none where it serves all callers."""

    server_id: str
    owner: str = ""

    @property
    def file_name(self) -> str:
        """Server ids are safe as names of files and hold no `@`; principals may be called anything."""
        digest = hashlib.sha256(self.owner.encode()).hexdigest()
        return f"{self.server_id}@{digest}.json" if self.owner else f"{self.server_id}.json"


class StoredGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A token with whom it is from, for and by: it is used for nothing else."""

    issuer: str
    client_id: str
    resource: str
    access: str
    owner: str = ""
    client_secret: str | None = None
    client_method: str | None = None
    """Of a client that the gateway registered itself, for this login alone."""
    scopes: tuple[str, ...] = ()
    """What was asked for."""
    refresh: str | None = None
    expires_at_s: float | None = None
    lifetime_s: float = 0.0

    def __repr__(self) -> str:
        return f"<grant for {self.resource} by {self.issuer}>"

    def renewed(self, token: OAuthToken) -> "StoredGrant":
        """The same with another token; what renews it stays, unless there is another."""
        return msgspec.structs.replace(
            self,
            access=token.access,
            refresh=token.refresh or self.refresh,
            expires_at_s=token.expires_at_s,
            lifetime_s=token.lifetime_s,
        )

    @property
    def registered_client(self) -> OAuthClient | None:
        """Whom the gateway registered for this login; None where somebody else did."""
        if self.client_method is None:
            return None
        return OAuthClient(id=self.client_id, secret=self.client_secret, method=self.client_method)

    @property
    def token(self) -> OAuthToken:
        return OAuthToken(
            access=self.access,
            expires_at_s=self.expires_at_s,
            lifetime_s=self.lifetime_s,
            refresh=self.refresh,
        )


class GrantFiles:
    """The grants in a directory, which is read once: what is in memory holds, and the files follow it."""

    def __init__(self, directory: Path) -> None:
        """What cannot be read is as good as none: somebody has to log in again."""
        self._directory = directory
        self._turn = asyncio.Lock()
        self._known = dict(_load(directory))
        for draft in directory.glob(f"*{_DRAFT}"):
            with contextlib.suppress(OSError):
                draft.unlink()  # of a process that was killed while it wrote

    def __iter__(self) -> Iterator[LoginKey]:
        """All there are, as of now."""
        return iter(tuple(self._known))

    def get(self, whose: LoginKey) -> StoredGrant | None:
        return self._known.get(whose)

    async def put(self, whose: LoginKey, grant: StoredGrant) -> None:
        """Keep it. Raises OSError."""
        self._known[whose] = grant
        await self._follow(whose)

    async def drop(self, whose: LoginKey) -> StoredGrant | None:
        """Forget it; returns what there was. Raises OSError."""
        grant = self._known.pop(whose, None)
        if grant is not None:
            await self._follow(whose)
        return grant

    async def _follow(self, whose: LoginKey) -> None:
        """In turn, and by what holds then: one that was dropped while it was written does not come back."""
        async with self._turn:
            grant = self._known.get(whose)
            content = None if grant is None else msgspec.json.encode(grant)
            await asyncio.to_thread(self._write, self._directory / whose.file_name, content)

    def _write(self, path: Path, content: bytes | None) -> None:
        if content is None:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        self._directory.chmod(_DIRECTORY_MODE)
        # A new file, readable by its owner alone: one that lies there may be a link, or open to others.
        descriptor, draft = tempfile.mkstemp(dir=self._directory, suffix=_DRAFT)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise


def _load(directory: Path) -> Iterator[tuple[LoginKey, StoredGrant]]:
    for path in sorted(directory.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            grant = msgspec.json.decode(_read(path), type=StoredGrant)
            whose = LoginKey(path.stem.partition("@")[0], grant.owner)
            # A file under another's name would lend its token to somebody else.
            if whose.file_name == path.name:
                yield whose, grant


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        return file.read(_MAX_FILE_BYTES)
