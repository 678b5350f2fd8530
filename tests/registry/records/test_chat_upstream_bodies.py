"""Chat upstreams as records: from body to value and back, and from one registry into another."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.stores import Clock
from tests.registry.memory_store import MemoryStore
from toolgate.errors import InvalidRecord
from toolgate.model.chat import ChatBudgets, ChatUpstream
from toolgate.model.revisions import RecordWrite
from toolgate.registry.records.codec import encode_record, parse_record
from toolgate.registry.replication.state import parse_listing
from toolgate.registry.store.engines import import_store, open_sqlite_store

pytestmark = pytest.mark.anyio

FULL = ChatUpstream(
    upstream_id="azure",
    base_url="https://r.openai.azure.com/openai/deployments/gpt-4o?api-version=2024-10-21",
    models=("gpt-4o", "o?-*"),
    display_name="Azure",
    headers={"api-key": "${ENV:AZURE_KEY}"},
    mode="passthrough",
    name_profile="identifier",
    other_tools="refuse",
    filter_undeclared_calls=True,
    budgets=ChatBudgets(max_iterations=3, wall_clock_ms=1_000),
    answer_timeout_ms=5_000,
    max_concurrency=2,
    enabled=False,
)

upstreams = st.builds(
    ChatUpstream,
    upstream_id=st.just("local"),
    base_url=st.just("http://127.0.0.1:8000/v1"),
    models=st.lists(st.sampled_from(["*", "a/b", "Qwen/Qwen3-8B"]), min_size=1, max_size=3).map(tuple),
    auth_ref=st.none() | st.just("key"),
    mode=st.sampled_from(["inject", "passthrough"]),
    budgets=st.builds(ChatBudgets, max_iterations=st.integers(0, 100), tool_timeout_ms=st.integers(100, 999)),
    enabled=st.booleans(),
)


@given(upstreams | st.just(FULL))
def test_what_is_encoded_parses_to_the_same(upstream: ChatUpstream) -> None:
    body = encode_record(upstream)

    assert parse_record("chat_upstream", upstream.upstream_id, body) == upstream


def test_only_what_is_not_the_default_is_stored() -> None:
    upstream = ChatUpstream(upstream_id="local", base_url="http://127.0.0.1:8000/v1", models=("*",))

    assert encode_record(upstream) == {
        "upstream_id": "local",
        "base_url": "http://127.0.0.1:8000/v1",
        "models": ["*"],
    }


def test_an_older_program_reads_what_it_knows_and_a_writer_must_know_it_all() -> None:
    newer = {**encode_record(FULL), "colour": "red"}

    assert parse_record("chat_upstream", "azure", newer, strict=False) == FULL
    with pytest.raises(InvalidRecord, match="colour"):
        parse_record("chat_upstream", "azure", newer)


async def test_a_chat_upstream_moves_with_its_history_from_one_registry_into_another(tmp_path: Path) -> None:
    store, file = MemoryStore(Clock()), tmp_path / "export.jsonl"
    for body in ({**encode_record(FULL), "enabled": True}, encode_record(FULL)):
        await store.write([RecordWrite(kind="chat_upstream", id="azure", body=body)], actor="ada")
    await store.export(file)
    import_store(file, tmp_path / "registry.db")
    async with open_sqlite_store(tmp_path / "registry.db", Clock()) as moved:
        state = parse_listing(await moved.list())
        history = await moved.history("chat_upstream", "azure", limit=5)

    assert state.chat_upstreams == {"azure": FULL}
    assert history == await store.history("chat_upstream", "azure", limit=5)
