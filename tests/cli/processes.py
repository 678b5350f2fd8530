"""The program as a process of its own, for what only a process can show."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests import patient

DEADLINE_S: Final = 300.0

PROGRAM = "import sys; from toolgate.cli import main; sys.exit(main())"


@contextmanager
def running(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`toolgate words --json`, and the first object it printed. Whatever hangs is ended at the deadline."""
    command = [sys.executable, patient.__file__, *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            watchdog.cancel()
            process.kill()
