"""MCP over a child's standard input and output: one JSON-RPC message a line.

A link has no task of its own and none per request: an answer wakes the one future that waits for it. What
a child sends is bounded, and nothing it sends is taken for the answer to a question it was not asked.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.servers import EMPTY, ServerRecord, StdioLaunch, choose_start_timeout
from toolgate.model.tools import Revision
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    MAX_MESSAGE_BYTES,
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Params,
    Purpose,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.connection.subscriptions import ServerSubscriptions, subscribe_on_one_stream
from toolgate.upstream.connection.tasks import BackgroundTasks, PendingRequests
from toolgate.upstream.redaction import Redactor, credentials_of_child
from toolgate.upstream.stdio.children import Child, Warden
from toolgate.upstream.stdio.pipes import LineSplitter, LineTooLong
from toolgate.upstream.stdio.start_failures import StartDiagnosis, find_cause

MAX_NOISE_BYTES: Final = 1024 * 1024
MAX_NOISE_LINES: Final = 10_000
"""A child that writes more than either between two messages is no MCP server, and costs our time."""

_STDERR_LINE_BYTES: Final = 1024
"""A longer line is passed on in parts."""
_STDERR_TAIL_BYTES: Final = 16 * 1024
"""What the cause of an end is looked for in: a stack trace, or the end of npm's messages."""
_KILLED_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.05
"""How often a pipe is asked whether it was read: no event tells of that."""
_DELIVER_TIMEOUT_S: Final = 10.0
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


