"""Tools that changed after approval get into the record of their pin, and only approval gets them out."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.memory_store import MemoryStore
from tests.surfaces.mcp.mcp_world import open_mcp_world
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.errors import InvalidRequest, StorageFailed
from toolgate.govern.changes.history import roll_back_pin
from toolgate.govern.changes.records import merge_quarantined
from toolgate.govern.pins import ATTEMPTS, follow_pins, record_quarantined
from toolgate.model.revisions import Kind, RecordWrite, StoredRecord
from toolgate.model.tools import Pin

A, B, C = "a" * 64, "b" * 64, "c" * 64
HELD = {"server_id": "git", "tools": {"log": A, "push": A}, "changed": {"log": B}}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param({"tools": {"log": A}}, {"log": B}, id="a file that knows nothing of it"),
        pytest.param({"tools": {"log": A}, "changed": {}}, {"log": B}, id="what was read before it changed"),
        pytest.param({"tools": {"log": A}, "changed": {"log": B}}, {"log": B}, id="what was read since"),
        pytest.param({"tools": {"log": A}, "changed": {"push": C}}, {"log": B, "push": C}, id="another one"),
        pytest.param({"tools": {"log": A}, "changed": {"log": None}}, None, id="a word about the tool"),
        pytest.param({"tools": {"log": B}}, None, id="approval of what was found"),
        pytest.param({"tools": {"log": C}}, None, id="approval of something else"),
        pytest.param({"tools": {"push": A}}, None, id="approved no more"),
        pytest.param({}, None, id="nothing approved"),
        pytest.param({"tools": {"log": A}, "changed": [1]}, [1], id="a wrong shape is told of elsewhere"),
        pytest.param({"tools": "log"}, None, id="and so is this"),
    ],
)
def test_only_an_approval_lets_a_changed_tool_go(sent: dict[str, Any], expected: Any) -> None:
    assert merge_quarantined(HELD, sent).get("changed") == expected


@given(
    was=st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B, C])),
    held=st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B, C])),
    now=st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B, C])),
    notified=st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B, C])),
)
def test_a_change_that_leaves_a_tool_out_keeps_it_quarantined(
    was: dict[str, str], held: dict[str, str], now: dict[str, str], notified: dict[str, str]
) -> None:
    after = merge_quarantined({"tools": was, "changed": held}, {"tools": now, "changed": notified}).get(
        "changed", {}
    )

    assert {tool for tool in held if tool in now and now[tool] == was.get(tool)} <= after.keys()
    assert notified.items() <= after.items()
    assert after.keys() <= held.keys() | notified.keys()


def stored(body: dict[str, Any]) -> StoredRecord:
    return StoredRecord(kind="pin", id="git", body=body, revision=3, updated_at_ms=0)


def test_a_rollback_approves_of_nothing() -> None:
    then = {"server_id": "git", "tools": {"log": C}}

    assert roll_back_pin(stored(HELD), then) == {**then, "changed": {"log": B}}
    assert roll_back_pin(None, then) == {**then, "changed": {}}
    assert roll_back_pin(stored({"server_id": "git"}), None) is None
    with pytest.raises(InvalidRequest, match="1 changed tools would be offered"):
        roll_back_pin(stored(HELD), None)


# What is written by the gateway itself


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    opened = MemoryStore(lambda: 0)
    body = {"server_id": "git", "tools": {"log": A, "push": A}, "from_a_newer_version": 1}
    await opened.write([RecordWrite(kind="pin", id="git", body=body)], actor="ada")
    yield opened
    await opened.aclose()


async def pin(store: MemoryStore) -> tuple[dict[str, Any], str]:
    found = await store.get("pin", "git")
    assert found is not None
    return dict(found.body), found.actor


@pytest.mark.anyio
async def test_what_was_found_is_added_once_and_touches_nothing_else(store: MemoryStore) -> None:
    before, _ = await pin(store)
    for found in (B, C, B):
        await record_quarantined(
            store, {"git": {"log": found, "other": B, "push": A}, "gone": {"x": B}}, seen=9
        )

    assert await pin(store) == ({**before, "changed": {"log": B}}, "toolgate")
    assert store.revision == 2


@pytest.mark.anyio
async def test_what_was_found_before_the_pin_was_written_is_left_alone(store: MemoryStore) -> None:
    await record_quarantined(store, {"git": {"log": B}}, seen=0)

    assert (await pin(store))[1] == "ada"


@pytest.mark.anyio
async def test_writers_that_meet_lose_nothing_of_each_other(store: MemoryStore) -> None:
    await asyncio.gather(
        record_quarantined(store, {"git": {"log": B}}, seen=9),
        record_quarantined(store, {"git": {"push": C}}, seen=9),
        store.write([RecordWrite(kind="pin", id="other", body={"server_id": "other"})], actor="ada"),
    )

    assert (await pin(store))[0]["changed"] == {"log": B, "push": C}


class Contended(MemoryStore):
    """Someone else is always a little faster, or the disk fails: as often as it is told."""

    conflicts = 0
    failures = 0

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        if actor == "toolgate" and self.conflicts:
            self.conflicts -= 1
            before = await self.get("pin", "git")
            assert before is not None
            body = {**before.body, "tools": {**before.body["tools"], f"new{self.conflicts}": A}}
            await super().write([RecordWrite(kind="pin", id="git", body=body)], actor="ada")
        return await super().write(writes, actor=actor, if_store_revision=if_store_revision)

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        if self.failures:
            self.failures -= 1
            raise StorageFailed("the disk is full") if self.failures % 2 else ValueError("a bug")
        return await super().get(kind, record_id)


async def contended() -> Contended:
    opened = Contended(lambda: 0)
    await opened.write(
        [RecordWrite(kind="pin", id="git", body={"server_id": "git", "tools": {"log": A}})], actor="ada"
    )
    return opened


@pytest.mark.anyio
@pytest.mark.parametrize(("conflicts", "expected"), [(3, {"log": B}), (ATTEMPTS, {})])
async def test_a_pin_that_others_write_meanwhile_is_tried_again_a_bounded_number_of_times(
    conflicts: int, expected: dict[str, str]
) -> None:
    store = await contended()
    store.conflicts = conflicts
    await record_quarantined(store, {"git": {"log": B}}, seen=1_000)
    body, _ = await pin(store)

    assert (body.get("changed", {}), len(body["tools"])) == (expected, 1 + conflicts)


@pytest.mark.anyio
async def test_what_cannot_be_stored_is_stored_later() -> None:
    store = await contended()
    net = MemoryNet(git=MemoryServer(tools=(definition("log"),)))
    async with (
        open_mcp_world(net, record("git", allowed_tools=("*",))) as world,
        asyncio.TaskGroup() as tasks,
    ):
        world.apply(pins={"git": Pin(server_id="git", tools={"log": A})})
        store.failures = 4
        keeping = tasks.create_task(follow_pins(store, world.gateway, gap_s=0, retry_s=0))
        async with asyncio.timeout(60):
            while "changed" not in (await MemoryStore.get(store, "pin", "git")).body:  # type: ignore[union-attr]
                await asyncio.sleep(0)
        keeping.cancel()

    assert store.failures == 0
