"""MCP over a child's standard input and output: one JSON-RPC message a line.

`StdioConnector` starts the child of a record and negotiates; `StdioConnection` is the live result. Everything
that a child writes is bounded, and its own credentials never get into an error or the log.
"""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import ServerRecord, choose_start_timeout
from toolgate.model.tools import Revision
from toolgate.redaction.credentials import collect_child_credentials
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    MAX_MESSAGE_BYTES,
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    ConnectionListener,
    Params,
    Purpose,
    RpcResponse,
    StartFailed,
)
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.secrets import NETWORK_ENVIRONMENT, Secrets
from toolgate.upstream.connection.stream import StreamConnection
from toolgate.upstream.stdio.children import Child, Warden
from toolgate.upstream.stdio.pipes import LineSplitter, LineTooLong
from toolgate.upstream.stdio.start_failures import find_cause, suggest_fix

MAX_NOISE_LINES: Final = 10_000
"""A child that writes more between two messages is not an MCP server, and costs our time."""

_STDERR_LINE_BYTES: Final = 1024
"""A longer line is passed on in parts."""
_STDERR_TAIL_BYTES: Final = 16 * 1024
"""Where the cause of an end is looked for: a stack trace, or the end of npm's messages."""
_KILLED_S: Final = 1.0
_CHECK_READ_S: Final = 0.05
"""How often a pipe is checked: no event says that the child has read it."""
_DELIVER_TIMEOUT_S: Final = 10.0
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


class StdioConnection(StreamConnection):
    """A connection to one child."""

    def __init__(self, server_id: str, listener: ConnectionListener, redactor: Redactor) -> None:
        numbers = itertools.count(1)
        super().__init__(f"server `{server_id}`", numbers, listener, redactor, max_noise=MAX_NOISE_LINES)
        self._child: Child | None = None
        self._lines = LineSplitter(MAX_MESSAGE_BYTES)
        self._stderr_tail = b""
        self._stderr_line = b""
        """The beginning of a line: a credential may arrive in two parts."""

    def attach(self, child: Child) -> None:
        self._child = child
        self._has_room = child.stdin.has_room
        self.pid = child.pid

    async def discard(self) -> None:
        """End a connection that never opened, at once."""
        self._finish("was given up")
        if self._child is not None:
            self._child.kill()
            await self._child.wait_gone(_KILLED_S)

    async def wait_until_read(self) -> None:
        """Return once the child has read everything that was sent. A runner that downloads reads nothing."""
        while not self.has_read and not self._end:  # noqa: ASYNC110  the kernel has no event for it
            await asyncio.sleep(_CHECK_READ_S)
        if not self._end:
            self._listener.on_reading()

    @property
    def has_read(self) -> bool:
        return self._child is not None and self._child.stdin.was_read

    async def notify(self, method: str, params: Params) -> None:
        self._send_now(messages.encode_notification(method, params))

    async def aclose(self) -> None:
        self.is_open = False
        self._finish("was stopped")
        await self._background.aclose()
        if self._child is not None:
            self._child.stop()
            await self._child.wait_gone()
            self._child.kill()

    def on_stdout(self, data: bytes) -> None:
        try:
            lines = self._lines.feed(data)
        except LineTooLong:
            self._kill(f"sent a line of more than {MAX_MESSAGE_BYTES} bytes")
            return
        for line in lines:
            if self._end:
                return
            self._receive(line)

    def on_stderr(self, data: bytes) -> None:
        data = self._stderr_line + data
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > _STDERR_LINE_BYTES:
            end = len(data)
        self._stderr_line = data[end:]
        self._report_stderr(data[:end])

    def _report_stderr(self, text: bytes) -> None:
        if text:
            text = self._redactor.raw(text)
            self._stderr_tail = (self._stderr_tail + text)[-_STDERR_TAIL_BYTES:]
            self._listener.on_stderr(text)

    def on_ended(self, how: str) -> None:
        self._report_stderr(self._stderr_line)
        self._finish(how)

    @property
    def end_reason(self) -> str:
        """With the cause from the child's standard error; for operators, not for callers."""
        cause = find_cause(self.stderr)
        return f"{self._end}: {cause}" if cause else self._end

    @property
    def stderr(self) -> str:
        return self._stderr_tail.decode(errors="replace")

    def _send_request(self, key: bytes, message: bytes, deadline: float) -> None:
        del key, deadline
        child = self._child
        if child is None or not child.stdin.is_open:
            raise self._build_unavailable("nothing was sent")
        # JSON has line ends only between its tokens, where a space will do.
        if b"\n" in message or b"\r" in message:
            message = message.translate(_LINE_ENDS_TO_SPACES)
        child.stdin.write(message + b"\n")

    def _send_now(self, message: bytes) -> None:
        if self._child is not None and self._child.stdin.has_room.is_set():
            self._child.stdin.write(message.translate(_LINE_ENDS_TO_SPACES) + b"\n")

    async def _deliver(self, message: bytes) -> None:
        with suppress(CallTimedOut):
            if not self._has_room.is_set():
                await self._wait_for_room("an answer", _DELIVER_TIMEOUT_S)
            self._send_now(message)

    def _on_too_much_noise(self) -> None:
        self._kill("fills its standard output with what is not MCP")

    def _kill(self, reason: str) -> None:
        """End a child that breaks the protocol. One that is being stopped keeps its time."""
        if not self._end:
            self._finish(reason)
            if self._child is not None:
                self._child.kill()

    def _build_unavailable(self, outcome: str) -> ServerUnavailable:
        return ServerUnavailable(f"{self._name} {self._end or 'takes no input'}; {outcome}")


