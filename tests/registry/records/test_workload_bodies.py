"""Workloads as parts of tasks: what may stand in one, and what is shown of it."""

from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.stores import Clock
from tests.registry.memory_store import MemoryStore
from toolgate.errors import InvalidRecord
from toolgate.model.revisions import RecordWrite
from toolgate.model.tasks import Task, Workload, WorkloadLimits
from toolgate.redaction.records import list_hidden_fields, redact_record
from toolgate.registry.records.codec import encode_record, parse_record
from toolgate.registry.replication.state import parse_listing
from toolgate.registry.store.engines import import_store, open_sqlite_store

MODULE: Final = "ab" * 32
FULL: Final = Workload(
    module=MODULE,
    args=("--depth", "2", "two\nlines"),
    env={"MODE": "fast", "GREETING": "grüß dich"},
    limits=WorkloadLimits(
        fuel=1_000_000,
        wall_clock_ms=3_600_000,
        memory_bytes=65_536,
        table_elements=0,
        max_output_bytes=0,
        max_fds=1,
        max_calls=0,
    ),
    retries=10,
)

workloads = st.builds(
    Workload,
    module=st.just(MODULE),
    args=st.lists(st.sampled_from(["a", "-v", ""]), max_size=3).map(tuple),
    env=st.dictionaries(st.sampled_from(["A", "B_2"]), st.sampled_from(["", "x"])),
    limits=st.builds(
        WorkloadLimits,
        fuel=st.integers(10**6, 10**13),
        wall_clock_ms=st.integers(100, 3_600_000),
        max_calls=st.integers(0, 100_000),
    ),
    retries=st.integers(0, 10),
)


def parse(**workload: Any) -> Workload | None:
    task = parse_record("task", "t", {"workload": {"module": MODULE, **workload}})
    assert isinstance(task, Task)
    return task.workload


@given(workloads | st.just(FULL))
def test_what_is_encoded_parses_to_the_same(workload: Workload) -> None:
    task = Task(task_id="t", workload=workload)

    assert parse_record("task", "t", encode_record(task)) == task


def test_only_what_is_not_the_default_is_stored() -> None:
    task = parse_record("task", "t", {"workload": {"module": MODULE, "limits": {"max_fds": 8}, "retries": 0}})

    assert encode_record(task) == {
        "task_id": "t",
        "workload": {"module": MODULE, "limits": {"max_fds": 8}},
    }


def test_a_limit_that_is_left_out_has_its_own_default() -> None:
    assert parse() == Workload(module=MODULE)
    assert parse(limits={"fuel": 2_000_000}) == Workload(module=MODULE, limits=WorkloadLimits(fuel=2_000_000))


@pytest.mark.parametrize(
    ("workload", "reply"),
    [
        pytest.param({"module": None}, "workload.module", id="no module"),
        pytest.param({"module": "AB" * 32}, "64 lower-case hexadecimal", id="a hash in capitals"),
        pytest.param({"module": "guest.wasm"}, "invalid SHA-256", id="a file"),
        pytest.param({"args": ["x"] * 65}, "workload.args", id="65 arguments"),
        pytest.param({"args": ["x" * 4_097]}, "workload.args[0]", id="an argument that is too long"),
        pytest.param({"args": ["a\0b"]}, "control characters", id="a zero byte in an argument"),
        pytest.param({"args": [7]}, "workload.args[0]", id="an argument that is no text"),
        pytest.param({"args": ["${ENV:TOKEN}"]}, "no secrets of the node", id="a reference in an argument"),
        pytest.param({"env": {"A": "x${ENV:TOKEN:-y}"}}, "no secrets of the node", id="a reference"),
        pytest.param({"env": {"A": "${ENV:"}}, "no secrets of the node", id="half a reference"),
        pytest.param({"env": {"A": "***"}}, "is the mask of a secret", id="a mask"),
        pytest.param({"env": {"A-B": "x"}}, "invalid environment variable name", id="a bad name"),
        pytest.param({"env": {"A": "x" * 32_769}}, "workload.env.A", id="a value that is too long"),
        pytest.param({"env": {f"A{n}": "" for n in range(65)}}, "workload.env", id="65 variables"),
        pytest.param({"limits": {"fuel": 999_999}}, "workload.limits.fuel", id="too little fuel"),
        pytest.param({"limits": {"fuel": 10**13 + 1}}, "workload.limits.fuel", id="too much fuel"),
        pytest.param({"limits": {"wall_clock_ms": 99}}, "wall_clock_ms", id="too short"),
        pytest.param({"limits": {"wall_clock_ms": 3_600_001}}, "wall_clock_ms", id="too long"),
        pytest.param({"limits": {"memory_bytes": 65_535}}, "memory_bytes", id="less than a page"),
        pytest.param({"limits": {"memory_bytes": 2**30 + 1}}, "memory_bytes", id="too much memory"),
        pytest.param({"limits": {"table_elements": -1}}, "table_elements", id="a negative table"),
        pytest.param({"limits": {"table_elements": 1_000_001}}, "table_elements", id="too large a table"),
        pytest.param({"limits": {"max_output_bytes": 4_194_305}}, "max_output_bytes", id="too much output"),
        pytest.param({"limits": {"max_fds": 0}}, "max_fds", id="nothing open"),
        pytest.param({"limits": {"max_fds": 1_025}}, "max_fds", id="too many open"),
        pytest.param({"limits": {"max_calls": 100_001}}, "max_calls", id="too many calls"),
        pytest.param({"limits": {"max_calls": True}}, "max_calls", id="a boolean is no number"),
        pytest.param({"limits": {"fule": 7}}, "workload.limits.fule", id="an unknown limit"),
        pytest.param({"retries": 11}, "workload.retries", id="too many retries"),
        pytest.param({"retries": -1}, "workload.retries", id="negative retries"),
        pytest.param({"command": "sh"}, "workload.command", id="an unknown member"),
    ],
)
def test_what_may_not_stand_in_a_workload(workload: dict[str, Any], reply: str) -> None:
    with pytest.raises(InvalidRecord) as raised:
        parse(**workload)

    assert reply in f"{raised.value} {raised.value.data}"


def test_secrets_in_variables_and_arguments_are_masked_as_those_of_servers_are() -> None:
    body = {
        "task_id": "t",
        "workload": {
            "module": MODULE,
            "args": ["--api-key", "hunter2", "plain"],
            "env": {"API_TOKEN": "hunter2", "MODE": "fast", "URL": "https://u:hunter2@h/"},
        },
    }
    shown = redact_record("task", body)

    assert shown["workload"] == {
        "module": MODULE,
        "args": ["--api-key", "***", "plain"],
        "env": {"API_TOKEN": "***", "MODE": "fast", "URL": "https://***@h/"},
    }
    assert list_hidden_fields("task", body) == [
        "workload.args[1]",
        "workload.env.API_TOKEN",
        "workload.env.URL",
    ]
    assert redact_record("task", {"task_id": "t", "workload": 7}) == {"task_id": "t", "workload": 7}


@pytest.mark.anyio
async def test_a_workload_goes_from_one_registry_into_another(tmp_path: Path) -> None:
    task = Task(task_id="t", workload=FULL)
    store, file = MemoryStore(Clock()), tmp_path / "export.jsonl"
    await store.write([RecordWrite(kind="task", id="t", body=encode_record(task))], actor="ada")
    await store.export(file)
    import_store(file, tmp_path / "registry.db")
    async with open_sqlite_store(tmp_path / "registry.db", Clock()) as moved:
        state = parse_listing(await moved.list())

    assert state.tasks == {"t": task}
