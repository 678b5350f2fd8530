"""The demo's model: a child that serves, and that nothing can make outlive its parent."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.cli.conftest import Run
from tests.eventually import eventually
from tests.local_model import local_model
from toolgate.cli.command import CommandError
from toolgate.cli.demo.demo import MODEL_TASK, build_upstream
from toolgate.cli.demo.kit import DATA, MODEL_LOCK, load_tasks, write_mark
from toolgate.model.chat import ChatUpstream
from toolgate.model.tasks import Task
from toolgate.registry.records.codec import parse_record

ROOT = Path(__file__).parents[3]
KEEPER = """
import json, sys
from pathlib import Path
from toolgate.cli.demo.demo import DemoModel

with DemoModel(Path(sys.argv[1])).running() as announced:
    print(json.dumps(announced), flush=True)
    sys.stdin.read()
"""


def is_dead(process: psutil.Process) -> bool:
    """Reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_its_record_and_its_task_are_valid() -> None:
    record = build_upstream({"url": "http://127.0.0.1:9/v1", "model": "small"})
    task = load_tasks(MODEL_TASK)[-1]

    parsed = parse_record("chat_upstream", "local", record)

    assert isinstance(parsed, ChatUpstream)
    assert (parsed.base_url, parsed.models) == ("http://127.0.0.1:9/v1", ("small",))
    assert isinstance(parse_record(task.kind, task.id, task.body), Task)


def test_what_is_installed_is_what_the_example_is() -> None:
    for name, example in (
        ("model_server", "model_server.py"),
        ("chat_template.jinja", "chat_template.jinja"),
    ):
        assert (DATA / name).read_bytes() == (ROOT / "examples" / example).read_bytes()


def test_it_is_installed_once_for_its_lock(tmp_path: Path) -> None:
    model = local_model(tmp_path)
    assert not model.is_installed()

    write_mark(tmp_path / "model-venv", MODEL_LOCK)

    assert model.is_installed()


def test_a_model_that_does_not_start_says_where_to_look(tmp_path: Path) -> None:
    model = local_model(tmp_path, "/bin/false")

    with pytest.raises(CommandError, match="did not start") as failed, model.running():
        pytest.fail("it serves")

    assert str(tmp_path / "model.log") in failed.value.hint


def test_a_model_without_a_demo_is_refused(run: Run) -> None:
    ran = run("up", "--model")

    assert ran.code == 2
    assert "add --demo" in ran.err


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None], ids=["kill -9", "SIGTERM", "its end"])
def test_the_model_ends_with_the_process_that_started_it(tmp_path: Path, end: signal.Signals | None) -> None:
    local_model(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as keeper:
        assert keeper.stdout is not None
        announced = json.loads(keeper.stdout.readline())
        [child] = psutil.Process(keeper.pid).children()
        listed = httpx2.get(f"{announced['url']}/models", trust_env=False, timeout=60).json()
        if end is None:
            keeper.communicate()
        else:
            keeper.send_signal(end)

    assert [one["id"] for one in listed["data"]] == [announced["model"]]
    eventually(lambda: is_dead(child))
