"""One child process as the node sees it: its three pipes, its end, and how it is stopped.

The process itself is kept by a keeper (see `warden`), to which the control socket leads. A child must
never be waited for or signalled from here: its pid is the keeper's to use.
"""

import asyncio
import json
import os
import signal
import socket
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

from toolgate.upstream.stdio.pipes import Inlet, Outlet
from toolgate.upstream.stdio.warden import KILL, TERM

STOP_STEP_S: Final = 2.0
"""After its stdin is closed a child has this long until SIGTERM, and again as long until SIGKILL."""
GONE_S: Final = 6.0
"""When waiting for a stopped child is given up; the keeper goes on trying."""
DRAIN_S: Final = 0.5
"""How long after a child's death its last output is waited for."""

_SIGNAL_NAMES: Final = {number.value: number.name for number in signal.Signals}


class NotStarted(NamedTuple):
    """Where a start went wrong, and the error there; 0 where there is none to tell."""

    step: Literal["supervisor", "fork", "cwd", "exec"]
    errno: int


class ChildOwner(Protocol):
    """What a child tells whoever started it, from the event loop."""

    def on_stdout(self, data: bytes) -> None: ...

    def on_stderr(self, data: bytes) -> None: ...

    def on_ended(self, how: str) -> None:
        """It can no longer be talked to. Called once, after its last output; `how` reads on from its name."""


@dataclass(frozen=True, slots=True)
class Ends:
    """One side's ends of a child's pipes and of its control socket: descriptors to be closed."""

    stdin: int
    stdout: int
    stderr: int
    control: int

    def close(self) -> None:
        for fd in (self.stdin, self.stdout, self.stderr, self.control):
            os.close(fd)


def open_ends() -> tuple[Ends, Ends]:
    """The node's ends and the child's. Raises OSError, with nothing left open."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe2(os.O_CLOEXEC)
        near, far = socket.socketpair()
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w = opened
    return (
        Ends(stdin_w, stdout_r, stderr_r, near.detach()),
        Ends(stdin_r, stdout_w, stderr_w, far.detach()),
    )


class Child:
    """A child and all it starts, until nothing of that is left."""

    def __init__(self, ends: Ends, owner: ChildOwner) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self.pid = 0
        self.started: asyncio.Future[NotStarted | None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.stdin = Outlet(ends.stdin, self._on_part_ended)
        self._stdout = Inlet(ends.stdout, owner.on_stdout, self._on_part_ended)
        self._stderr = Inlet(ends.stderr, owner.on_stderr, self._on_part_ended)
        self._control = Inlet(ends.control, self._on_control, self._on_gone)
        self._orders_fd = ends.control
        self._heard = b""
        self._exit: int | None = None
        self._has_ended = False
        self._draining: asyncio.TimerHandle | None = None
        self._stopping: tuple[asyncio.TimerHandle, ...] = ()

    def stop(self) -> None:
        """Ask it to end, ever more firmly. Returns at once; `gone` tells when it is over."""
        self.stdin.close()
        if not self._stopping and not self.gone.done():
            self._stopping = (
                self._loop.call_later(STOP_STEP_S, self._order, TERM),
                self._loop.call_later(2 * STOP_STEP_S, self._order, KILL),
            )

    def kill(self) -> None:
        """End it and all it has started, now, and close its pipes. Returns at once."""
        self._order(KILL)
        self.stdin.close()
        self._stdout.close()
        self._stderr.close()

    def abandon(self) -> None:
        """Let go of it: its keeper sees to the rest alone."""
        self.kill()
        self._control.close()
        self._on_gone()

    async def wait_gone(self, timeout_s: float = GONE_S) -> None:
        await asyncio.wait({self.gone}, timeout=timeout_s)

    def _order(self, order: bytes) -> None:
        if self._control.is_open:
            try:
                os.write(self._orders_fd, order)
            except OSError:
                return  # the keeper is gone or has unread orders enough; its EOF will tell

    def _on_control(self, data: bytes) -> None:
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "pid" in message:
                self.pid = message["pid"]
                self._settle_start(None)
            elif "exit" in message:
                self._exit = message["exit"]
                self._on_part_ended()
            else:
                self._settle_start(NotStarted(message["step"], message["errno"]))

    def _on_gone(self) -> None:
        for timer in self._stopping:
            timer.cancel()
        self._settle_start(NotStarted("supervisor", 0))
        if not self.gone.done():
            self.gone.set_result(None)
        self._on_part_ended()

    def _settle_start(self, failure: NotStarted | None) -> None:
        if not self.started.done():
            self.started.set_result(failure)

    def _on_part_ended(self) -> None:
        """Something of it is over. So is all of it once its last output is read, or after DRAIN_S."""
        is_over = self._exit is not None or self.gone.done()
        is_deaf_or_dumb = not self._stopping and not (self.stdin.is_open and self._stdout.is_open)
        if is_over and not self._stdout.is_open and not self._stderr.is_open:
            self._end()
        elif (is_over or is_deaf_or_dumb) and self._draining is None:
            self._draining = self._loop.call_later(DRAIN_S, self._end)

    def _end(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        if not self._has_ended:
            self._has_ended = True
            how = self._how()
            self.kill()
            self._owner.on_ended(how)

    def _how(self) -> str:
        if self._exit is not None and self._exit < 0:
            return f"was killed by {_SIGNAL_NAMES.get(-self._exit, f'signal {-self._exit}')}"
        if self._exit is not None:
            return f"exited with status {self._exit}"
        if self.gone.done():
            return "was killed, for its supervisor died"
        return "closed its standard output" if self.stdin.is_open else "closed its standard input"
