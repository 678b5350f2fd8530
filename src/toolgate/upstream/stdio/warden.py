"""The warden, a process supervisor: starts child processes for a node and cleans up all their descendants.

Runs as a script by its path, with the standard library only, so that it is up in about 20 ms and stays small.
It must never import toolgate, start a thread, or touch the pipes between node and child.

    node ──socket (fd 0)──▶ warden ──fork──▶ keeper, one for each child ──fork, exec──▶ child ──▶ …
      └───────────────────control socket────────┘

Whichever process dies, the others clean up:
- the node (even by kill -9): every control socket reads EOF, and each keeper kills its child's whole tree;
- a keeper: the kernel kills its child (PDEATHSIG), and the warden inherits the child's descendants;
- the warden: the kernel signals every keeper (PDEATHSIG), which acts as if the node had closed its socket.

Warden and keepers are subreapers: a descendant that left its group and session becomes their child once its
parents are gone. So they kill a tree from the root, generation by generation. Invariant: they signal only
their own children, before they reap them: until then, the kernel does not reuse the pids.

The node sends the warden one byte with five descriptors: the child's stdin, stdout and stderr, the keeper's
end of a control socket, and a file that holds `[argv, env, cwd]`. On the control socket the keeper sends
`{"pid"}` or `{"step", "errno"}`, later `{"exit": code}`, negative for a signal, each on a line; the node may
send TERM and KILL. The keeper's EOF means that no process of the tree is left.
"""

import ctypes
import errno
import json
import math
import os
import select
import signal
import socket
import time

# No `typing` here: its import costs a sixth of the start.
Fds = list[int]
Message = dict[str, int | str | None]

FDS = 5  # a request's descriptors, see above
TERM = b"t"
KILL = b"k"
ORPHAN_GRACE_S = 1.0
"""How long a tree may take to end after SIGTERM once the node is gone."""

_NODE_GONE = b""
_NO_ORDER = b"-"
_ORPHANED = signal.SIGUSR1
# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class SignalPipe:
    """A descriptor that becomes readable on signals. Each process needs its own: forks share one."""

    def __init__(self) -> None:
        self.fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, _ORPHANED):
            signal.signal(number, lambda *_: None)

    def read(self) -> bytes:
        """The numbers of signals since the last read. Read before reaping: a later death signals again."""
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""


