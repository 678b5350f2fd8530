"""The node's child processes: their start through the warden, their pipes, their end, and their number.

The node never forks or executes a server, and never waits for or signals one: everything that the warden
starts is cleaned up even if the node is killed (see `warden`). Secrets reach a child only in its environment.
Arguments are visible to everyone in `ps`, so a record should name secrets in `env` or `env_from`.
"""

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.stdio import warden as warden_script
from toolgate.upstream.stdio.pipes import PipeReader, PipeWriter
from toolgate.upstream.stdio.warden import KILL, TERM

STOP_STEP_S: Final = 2.0
"""From closing a child's stdin to SIGTERM, and again to SIGKILL (MCP, stdio shutdown)."""
GONE_S: Final = 6.0
"""When the node stops waiting for a stopped child; the keeper keeps trying."""
DRAIN_S: Final = 0.5
"""How long after a child's death its last output may take."""
DEFAULT_MAX_CHILDREN: Final = 256  # a choice; `capacity` lowers it where few files may be open
FDS_PER_CHILD: Final = 4  # the fields of `PipeEnds`
RESERVED_FDS: Final = 96
"""Kept for callers, the store and other upstreams when the number of open files limits the children."""

_SIGNAL_NAMES: Final = {number.value: number.name for number in signal.Signals}
_COMMAND: Final = (sys.executable, "-I", "-S", "-E", "-X", "utf8", str(Path(warden_script.__file__)))
_EXIT_S: Final = 1.0  # a choice: a warden whose children are gone ends at EOF; otherwise it is killed
_TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, 0})
"""Errors that may be gone at the next attempt, without a change to the record."""


class ChildStartFailure(NamedTuple):
    """The step at which a start failed, and its errno; 0 if unknown."""

    step: Literal["supervisor", "fork", "cwd", "exec"]
    errno: int


class ChildOwner(Protocol):
    """Receives a child's output, on the event loop."""

    def on_stdout(self, data: bytes) -> None: ...

    def on_stderr(self, data: bytes) -> None: ...

    def on_ended(self, how: str) -> None:
        """The child takes no more input. Called once, after its last output; `how` is a predicate."""


class PipeEnds(NamedTuple):
    """One side's ends of a child's pipes and of its control socket: descriptors that must be closed."""

    stdin: int
    stdout: int
    stderr: int
    control: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


def open_pipes() -> tuple[PipeEnds, PipeEnds]:
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
        PipeEnds(stdin_w, stdout_r, stderr_r, near.detach()),
        PipeEnds(stdin_r, stdout_w, stderr_w, far.detach()),
    )