class StdioConnection:
    """A connection to one child. `StdioConnector` opens it once it knows which revision the child speaks."""

    hello: ServerInfo
    _orders: ServerSubscriptions
    pid: int | None = None

    def __init__(self, server_id: str, listener: ConnectionListener, redactor: Redactor) -> None:
        self._loop = asyncio.get_running_loop()
        self._redactor = redactor
        self._server_id = server_id
        self._listener = listener
        self._child: Child | None = None
        self._background = BackgroundTasks()
        self._relay = Relay(
            listener, redactor, background=self._background, tell=self._write, deliver=self._deliver
        )
        self._last_id = 0
        self._unanswered = PendingRequests(self._relay.deadline_of)
        self._lines = LineSplitter(MAX_MESSAGE_BYTES)
        self._noise_bytes = 0
        self._noise_lines = 0
        self._stderr_tail = b""
        self._stderr_line = b""
        """The beginning of a line: a credential may be cut in two by how the bytes arrive."""
        self.is_open = False
        self._end = ""
        self.dropped_lines = 0
        """Lines that were no JSON-RPC message."""
        self.dropped_answers = 0
        """Answers to nothing we wait for: unknown, repeated, late and null ids."""

    def attach(self, child: Child) -> None:
        self._child = child
        self.pid = child.pid

    async def open(self, hello: ServerInfo) -> None:
        """From now on it is a link: requests carry the envelope of their era, and the listener is told."""
        self.hello = self._redactor.hello(hello)
        self.is_open = True
        self._relay.era = hello.era
        self._orders = subscribe_on_one_stream(hello, self.exchange, self._background)
        self._orders.watch(frozenset())
        await asyncio.sleep(0)  # what the server is to tell, it hears before anything else

    async def discard(self) -> None:
        """End a link that never opened, at once."""
        self._finish("was given up")
        if self._child is not None:
            self._child.kill()
            await self._child.wait_gone(_KILLED_S)

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        del headers  # HTTP's
        if client is not None and self._orders.is_quieter_than(client.log_level):
            await self._orders.set_level(client.log_level)
        return self._redactor.reply(await self.exchange(method, params, timeout_s, client))

    async def exchange(
        self, method: str, params: Params, timeout_s: float, client: ClientChannel | None = None
    ) -> RpcResponse:
        """Ask; before it is open, with exactly these params. Raises as `Link.request` does."""
        child = self._child
        if child is not None and not child.stdin.has_room.is_set():
            timeout_s = await self._wait_for_room(child, method, timeout_s)
        if child is None or self._end or not child.stdin.is_open:
            raise self._unavailable("nothing was sent")
        self._last_id = number = self._last_id + 1
        key = b"%d" % number
        deadline = self._loop.time() + timeout_s
        if self.is_open:
            params = self._relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        answer = self._unanswered.add(key, deadline, lambda: self._late(method, timeout_s))
        child.stdin.write(_encode_line(messages.encode_request(number, method, params)))
        try:
            reply = await answer
            if method == "ping":
                await self._relay.settled(key)  # see `DedicatedConnection`
        except (CallTimedOut, asyncio.CancelledError):
            self._withdraw(key)
            raise
        else:
            return reply
        finally:
            self._unanswered.remove(key)
            self._relay.leave(key)

    async def was_read(self) -> None:
        """Returns once the child has read all that was sent. A runner that downloads reads nothing."""
        while not self.has_read and not self._end:  # noqa: ASYNC110  the kernel has no event for it
            await asyncio.sleep(_LOOK_EVERY_S)
        if not self._end:
            self._listener.on_reading()

    @property
    def has_read(self) -> bool:
        return self._child is not None and self._child.stdin.was_read

    async def notify(self, method: str, params: Params) -> None:
        self._write(messages.encode_notification(method, params))

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._orders.watch(uris)

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
            self._fault(f"sent a line of more than {MAX_MESSAGE_BYTES} bytes")
            return
        for line in lines:
            if self._end:
                return
            try:
                message = messages.decode_incoming(line)
            except UNREADABLE:
                self._on_unreadable(line)
            else:
                self._on_message(message, line)

    def on_stderr(self, data: bytes) -> None:
        data = self._stderr_line + data
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > _STDERR_LINE_BYTES:
            end = len(data)
        self._stderr_line = data[end:]
        self._tell(data[:end])

    def _tell(self, words: bytes) -> None:
        if words:
            words = self._redactor.raw(words)
            self._stderr_tail = (self._stderr_tail + words)[-_STDERR_TAIL_BYTES:]
            self._listener.on_stderr(words)

    def on_ended(self, how: str) -> None:
        self._tell(self._stderr_line)
        self._finish(how)

    @property
    def end(self) -> str:
        """Why it is over, with the cause that the child wrote down; for operators, not for callers."""
        cause = find_cause(self.stderr)
        return f"{self._end}: {cause}" if cause else self._end

    @property
    def stderr(self) -> str:
        return self._stderr_tail.decode(errors="replace")

    def _on_message(self, message: messages.IncomingMessage, line: bytes | bytearray) -> None:
        if message.method:
            self._on_server_message(message, line)
        elif message.id and message.is_response:
            reply = messages.parse_response(message) if messages.is_utf8(line) else messages.NOT_UTF8
            if not self._unanswered.answer(bytes(message.id), reply):
                self.dropped_answers += 1
        else:
            self._on_noise(line)  # JSON, but somebody's log
            return
        self._noise_bytes = self._noise_lines = 0

    def _on_server_message(self, message: messages.IncomingMessage, line: bytes | bytearray) -> None:
        if not messages.is_utf8(line):
            self.dropped_lines += 1
        elif message.id or self.is_open:
            self._relay.take(message)

    def _on_unreadable(self, line: bytes | bytearray) -> None:
        """An answer we cannot carry (half a character, NaN) fails its call now, and not at its deadline."""
        answered = messages.guess_response_id(line) if len(line) <= MAX_NOISE_BYTES else b""
        if not self._unanswered.answer(answered, messages.NOT_JSON):
            self._on_noise(line)

    def _on_noise(self, line: bytes | bytearray) -> None:
        self.dropped_lines += 1
        self._noise_lines += 1
        self._noise_bytes += len(line) + 1
        if self._noise_lines > MAX_NOISE_LINES or self._noise_bytes > MAX_NOISE_BYTES:
            self._fault("fills its standard output with what is not MCP")

    async def _wait_for_room(self, child: Child, method: str, timeout_s: float) -> float:
        """Wait until the child reads again; what is left of the time."""
        ends_at = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while not child.stdin.has_room.is_set():
                    await child.stdin.has_room.wait()
        except TimeoutError:
            raise CallTimedOut(
                f"server `{self._server_id}` does not read its input: `{method}` was not sent"
            ) from None
        return max(0.0, ends_at - self._loop.time())

    def _late(self, method: str, timeout_s: float) -> CallTimedOut:
        return CallTimedOut(f"server `{self._server_id}` did not answer `{method}` within {timeout_s:g} s")

    def _withdraw(self, key: bytes) -> None:
        """Say that nobody waits any more. Not during its start: `initialize` may not be cancelled."""
        if self.is_open:
            self._write(messages.encode_cancelled(key))

    async def _deliver(self, message: bytes) -> None:
        """Send what somebody waits for, as soon as the child reads."""
        child = self._child
        with suppress(CallTimedOut):
            if child is not None and not child.stdin.has_room.is_set():
                await self._wait_for_room(child, "an answer", _DELIVER_TIMEOUT_S)
            self._write(message)

    def _write(self, message: bytes) -> None:
        """Send what nobody waits for, unless the child has stopped reading: then it is dropped."""
        if self._child is not None and self._child.stdin.has_room.is_set():
            self._child.stdin.write(_encode_line(message))

    def _fault(self, how: str) -> None:
        """The child breaks the rules: end it. One that is being stopped is left its time."""
        if not self._end:
            self._finish(how)
            if self._child is not None:
                self._child.kill()

    def _finish(self, how: str) -> None:
        if self._end:
            return
        self._end = how
        self._unanswered.fail_all(lambda: self._unavailable("the outcome of the call is unknown"))
        self._background.cancel()
        if self.is_open:
            self._listener.on_closed(self.end)

    def _unavailable(self, outcome: str) -> ServerUnavailable:
        return ServerUnavailable(f"server `{self._server_id}` {self._end or 'takes no input'}; {outcome}")


