"""What a command is doing, as it happens: a moving line on a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from toolgate.cli.escape import escape_line
from toolgate.cli.render.layout import BAD, DIM, OK


class Progress:
    """Steps with a beginning and an end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Something that takes a while. What it yields is told the detail that is being worked on."""
        started = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(Text(title)) as status:
                yield lambda detail: status.update(Text.assemble(title, (f"  {escape_line(detail)}", DIM)))
        else:
            self._console.print(f"{title} ...")
            yield lambda _: None
        self.done(f"{title} ({time.monotonic() - started:.1f} s)")

    def done(self, text: str) -> None:
        self._console.print(Text.assemble(("✓ ", OK), escape_line(text)))

    def failed(self, text: str) -> None:
        self._console.print(Text.assemble(("✗ ", BAD), escape_line(text)))