class Child:
    """A child and all its descendants, until none of them is left."""

    def __init__(self, ends: PipeEnds, owner: ChildOwner) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self.pid = 0
        self.started: asyncio.Future[ChildStartFailure | None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.stdin = PipeWriter(ends.stdin, self._on_part_ended)
        self._stdout = PipeReader(ends.stdout, owner.on_stdout, self._on_part_ended)
        self._stderr = PipeReader(ends.stderr, owner.on_stderr, self._on_part_ended)
        self._control = PipeReader(ends.control, self._on_control, self._on_gone)
        self._control_fd = ends.control
        self._received = b""
        self._exit: int | None = None
        self._has_ended = False
        self._draining: asyncio.TimerHandle | None = None
        self._stopping: tuple[asyncio.TimerHandle, ...] = ()

    def stop(self) -> None:
        """Close its stdin, then send TERM, then KILL. Returns at once; `gone` is done when it is over."""
        self.stdin.close()
        if not self._stopping and not self.gone.done():
            self._stopping = (
                self._loop.call_later(STOP_STEP_S, self._send_order, TERM),
                self._loop.call_later(2 * STOP_STEP_S, self._send_order, KILL),
            )

    def kill(self) -> None:
        """Kill it and all its descendants now, and close its pipes. Returns at once."""
        self._send_order(KILL)
        self.stdin.close()
        self._stdout.close()
        self._stderr.close()

    def abandon(self) -> None:
        self.kill()
        self._control.close()
        self._on_gone()

    async def wait_gone(self, timeout_s: float = GONE_S) -> None:
        await asyncio.wait({self.gone}, timeout=timeout_s)

    def _send_order(self, order: bytes) -> None:
        if self._control.is_open:
            # The keeper is gone, or has unread orders enough; the EOF of its socket follows.
            with contextlib.suppress(OSError):
                os.write(self._control_fd, order)

    def _on_control(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "pid" in message:
                self.pid = message["pid"]
                self._settle_start(None)
            elif "exit" in message:
                self._exit = message["exit"]
                self._on_part_ended()
            else:
                self._settle_start(ChildStartFailure(message["step"], message["errno"]))

    def _on_gone(self) -> None:
        for timer in self._stopping:
            timer.cancel()
        self._settle_start(ChildStartFailure("supervisor", 0))
        if not self.gone.done():
            self.gone.set_result(None)
        self._on_part_ended()

    def _settle_start(self, failure: ChildStartFailure | None) -> None:
        if not self.started.done():
            self.started.set_result(failure)

    def _on_part_ended(self) -> None:
        """Part of the child has ended. It ends as a whole once its output is read, or after DRAIN_S."""
        is_over = self._exit is not None or self.gone.done()
        is_cut_off = not self._stopping and not (self.stdin.is_open and self._stdout.is_open)
        if is_over and not self._stdout.is_open and not self._stderr.is_open:
            self._end()
        elif (is_over or is_cut_off) and self._draining is None:
            self._draining = self._loop.call_later(DRAIN_S, self._end)

    def _end(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        if not self._has_ended:
            self._has_ended = True
            how = self._describe_end()
            self.kill()
            self._owner.on_ended(how)

    def _describe_end(self) -> str:
        if self._exit is not None and self._exit < 0:
            return f"was killed by {_SIGNAL_NAMES.get(-self._exit, f'signal {-self._exit}')}"
        if self._exit is not None:
            return f"exited with status {self._exit}"
        if self.gone.done():
            return "was killed because its supervisor died"
        return "closed its standard output" if self.stdin.is_open else "closed its standard input"


class Warden:
    """Starts children, at most `max_children` at a time. The next spawn replaces a dead warden process."""

    def __init__(self, *, max_children: int = DEFAULT_MAX_CHILDREN, reserved_fds: int = RESERVED_FDS) -> None:
        self._max_children = max_children
        self._reserved_fds = reserved_fds
        self._children: set[Child] = set()
        self._process: _WardenProcess | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Start the process before the first spawn. Raises StartFailed."""
        with _explain_no_room():
            self._ready_process()

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, owner: ChildOwner
    ) -> Child:
        """Start `argv`, literally, with exactly `env`. Raises StartFailed, with nothing left behind."""
        self.admit()
        with _explain_no_room():
            child = self._hand_over(json.dumps([list(argv), dict(env), cwd]).encode(), owner)
        self._children.add(child)
        child.gone.add_done_callback(lambda _: self._children.discard(child))
        try:
            failure = await child.started
        except asyncio.CancelledError:
            child.kill()
            raise
        if failure is not None:
            child.kill()
            raise StartFailed(_explain(failure, argv[0], cwd), fatal=failure.errno not in _TRANSIENT)
        return child

    async def aclose(self) -> None:
        self._is_closed = True
        for child in self._children:
            child.stop()
        await asyncio.gather(*(child.wait_gone() for child in self._children))
        for child in tuple(self._children):
            child.abandon()
        if self._process is not None:
            await self._process.aclose()

    @property
    def capacity(self) -> int:
        """How many children there may be: `max_children`, or fewer if few files may be open."""
        most, open_files = self._max_children, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if open_files == resource.RLIM_INFINITY:
            return most
        return max(0, min(most, (open_files - self._reserved_fds) // FDS_PER_CHILD))

    def admit(self) -> None:
        """Reject a child over the limit before anything is opened for it. Raises StartFailed."""
        running, most = len(self._children), self.capacity
        if running >= most:
            why = f"may run {most} children"
            if most < self._max_children:
                open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                why = f"may open {open_files} files, which is enough for {most} children"
            raise StartFailed(f"this node {why}, and {running} are running")
        if self._is_closed:
            raise StartFailed("this node is stopping")

    def _hand_over(self, request: bytes, owner: ChildOwner) -> Child:
        """Give the far ends of new pipes to the warden. Raises OSError, with nothing left open."""
        near, far = open_pipes()
        try:
            with os.fdopen(os.memfd_create("toolgate-child"), "wb", buffering=0) as file:
                file.write(request)
                file.seek(0)
                fds = [*far, file.fileno()]
                try:
                    self._ready_process().send(fds)
                except (BrokenPipeError, ConnectionResetError):  # the warden has just died
                    self._ready_process().end()
                    self._ready_process().send(fds)
            return Child(near, owner)
        except OSError:
            near.close()
            raise
        finally:
            far.close()

    def _ready_process(self) -> "_WardenProcess":
        if self._process is None or self._process.ended.is_set():
            self._process = _WardenProcess()
        return self._process


class _WardenProcess:
    """The process that runs `warden.py`, from its start until the EOF of its socket."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        self._socket, far = socket.socketpair()
        try:
            self._popen = subprocess.Popen(  # noqa: S603  our own script, and nothing of a record
                _COMMAND,
                stdin=far.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            far.close()
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket, self.end)

    def send(self, fds: Sequence[int]) -> None:
        """Raises OSError if the process is dead, or has stopped reading and the socket is full."""
        socket.send_fds(self._socket, [b"+"], fds)

    async def aclose(self) -> None:
        """Close the socket; kill the process if it does not end by itself."""
        if not self.ended.is_set():
            self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await self.ended.wait()
        self.end()

    def end(self) -> None:
        """Reap the process: its socket is at EOF, so it has died or is about to."""
        if not self.ended.is_set():
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._popen.kill()
            self._popen.wait()
            self.ended.set()


@contextlib.contextmanager
def _explain_no_room() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StartFailed(f"no child can be started: {(exc.strerror or str(exc)).lower()}") from exc


def _explain(failure: ChildStartFailure, command: str, cwd: str | None) -> str:
    step, code = failure
    reason = os.strerror(code).lower()
    if step == "supervisor":
        return f"`{command}` could not be started: its supervisor died"
    if step == "cwd":
        return f"its working directory `{cwd}` cannot be entered: {reason}"
    if step == "exec" and code in (errno.ENOENT, errno.ENOTDIR):
        advice = "; arguments go into `args`" if " " in command else ""
        if "/" not in command:
            return f"there is no command `{command}` on its PATH{advice}"
        if Path(cwd or "", command).exists():
            return f"`{command}` names an interpreter that does not exist"
        return f"there is no file `{command}`{advice}"
    if step == "exec" and code == errno.EACCES:
        return f"`{command}` may not be executed: {reason}"
    return f"`{command}` could not be started: {reason}"
