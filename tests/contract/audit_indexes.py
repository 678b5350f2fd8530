"""Every index of the audit there is, opened for a test; and events to put into it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.contract.stores import schema_url
from toolgate.app.audit_index import open_postgres_index
from toolgate.audit.events import AuditEvent, CallRecorded
from toolgate.audit.index.index import AuditIndex, open_sqlite_index
from toolgate.audit.log.files import AuditLine, LineBatch

OpenIndex = Callable[[Path], AbstractAsyncContextManager[AuditIndex]]
LOG: Final = "ab" * 16


@asynccontextmanager
async def open_sqlite(directory: Path) -> AsyncIterator[AuditIndex]:
    async with open_sqlite_index(directory / "audit.db") as index:
        yield index


@asynccontextmanager
async def open_postgres(directory: Path) -> AsyncIterator[AuditIndex]:
    async with open_postgres_index(schema_url(directory)) as index:
        yield index


INDEXES: Final[dict[str, OpenIndex]] = {"sqlite": open_sqlite, "postgresql": open_postgres}


def call(at_ms: int = 1_000, **fields: Any) -> CallRecorded:
    """A call that went well, unless said otherwise."""
    known: dict[str, Any] = {"door": "mcp", "principal": "key:ada", "tool": "git__log", "outcome": "ok"}
    return CallRecorded(at_ms, **known | {"server_id": "git"} | fields)


def batch(*events: AuditEvent, after: int = 0) -> LineBatch:
    """Events of a log, numbered from `after` on."""
    lines = [AuditLine(seq, event) for seq, event in enumerate(events, after + 1)]
    return LineBatch(after, after + len(lines), lines)


async def add(index: AuditIndex, *events: AuditEvent, after: int = 0, node: str = "") -> int:
    return await index.add(batch(*events, after=after), node=node, log=LOG)


def times(found: Sequence[Any]) -> list[int]:
    """When each of them was: what tests tell them apart by."""
    return [one.event.at_ms for one in found]