def _ignore_spawn(_record: ServerRecord, _purpose: Purpose, /) -> None:
    """Where nobody wants to know."""


class StdioConnector:
    """Starts the child of a record and finds out what it speaks."""

    def __init__(
        self,
        warden: Warden,
        secrets: Secrets,
        *,
        on_spawn: Callable[[ServerRecord, Purpose], None] = _ignore_spawn,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`on_spawn` is told before each process is started: of which server, and what for."""
        self._warden = warden
        self._secrets = secrets
        self._on_spawn = on_spawn
        self._start_timeout_s = start_timeout_s
        self._shy: set[str] = set()
        """Servers whose child died when it was probed. Some end at any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_era: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> StdioConnection:
        launch = record.stdio
        if launch is None:
            raise StartFailed("its record does not say what to start", fatal=True)
        env = self._secrets.child_environment(launch)
        link = StdioConnection(record.server_id, listener, Redactor(credentials_of_child(launch, env)))
        era: Revision | None = "legacy" if known_era is None and record.server_id in self._shy else known_era
        timeout_s = choose_start_timeout(record, self._start_timeout_s)

        async def ask(method: str, params: Params, _timeout_s: float) -> RpcResponse:
            return await link.exchange(method, params, timeout_s)

        try:
            async with asyncio.timeout(timeout_s):
                await self._spawn(link, launch, env, lambda: self._on_spawn(record, listener.purpose))
                hello = await negotiate(
                    ask, link.notify, known_era=era, capabilities=capabilities, was_read=link.was_read
                )
                await link.open(hello)
        except (TimeoutError, CallTimedOut) as exc:
            raise StartFailed(
                f"it did not get through its start within {timeout_s:g} s",
                state="list_timeout",
                hint=_diagnose_start(record, link, env).hint,
            ) from exc
        except ServerUnavailable as exc:
            # One that never read the probe did not die of it.
            self._shy = self._shy ^ {record.server_id} if link.has_read else self._shy
            raise StartFailed(f"it {link.end}", hint=_diagnose_start(record, link, env).hint) from exc
        finally:
            if not link.is_open:
                await link.discard()
        self._shy.discard(record.server_id)
        return link

    async def _spawn(
        self,
        link: StdioConnection,
        launch: StdioLaunch,
        env: Mapping[str, str],
        announce: Callable[[], None],
        /,
    ) -> None:
        expand = self._secrets.expand
        argv = [expand(launch.command), *map(expand, launch.args)]
        cwd = None if launch.cwd is None else expand(launch.cwd)
        self._warden.admit()
        announce()  # once nothing more is in the way of the process, and before it is there
        child = await self._warden.spawn(argv, env=env, cwd=cwd, owner=link)
        link.attach(child)


def _diagnose_start(record: ServerRecord, link: StdioConnection, env: Mapping[str, str]) -> StartDiagnosis:
    return StartDiagnosis(record=record, stderr=link.stderr, environment=env, has_read=link.has_read)


def _encode_line(message: bytes) -> bytes:
    """`message` on one line. JSON has line ends only between its tokens, where a space will do."""
    if b"\n" in message or b"\r" in message:
        message = message.translate(_LINE_ENDS_TO_SPACES)
    return message + b"\n"
