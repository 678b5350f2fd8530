"""What every audit sink promises: all events, in order, each once, and nothing half written."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.memory_audit import MemorySink
from toolgate.audit.events import AdminRecorded, AuditEvent, CallRecorded
from toolgate.audit.log.files import encode_line, join_lines, last_sequence
from toolgate.audit.log.writer import AuditSink, JsonLinesSink

CALL = CallRecorded(
    at_ms=1, door="mcp", principal="local", tool="a\nb\x1b[31m", outcome="ok", server_id="git"
)
ADMIN = AdminRecorded(at_ms=2, principal="local", operation="put", kind="server", record_id="git", revision=3)


def read_memory(sink: AuditSink) -> list[dict[str, object]]:
    assert isinstance(sink, MemorySink)
    return [{"seq": number, **msgspec.to_builtins(event)} for number, event in sink.events]


def read_file(path: Path) -> list[dict[str, object]]:
    """Without the seals."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] != "seal"]


def write(sink: AuditSink, *events: tuple[int, AuditEvent]) -> None:
    sink.write(join_lines([encode_line(number, event) for number, event in events]))


@pytest.fixture(params=["memory", "json-lines"])
def sink_and_reader(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[AuditSink, Callable[[], list[dict[str, object]]]]:
    if request.param == "memory":
        memory = MemorySink()
        return memory, lambda: read_memory(memory)
    path = tmp_path / "audit.jsonl"
    return JsonLinesSink(path), lambda: read_file(path)


def test_events_come_out_as_they_went_in(
    sink_and_reader: tuple[AuditSink, Callable[[], list[dict[str, object]]]],
) -> None:
    sink, read = sink_and_reader

    write(sink, (1, CALL), (2, ADMIN))
    write(sink, (3, CALL))
    sink.close()
    sink.close()

    assert read() == [
        {"seq": 1, **msgspec.to_builtins(CALL)},
        {"seq": 2, **msgspec.to_builtins(ADMIN)},
        {"seq": 3, **msgspec.to_builtins(CALL)},
    ]


def test_sec_8_a_name_with_line_ends_is_one_record(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "audit.jsonl")

    write(sink, (1, CALL))
    sink.close()

    assert [line["tool"] for line in read_file(tmp_path / "audit.jsonl")] == ["a\nb\x1b[31m"]


def test_full_files_move_aside_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = JsonLinesSink(path, rotate_bytes=200, keep=2)

    for number in range(1, 6):
        write(sink, (number, CALL))
    sink.close()

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert [[line["seq"] for line in read_file(file)] for file in files] == [[5], [4], [3]]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_sink_that_is_to_keep_fewer_files_drops_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for keep, number in ((9, 1), (9, 2), (9, 3), (1, 4)):
        sink = JsonLinesSink(path, rotate_bytes=200, keep=keep)
        write(sink, (number, CALL))
        sink.close()

    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]


def test_fil_9_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "audit.jsonl")
    write(sink, (1, CALL))
    sink.close()

    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, 0, id="no file"),
        pytest.param(b"", 0, id="an empty file"),
        pytest.param(b'{"seq":1}\n{"seq":2}\n', 2, id="two lines"),
        pytest.param(b'{"seq":1}\n{"se', 1, id="a torn last line"),
    ],
)
def test_a_restarted_log_goes_on_where_the_file_ends(
    tmp_path: Path, text: bytes | None, expected: int
) -> None:
    path = tmp_path / "audit.jsonl"
    if text is not None:
        path.write_bytes(text)

    assert last_sequence(path) == expected
