"""SEC-1: secrets that are planted wherever a scenario starts a gateway, and looked for in all that it wrote.

They look like nothing in particular: what hides them must know where they stand, not what they look like.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

MARK: Final = "canary-5d1c9e"
"""What all of them begin with."""
NODE_SECRET: Final = f"{MARK}-of-the-node"
"""In the environment of every gateway, and passed on to stage servers by reference."""
RECORD_SECRET: Final = f"{MARK}-of-a-record"
"""In the record of every stage server itself."""
COOKIE: Final = f"{MARK}-of-a-browser"
"""In what every caller sends."""

DATABASE_PASSWORD: Final = f"{MARK}-of-the-database"
"""Of fleets on PostgreSQL, which trusts them without."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "TOOLGATE_LOG_LEVEL": "debug",
    "NODE_API_TOKEN": NODE_SECRET,
    "PGPASSWORD": DATABASE_PASSWORD,
}
STAGE_ENVIRONMENT: Final = {"STAGE_TOKEN": "${ENV:NODE_API_TOKEN:-}", "STAGE_PASSWORD": RECORD_SECRET}
CALLER_HEADERS: Final = {"cookie": f"theme={COOKIE}"}


def with_password(database: str) -> str:
    """The URL of a database as people write it who do not read the manual."""
    return database.replace("postgres@", f"postgres:{DATABASE_PASSWORD}@", 1)


def written_by(data: Path, outputs: Path) -> Iterator[Path]:
    """The logs and the audit of a gateway. Not its registry: that is to hold what stands in records."""
    yield from outputs.iterdir()
    yield from data.glob("audit*")


def leaks(files: Iterable[Path]) -> list[str]:
    """Where a canary stands, with what is around it."""
    return [f"{path}: {_around(path.read_bytes())!r}" for path in files if MARK.encode() in path.read_bytes()]


def _around(content: bytes) -> bytes:
    place = content.index(MARK.encode())
    return content[max(0, place - 200) : place + 100]
