"""Modules from files to tasks: `toolgate modules`, and the files that records name."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.docs.documents import EXAMPLES
from toolgate.cli.command import ExitCode
from toolgate.model.tasks import MAX_MODULE_BYTES

GUEST = bytes(
    wat2wasm(
        '(module (import "spear" "time_now_ms" (func (result i64))) (memory (export "memory") 1)'
        ' (func (export "_start")))'
    )
)
STRANGER = bytes(
    wat2wasm('(module (import "env" "system" (func)) (memory (export "memory") 1) (func (export "_start")))')
)
HASH = hashlib.sha256(GUEST).hexdigest()
TASK = """
task_id = "job"

[workload]
module = "build/guest.wasm"
args = ["--depth", "2"]
env = { API_TOKEN = "hunter2", MODE = "fast" }
limits = { fuel = 5_000_000 }
"""


@pytest.fixture
def at_gateway(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TOOLGATE_URL", url)
    return run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A task, and its module next to it."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "guest.wasm").write_bytes(GUEST)
    (tmp_path / "job.toml").write_text(TASK, "utf-8")
    return tmp_path


def test_a_task_with_a_module_goes_from_files_into_the_gateway_and_out_again(
    at_gateway: Run, directory: Path
) -> None:
    where = ("-f", str(directory))
    plan = at_gateway("plan", *where, "--json").json
    before = at_gateway("modules", "list")
    applied = at_gateway("tasks", "apply", "-f", str(directory / "job.toml"))
    task = at_gateway("tasks", "get", "job", "--json").json
    same = at_gateway("diff", *where)
    shown = at_gateway("modules", "get", HASH)
    used = at_gateway("modules", "delete", HASH[:16])
    at_gateway("tasks", "delete", "job")
    deleted = at_gateway("modules", "delete", HASH)

    assert plan["warnings"][0].endswith("is not uploaded")
    assert before.lines == ["no modules: upload one with `toolgate modules upload FILE`"]
    assert applied.code == 0, applied.err
    assert task["workload"]["module"] == HASH
    assert task["workload"]["env"] == {"API_TOKEN": "***", "MODE": "fast"}
    assert same.lines == ["no difference"]
    assert shown.lines[0] == HASH
    assert "job" in shown.out
    assert (used.code, "task `job` runs module" in used.err) == (1, True)
    assert deleted.lines == ["✓ deleted module", HASH]


def test_a_directory_is_applied_with_its_modules_and_then_there_is_no_difference(
    at_gateway: Run, directory: Path
) -> None:
    where = ("-f", str(directory))
    plan = at_gateway("plan", *where, "--json").json
    applied = at_gateway("apply", *where, "--require-plan", plan["id"], "--json").json
    again = at_gateway("diff", *where)
    listed = at_gateway("modules", "list")
    at_gateway("tasks", "delete", "job")
    at_gateway("modules", "delete", HASH)

    assert [(one["operation"], one["id"]) for one in applied["changes"]] == [("added", "job")]
    assert again.lines == ["no difference"]
    assert listed.lines[1].split()[0] == HASH[:16]
    assert listed.lines[1].split()[-1] == "job"


def test_a_workload_is_shown_within_80_columns(at_gateway: Run, directory: Path) -> None:
    at_gateway("apply", "-f", str(directory))
    shown = at_gateway("tasks", "get", "job")

    assert max(map(len, shown.lines)) <= 80
    for words in (f"RUNS {HASH}", "argument --depth", "variable API_TOKEN=***", "fuel 5,000,000"):
        assert words in [" ".join(line.split()) for line in shown.lines]


def test_an_upload_says_what_the_module_calls_and_whether_it_is_new(at_gateway: Run, tmp_path: Path) -> None:
    file = tmp_path / "other.wasm"
    file.write_bytes(bytes(wat2wasm('(module (memory (export "memory") 1) (func (export "_start")))')))
    first, again = at_gateway("modules", "upload", str(file)), at_gateway("modules", "upload", str(file))

    assert first.lines[0] == f"✓ module of {file.stat().st_size} bytes"
    assert first.lines[1].strip() == hashlib.sha256(file.read_bytes()).hexdigest()
    assert again.lines[0].endswith("already uploaded")


def test_the_task_of_the_guide_is_applied_unchanged(at_gateway: Run, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "nightly.wasm").write_bytes(GUEST)
    file = tmp_path / "nightly.toml"
    file.write_bytes((EXAMPLES / "workloads" / "nightly.toml").read_bytes())
    applied = at_gateway("tasks", "apply", "-f", str(file))

    assert applied.code == 0, applied.err
    assert at_gateway("tasks", "get", "nightly", "--json").json["workload"]["limits"]["max_calls"] == 50


def test_a_module_that_is_refused_is_named_with_what_it_calls(at_gateway: Run, directory: Path) -> None:
    file = directory / "build" / "guest.wasm"
    file.write_bytes(STRANGER)
    ran = at_gateway("tasks", "apply", "-f", str(directory / "job.toml"))

    assert ran.code == 1
    assert f"{file}: " in ran.err
    assert "env.system" in ran.err


def test_a_module_larger_than_a_request_goes_in_parts(at_gateway: Run, tmp_path: Path) -> None:
    data = "".join(f"\\{byte:02x}" for byte in os.urandom(1024)) * (4 * 1024 + 100)
    guest = f'(module (memory (export "memory") 80) (data (i32.const 0) "{data}") (func (export "_start")))'
    file = tmp_path / "large.wasm"
    file.write_bytes(bytes(wat2wasm(guest)))

    assert at_gateway("modules", "upload", str(file), "--json").json["size"] == file.stat().st_size > 2**22


@pytest.mark.parametrize(
    ("content", "output"),
    [
        pytest.param(None, "cannot read the module", id="no file"),
        pytest.param(b"int main() {}", "is not a WebAssembly module", id="not compiled"),
        pytest.param(b"\0asm\x0d\0\1\0", "is a component, not a module", id="a component"),
        pytest.param(b"", "is not a WebAssembly module", id="empty"),
        pytest.param(GUEST, f"the limit is {MAX_MODULE_BYTES:,}", id="too large"),
    ],
)
def test_what_is_no_module_is_not_sent(
    gateway: FakeGateway,
    run: Run,
    directory: Path,
    *,
    content: bytes | None,
    output: str,
) -> None:
    file = directory / "build" / "guest.wasm"
    file.unlink() if content is None else file.write_bytes(content)
    if content == GUEST:
        os.truncate(file, MAX_MODULE_BYTES + 1)
    words = [("apply", "-f", str(directory)), ("tasks", "apply", "-f", str(directory / "job.toml"))]
    words += [
        ("plan", "-f", str(directory)),
        ("diff", "-f", str(directory)),
        ("modules", "upload", str(file)),
    ]
    for command in words:
        ran = run(*command)

        assert ran.code == ExitCode.USAGE
        assert output in ran.err
        assert "try:" in ran.err
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("prefix", "output"),
    [("abcdef01", "more than one"), ("abcdef02", "no module"), ("abcdef0", "8 or more"), ("", "8 or more")],
)
def test_the_beginning_of_a_hash_must_mean_one_module(
    gateway: FakeGateway, run: Run, prefix: str, output: str
) -> None:
    module = {"size": 1, "at_ms": 0, "tasks": []}
    gateway.respond(
        "GET /admin/api/modules",
        {"modules": [{"sha256": f"abcdef01{end * 56}", **module} for end in "01"]},
    )
    ran = run("modules", "delete", prefix)

    assert ran.code == ExitCode.USAGE
    assert output in ran.err
    assert {asked.method for asked in gateway.asked} <= {"GET"}


def test_a_hash_in_a_file_stays_and_what_is_no_text_is_for_the_gateway_to_refuse(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    sent = []
    for module in (HASH, 7, None):
        file = tmp_path / "job.json"
        file.write_text(json.dumps({"task_id": "job", "workload": {"module": module}}), "utf-8")
        run("tasks", "apply", "-f", str(file))
        sent.append(gateway.last.body["workload"]["module"])

    assert sent == [HASH, 7, None]
    assert {asked.method for asked in gateway.asked} == {"PUT"}
