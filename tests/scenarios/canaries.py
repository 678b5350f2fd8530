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
BUCKET_SECRET: Final = f"{MARK}-of-the-bucket"
"""By which archives of packages are kept elsewhere."""

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
    """The logs and the audit of a gateway. Not its registry: that is to hold what is in records."""
    yield from outputs.iterdir()
    yield from data.glob("audit*")


def leaks(files: Iterable[Path], secrets: Iterable[str] = (MARK,)) -> list[str]:
    """Where a canary is, or another of `secrets`, with what is around it."""
    sought, found = [one.encode() for one in secrets], []
    for path in files:
        content = path.read_bytes()
        found += [f"{path}: {_around(content, one)!r}" for one in sought if one in content]
    return found


def lines_of_key(pem: Path) -> list[str]:
    """What is secret in a file with a private key: the lines of it."""
    _, _, key = pem.read_text("ascii").partition("PRIVATE KEY-----\n")
    return key.partition("-----END")[0].split()


def _around(content: bytes, secret: bytes) -> bytes:
    place = content.index(secret)
    return content[max(0, place - 200) : place + 100]
