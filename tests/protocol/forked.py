"""Clients that the conformance suite starts again and again, whose modules are imported once.

`python -m tests.protocol.forked MODULE SOCKET` forks for each client of it. The fork gets the client's
arguments and environment, runs `main` of the module, and reports its errors.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from socketserver import ForkingMixIn, StreamRequestHandler, UnixStreamServer
from subprocess import PIPE, Popen

ROOT = Path(__file__).parents[2]
ASKING = Path(__file__).with_name("asking.py")


class Forking(ForkingMixIn, UnixStreamServer):
    """Serves each request in a process of its own, as many at once as there are."""

    request_queue_size = 128
    max_children = 128


def serve(module: str, path: str) -> None:
    """Until someone ends this process."""
    main = import_module(module).main

    class Run(StreamRequestHandler):
        def handle(self) -> None:
            asked = json.loads(self.rfile.readline())
            os.environ.clear()
            os.environ.update(asked["environ"])
            try:
                main(*asked["words"])
            except BaseException:
                self.wfile.write(traceback.format_exc().encode())

    with Forking(path, Run) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()


@contextmanager
def forking(module: str, directory: Path) -> Iterator[str]:
    """The command that runs `main` of a module, for as long as the block lasts."""
    path = directory / "forked"
    command = [sys.executable, "-m", "tests.protocol.forked", module, str(path)]
    with Popen(command, cwd=ROOT, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield f"{sys.executable} -I -S {ASKING} {path}"
        finally:
            process.terminate()


if __name__ == "__main__":
    serve(*sys.argv[1:])
