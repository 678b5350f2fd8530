"""The program in a terminal of its own, for what it only does where a person types."""

import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.cli.processes import DEADLINE_S
from tests.eventually import eventually

# The terminal becomes the controlling one: a password is read from there, whatever standard input is.
_PROGRAM = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from toolgate.cli import main; sys.exit(main())"
)


class Reply(NamedTuple):
    """What is typed after a question. `is_hidden`: once the terminal no longer shows what is typed."""

    question: str
    text: str
    is_hidden: bool = False


class Conversation(NamedTuple):
    """What was on the screen, and how the program ended."""

    code: int
    screen: str


def converse(words: Iterable[str], replies: Iterable[Reply], environ: Mapping[str, str]) -> Conversation:
    """Run `toolgate words`; type each reply as soon as its question is on the screen."""
    return converse_with([sys.executable, "-c", _PROGRAM, *words], replies, environ)


def converse_with(
    command: Sequence[str], replies: Iterable[Reply], environ: Mapping[str, str]
) -> Conversation:
    """As `converse`, with another program."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, **environ},
    ) as process:
        os.close(slave)
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            screen = ""
            for reply in replies:
                seen = len(screen)
                while reply.question not in screen[seen:]:
                    if not (text := _read(master)):
                        raise AssertionError(screen)
                    screen += text
                if reply.is_hidden:
                    eventually(lambda: not termios.tcgetattr(master)[3] & termios.ECHO)
                os.write(master, f"{reply.text}\n".encode())
            while text := _read(master):
                screen += text
            return Conversation(process.wait(), screen.replace("\r\n", "\n"))
        finally:
            watchdog.cancel()
            os.close(master)


def _read(master: int) -> str:
    """What is on the screen next; nothing once the program has closed it."""
    try:
        return os.read(master, 65_536).decode(errors="replace")
    except OSError:  # EIO: no process has the terminal open
        return ""
