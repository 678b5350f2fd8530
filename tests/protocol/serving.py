"""The fixture servers as processes of their own; run as a program, without a gateway.

`python -m tests.protocol.serving` prints what the suite objects to in the fixtures alone: where they fail,
the gateway cannot do better.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.protocol.suite import HANDSHAKE, STATELESS, check_server
from tests.scenarios.gateway import ROOT

FIXTURES: Final = {
    "modern": (sys.executable, "modern"),
    "legacy": (str(ROOT / ".venv-legacy/bin/python"), "legacy"),
    "one-way": (sys.executable, "modern", "one-way"),
}
"""Which Python has the SDK of each, its module, and what it is told."""


@contextmanager
def serving(name: str, log_file: Path) -> Iterator[str]:
    """The URL of a fixture server while it runs."""
    python, module, *words = FIXTURES[name]
    command = [python, "-m", f"tests.protocol.fixtures.{module}", *words]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
    with process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.terminate()


def main() -> None:
    both = [(name, revision) for name in ("modern", "one-way") for revision in (HANDSHAKE, STATELESS)]
    for name, revision in (*both, ("legacy", HANDSHAKE)):
        with tempfile.TemporaryDirectory() as folder, serving(name, Path(folder, "log")) as url:
            findings = check_server(url, revision, Path(folder))
        objections = [f"  {scenario}: {words}" for scenario, found in findings.items() for words in found]
        sys.stdout.write("\n".join([f"{name} {revision}: {len(findings)} scenarios", *objections, ""]))


if __name__ == "__main__":
    main()
