"""Every store against a model small enough to be believed: random steps, and both must always agree."""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.contract.stores import DURABLE_STORES, STORES, Clock, OpenStore, read_watch
from toolgate.errors import Compacted, Conflict, NotFound, ToolgateError
from toolgate.model.revisions import Body, Kind, RecordWrite
from toolgate.registry.store.sql_store import Store

Key = tuple[str, str]


@dataclass
class Model:
    """What a store is: records with revisions, a log of what each revision did, and where the log begins."""

    records: dict[Key, tuple[int, Body]] = field(default_factory=dict)
    log: list[dict[Key, Body | None]] = field(default_factory=list)
    compacted: int = 0

    @property
    def revision(self) -> int:
        return len(self.log)

    def write(self, writes: Sequence[RecordWrite]) -> type[ToolgateError] | int:
        changes: dict[Key, Body | None] = {}
        for write in writes:
            key = (write.kind, write.id)
            revision, body = self.records.get(key, (0, None))
            if write.body is None and body is None:
                return NotFound
            if write.if_revision not in {None, revision}:
                return Conflict
            if write.body != body:
                changes[key] = write.body
        if changes:
            self.log.append(changes)
        for changed, after in changes.items():
            if after is None:
                del self.records[changed]
            else:
                self.records[changed] = (self.revision, after)
        return self.revision

    def compact(self, keep_revisions: int) -> int:
        self.compacted = max(self.compacted, self.revision - keep_revisions)
        return self.compacted

    def watch(self, since: int) -> type[ToolgateError] | list[tuple[int, dict[Key, Body | None]]]:
        if since < self.compacted:
            return Compacted
        return [(revision + 1, self.log[revision]) for revision in range(since, self.revision)]


KINDS: st.SearchStrategy[Kind] = st.sampled_from(["server", "task"])
BODIES = st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=2)
WRITES = st.lists(
    st.builds(
        RecordWrite,
        kind=KINDS,
        id=st.sampled_from("abc"),
        body=BODIES,
        if_revision=st.none() | st.integers(0, 6),
    ),
    max_size=4,
    unique_by=lambda write: (write.kind, write.id),
)


class StoreMachine(RuleBasedStateMachine):
    """One store and the model, side by side."""

    open_store: OpenStore
    is_durable: bool

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.open()

    def open(self) -> None:
        self.opened: AbstractAsyncContextManager[Store] = type(self).open_store(
            Path(self.directory.name), self.clock
        )
        self.store = self.runner.run(self.opened.__aenter__())

    @rule(writes=WRITES)
    def write(self, writes: list[RecordWrite]) -> None:
        assert self.attempt(self.store.write(writes, actor="ada")) == self.model.write(writes)

    @rule(keep_revisions=st.integers(0, 5))
    def compact(self, keep_revisions: int) -> None:
        compacted = self.runner.run(self.store.compact(keep_revisions=keep_revisions, keep_ms=0))

        assert compacted == self.model.compact(keep_revisions)

    @rule(back=st.integers(0, 8))
    def watch(self, back: int) -> None:
        since = max(0, self.model.revision - back)

        assert self.attempt(self.replay(since)) == self.model.watch(since)

    @precondition(lambda self: self.is_durable)
    @rule()
    def reopen(self) -> None:
        epoch = self.store.epoch
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.open()

        assert self.store.epoch == epoch

    @invariant()
    def negotiate(self) -> None:
        listing = self.runner.run(self.store.list())

        assert listing.revision == self.store.revision == self.model.revision
        assert {
            (each.kind, each.id): (each.revision, each.body) for each in listing.records
        } == self.model.records

    def teardown(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()
        self.directory.cleanup()

    def attempt(self, work: Any) -> object:
        try:
            return self.runner.run(work)
        except ToolgateError as exc:
            return type(exc)

    async def replay(self, since: int) -> list[tuple[int, dict[Key, Body | None]]]:
        *batches, bookmark = await read_watch(self.store, since, upto=self.store.revision)
        assert (bookmark.changes, bookmark.revision) == ((), self.store.revision)
        return [
            (batch.revision, {(change.kind, change.id): change.after for change in batch.changes})
            for batch in batches
        ]


@pytest.mark.parametrize("name", STORES)
def test_a_store_and_its_model_always_agree(name: str) -> None:
    members = {"open_store": staticmethod(STORES[name]), "is_durable": name in DURABLE_STORES}
    machine = type("Machine", (StoreMachine,), members)

    # Each step at PostgreSQL takes ten times as long, and most of what is decided is decided in shared code.
    examples = 12 if name == "postgresql" else 40
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=25, deadline=None, database=None),
    )
