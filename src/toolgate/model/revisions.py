"""The stored form of the registry: records, changes and their log. The store treats all kinds alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["server", "task", "profile", "key", "pin", "package", "chat_upstream", "secret", "choice"]
Operation = Literal["put", "delete"]
Body = Mapping[str, Any]


def describe_kind(kind: Kind) -> str:
    return kind.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """One record, at the revision that last wrote it."""

    kind: Kind
    id: str
    body: Body
    revision: int
    updated_at_ms: int
    actor: str = ""
    """The last writer. Unlike the change log it is never compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWrite:
    """One write of a transaction. `body` None deletes; `if_revision` 0 means "must not exist"."""

    kind: Kind
    id: str
    body: Body | None
    if_revision: int | None = None
    actor: str | None = None
    """The actor, if it differs from the actor of the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    revision: int
    kind: Kind
    id: str
    operation: Operation
    actor: str
    at_ms: int
    before: Body | None
    after: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """All changes of one transaction. Without changes: a bookmark of `revision`."""

    revision: int
    changes: tuple[RecordChange, ...] = ()
    digest: str = field(default="", compare=False)
    """The digest of the log up to `revision`. It differs in another history. Empty: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    """All records at one revision."""

    epoch: str
    revision: int
    records: tuple[StoredRecord, ...]
    digest: str = field(default="", compare=False)
    """The digest of the log up to `revision`; see `ChangeBatch`."""