class StdioConnector:
    """Starts the child of a record and finds out what it speaks."""

    def __init__(
        self,
        warden: Warden,
        secrets: Secrets,
        *,
        on_spawn: Callable[[ServerRecord, Purpose], None] = lambda _record, _purpose: None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`on_spawn` is called before each process starts, with its server and its purpose."""
        self._warden = warden
        self._secrets = secrets
        self._on_spawn = on_spawn
        self._start_timeout_s = start_timeout_s
        self._unprobed: set[str] = set()
        """Servers whose child died of a probe. Some end at any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> StdioConnection:
        launch, server_id, expand = record.stdio, record.server_id, self._secrets.expand
        if launch is None:
            raise StartFailed("its record does not say what to start", fatal=True)
        env = self._secrets.child_environment(launch)
        connection = StdioConnection(
            server_id,
            listener,
            Redactor(collect_child_credentials(launch, env, url_variables=NETWORK_ENVIRONMENT)),
        )
        if known_revision is None and server_id in self._unprobed:
            known_revision = "legacy"
        timeout_s = choose_start_timeout(record, self._start_timeout_s)

        async def send(method: str, params: Params, _timeout_s: float) -> RpcResponse:
            return await connection.exchange(method, params, timeout_s)

        def diagnose() -> str:
            return suggest_fix(record, connection.stderr, env, has_read=connection.has_read)

        try:
            async with asyncio.timeout(timeout_s):
                argv = [expand(launch.command), *map(expand, launch.args)]
                cwd = None if launch.cwd is None else expand(launch.cwd)
                self._warden.admit()
                # Once nothing else can prevent the process, and before it exists.
                self._on_spawn(record, listener.purpose)
                connection.attach(await self._warden.spawn(argv, env=env, cwd=cwd, owner=connection))
                info = await negotiate(
                    send,
                    connection.notify,
                    known_revision=known_revision,
                    capabilities=capabilities,
                    was_read=connection.wait_until_read,
                )
                connection.open(info)
                await asyncio.sleep(0)  # the subscriptions are the first thing that the server reads
        except (TimeoutError, CallTimedOut) as exc:
            reason = f"it did not get through its start within {timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout", hint=diagnose()) from exc
        except ServerUnavailable as exc:
            if connection.has_read:  # else it did not die of the probe
                self._unprobed ^= {server_id}
            raise StartFailed(f"it {connection.end_reason}", hint=diagnose()) from exc
        finally:
            if not connection.is_open:
                await connection.discard()
        self._unprobed.discard(server_id)
        return connection