class Keeper:
    """Keeps one child: passes on the node's orders, reports its exit, and kills its tree in the end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._signals = SignalPipe()
        self._child = 0
        self._ends_at = math.inf

    def keep(self, request: str, stdio: Fds) -> None:
        argv, env, cwd = json.loads(request)
        self._child, problem = launch(argv, env, cwd, stdio)
        send_message(self._control.fileno(), problem or {"pid": self._child})
        while self._should_continue():
            self._wait()
        self._kill_tree()

    def _should_continue(self) -> bool:
        """Whether the child lives and the node has not ordered its end."""
        received = self._signals.read()
        self._reap()
        if not self._child:
            return False
        orders = self._read_orders()
        if orders == _NODE_GONE or _ORPHANED in received:
            if self._ends_at == math.inf:
                self._ends_at = time.monotonic() + ORPHAN_GRACE_S
                self._terminate()
        elif TERM in orders:
            self._terminate()
        return KILL not in orders and time.monotonic() < self._ends_at

    def _read_orders(self) -> bytes:
        try:
            return self._control.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return _NO_ORDER
        except OSError:
            return _NODE_GONE

    def _terminate(self) -> None:
        try:
            os.killpg(self._child, signal.SIGTERM)
        except PermissionError:
            return  # it runs as another user; the closed stdin has to do

    def _wait(self) -> None:
        if self._ends_at == math.inf:
            select.select([self._signals.fd, self._control.fileno()], [], [])
        else:
            # The socket would read as EOF at once, again and again.
            select.select([self._signals.fd], [], [], max(0.0, self._ends_at - time.monotonic()))

    def _kill_tree(self) -> None:
        """Kill all descendants, until the kernel reports that none is left."""
        pause_s = 0.002
        while self._reap():
            kill_all(find_children())
            select.select([self._signals.fd], [], [], pause_s)
            self._signals.read()
            # Signal processes that cannot die now (in a kernel sleep, of another user) less and less often.
            pause_s = min(2 * pause_s, 1.0)

    def _reap(self) -> bool:
        """Reap dead children; returns whether any is left: for a subreaper, any descendant."""
        dead, has_more = reap()
        if self._child in dead:
            send_message(self._control.fileno(), {"exit": dead[self._child]})
            self._child = 0
        return has_more


def send_message(control: int, message: Message) -> None:
    try:
        os.write(control, json.dumps(message).encode() + b"\n")
    except OSError:
        return  # the node is gone, and the next read of the socket shows it


def reap() -> tuple[dict[int, int], bool]:
    """Exit codes of the children that have died, and whether any are left."""
    dead: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead[pid] = os.waitstatus_to_exitcode(status)


def find_children() -> set[int]:
    own = b"%d" % os.getpid()
    with os.scandir("/proc") as entries:
        return {
            int(entry.name) for entry in entries if entry.name.isdigit() and _read_parent(entry.path) == own
        }


def _read_parent(process: str) -> bytes:
    try:
        stat = os.open(process + "/stat", os.O_RDONLY)
    except OSError:
        return b""
    try:
        # The name before the last `)` may hold anything, spaces and brackets included.
        return os.read(stat, 4096).rpartition(b")")[2].split(None, 2)[1]
    except OSError:
        return b""
    finally:
        os.close(stat)


def kill_all(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            continue


def launch(argv: list[str], env: dict[str, str], cwd: str | None, stdio: Fds) -> tuple[int, Message | None]:
    """Fork and execute the child: its pid (0 on failure), and the error if any. Closes `stdio` here."""
    failure_fd, report_fd = os.pipe()
    keeper = os.getpid()
    try:
        pid = os.fork()
    except OSError as exc:
        return 0, {"step": "fork", "errno": exc.errno}
    if pid == 0:
        try:
            _detach(keeper, [*stdio, report_fd])
            _execute(argv, env, cwd)
        finally:
            os._exit(127)
    for fd in (*stdio, report_fd):
        os.close(fd)
    report = os.read(failure_fd, 4096)
    os.close(failure_fd)
    # An empty report is success: the exec itself closed the other end.
    return pid, json.loads(report) if report else None


def _detach(keeper: int, fds: Fds) -> None:
    """Give the new fork its own session, default signals, and only these descriptors, from 0 up."""
    os.setsid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it died before it was watched
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for place, fd in enumerate(fds):
        os.dup2(fd, place, inheritable=place < 3)
    os.closerange(len(fds), os.sysconf("SC_OPEN_MAX"))


def _execute(argv: list[str], env: dict[str, str], cwd: str | None) -> None:
    """Become the command, or report the error on descriptor 3."""
    step = "cwd"
    try:
        if cwd is not None:
            os.chdir(cwd)
        step = "exec"
        os.execvpe(argv[0], argv, env)  # noqa: S606  the arguments reach it literally; no shell is the point
    except OSError as exc:
        send_message(3, {"step": step, "errno": exc.errno})
    except ValueError:  # a NUL in an argument or variable
        send_message(3, {"step": step, "errno": errno.EINVAL})


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def start_keeper(fds: Fds) -> int:
    """Fork a keeper for one child; 0 if that fails, which it reports to the node. Closes `fds`."""
    warden = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            _become_keeper(fds, warden)
    except OSError as exc:
        send_message(fds[3], {"step": "fork", "errno": exc.errno})
        pid = 0
    for fd in fds:
        os.close(fd)
    return pid


def _become_keeper(fds: Fds, warden: int) -> None:
    status = 1  # makes the warden clean up after this keeper
    try:
        os.dup2(1, 0)  # closes the node's socket, and keeps descriptor 0 in use
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        prctl(_PR_SET_PDEATHSIG, _ORPHANED)
        if os.getppid() == warden:
            with os.fdopen(fds[4], encoding="utf-8") as file:
                request = file.read()
            Keeper(socket.socket(fileno=fds[3])).keep(request, fds[:3])
        status = 0
    finally:
        os._exit(status)


def clean_up(keepers: set[int]) -> bool:
    """Reap dead keepers and kill what a crashed one has left behind; returns whether any child is left."""
    dead, has_more = reap()
    has_strays = any(code != 0 or pid not in keepers for pid, code in dead.items())
    keepers -= dead.keys()
    if has_strays:
        kill_all(find_children() - keepers)
    return has_more


def main() -> None:
    """Fork a keeper for every request until the node closes the socket, then wait for the last of them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the socket decides when it is over
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    node = socket.socket(fileno=0)
    signals = SignalPipe()
    keepers: set[int] = set()
    watched = [signals.fd, node.fileno()]
    has_children = False
    while has_children or node.fileno() in watched:
        ready, _, _ = select.select(watched, [], [])
        if signals.read():
            has_children = clean_up(keepers)
        if node.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(node, 1, FDS)
            if data:
                keepers.add(start_keeper(fds))
            else:
                watched.remove(node.fileno())
                has_children = clean_up(keepers)


if __name__ == "__main__":
    main()
