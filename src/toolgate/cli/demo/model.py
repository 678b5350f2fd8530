"""`toolgate up --demo --model`: a small language model for the chat endpoint, next to the demo's servers.

The model is a child that ends when its standard input does. The other end of that pipe is in this process
and in no other, so the model goes with it, whatever ends it. It listens on loopback, on a port of its choice.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from toolgate.cli.demo.environment import install, is_installed
from toolgate.cli.demo.kit import DATA, MODEL_LOCK
from toolgate.cli.failure import CommandError

UPSTREAM: Final = "local"
UPSTREAM_NAME: Final = "SmolLM2, on this machine"
MODEL_TASK: Final = "chat"
STOP_WITHIN_S: Final = 5.0

ModelAnnouncement = Mapping[str, Any]
"""What the model's server says once it serves: `url` and `model`."""


class DemoModel:
    """The model of one demo, in the demo's directory."""

    def __init__(self, directory: Path) -> None:
        self._environment = directory / "model-venv"
        self._log = directory / "model.log"

    def is_installed(self) -> bool:
        return is_installed(self._environment, MODEL_LOCK)

    def install(self, report: Callable[[str], None]) -> None:
        install(self._environment, MODEL_LOCK, report, "--no-deps")

    @contextmanager
    def running(self) -> Iterator[ModelAnnouncement]:
        """The model while it serves. Raises CommandError where it does not."""
        command = [str(self._environment / "bin" / "python"), str(DATA / "model_server")]
        with (
            self._log.open("wb") as log,
            # A session of its own: Ctrl-C is meant for the gateway, which may still need it to drain.
            subprocess.Popen(  # noqa: S603 - our own program, no shell
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            ) as process,
        ):
            try:
                yield self._announced(process)
            finally:
                _stop(process)

    def _announced(self, process: "subprocess.Popen[bytes]") -> ModelAnnouncement:
        assert process.stdout is not None  # asked for with PIPE
        line = process.stdout.readline()
        if not line:
            raise CommandError(
                "the model did not start",
                hint=f"its output is in `{self._log}`; the demo runs without --model",
            )
        announced: ModelAnnouncement = json.loads(line)
        return announced


def build_upstream(announced: ModelAnnouncement) -> dict[str, Any]:
    """The model as a chat upstream."""
    return {
        "upstream_id": UPSTREAM,
        "display_name": UPSTREAM_NAME,
        "base_url": announced["url"],
        "models": [announced["model"]],
    }


def is_demo_upstream(record: Mapping[str, Any]) -> bool:
    """Whether a demo with a model left this record, and no user changed it since."""
    return (record["upstream_id"], record["display_name"]) == (UPSTREAM, UPSTREAM_NAME)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None  # asked for with PIPE
    process.stdin.close()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
