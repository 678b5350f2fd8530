"""MCP over a child's standard input and output: one JSON-RPC message a line.

`StdioConnector` starts the child of a record and negotiates; `StdioConnection` is the live result. Everything
that a child writes is bounded, and its own credentials never get into an error or the log.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Unpack

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import ServerRecord, StdioLaunch, choose_start_timeout, find_runner
from toolgate.redaction.credentials import collect_child_credentials
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.shapes import looks_secret
from toolgate.upstream.connection import contract, messages
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.secrets import NETWORK_ENVIRONMENT, Secrets
from toolgate.upstream.connection.stream import StreamConnection
from toolgate.upstream.stdio.children import Child, Warden
from toolgate.upstream.stdio.pipes import LineSplitter, LineTooLong

MAX_NOISE_LINES: Final = 10_000
"""A child that writes more between two messages is not an MCP server, and costs our time."""

_STDERR_LINE_BYTES: Final = 1024
"""A longer line is logged in parts."""
_STDERR_TAIL_BYTES: Final = 16 * 1024
"""The output to search for the cause of an end: a stack trace, or the end of npm's messages."""
_KILLED_S: Final = 1.0  # a choice: KILL needs milliseconds; the keeper keeps trying
_CHECK_READ_S: Final = 0.05
"""How often a pipe is checked: no event says that the child has read it."""
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


class StdioConnection(StreamConnection):
    """A connection to one child."""

    def __init__(self, server_id: str, listener: contract.ConnectionListener, redactor: Redactor) -> None:
        numbers = itertools.count(1)
        super().__init__(f"server `{server_id}`", numbers, listener, redactor, max_noise=MAX_NOISE_LINES)
        self._child: Child | None = None
        self._lines = LineSplitter(contract.MAX_MESSAGE_BYTES)
        self._stderr_tail = b""
        self._stderr_line = b""
        """The beginning of a line: a credential may arrive in two parts."""

    def attach(self, child: Child) -> None:
        self._child = child
        self._has_room = child.stdin.has_room
        self.pid = child.pid

    async def discard(self) -> None:
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

    async def notify(self, method: str, params: contract.Params) -> None:
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
            self._kill(f"sent a line of more than {contract.MAX_MESSAGE_BYTES} bytes")
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
                await self._wait_for_room("a response", contract.DELIVER_TIMEOUT_S)
            self._send_now(message)

    def _on_too_much_noise(self) -> None:
        self._kill("writes too much data that is not MCP to its standard output")

    def _kill(self, reason: str) -> None:
        """End a child that breaks the protocol. One that is being stopped keeps its time."""
        if not self._end:
            self._finish(reason)
            if self._child is not None:
                self._child.kill()

    def _build_unavailable(self, outcome: str) -> ServerUnavailable:
        return ServerUnavailable(f"{self._name} {self._end or 'takes no input'}; {outcome}")


@dataclass(eq=False)
class StdioConnector:
    """Starts the child of a record and negotiates the protocol revision."""

    warden: Warden
    secrets: Secrets
    _: KW_ONLY
    on_spawn: Callable[[ServerRecord, contract.Purpose], None] = lambda _record, _purpose: None
    """Called before each process starts, with its server and its purpose."""
    start_timeout_s: float = contract.START_TIMEOUT_S
    probe_timeout_s: float = contract.PROBE_TIMEOUT_S
    _unprobed: set[str] = field(default_factory=set, init=False)
    """Servers whose child died of a probe. Some exit on any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: contract.ConnectionListener,
        **handshake: Unpack[contract.ServerHandshake],
    ) -> StdioConnection:
        launch, server_id, expand = record.stdio, record.server_id, self.secrets.expand
        if launch is None:
            raise contract.StartFailed("its record has no `stdio` part", fatal=True)
        env = self.secrets.build_child_environment(launch)
        connection = StdioConnection(
            server_id,
            listener,
            Redactor(collect_child_credentials(launch, env, url_variables=NETWORK_ENVIRONMENT)),
        )
        if handshake["known_revision"] is None and server_id in self._unprobed:
            handshake["known_revision"] = "legacy"
        timeout_s = choose_start_timeout(record, self.start_timeout_s)

        async def send(method: str, params: contract.Params, _timeout_s: float) -> contract.RpcResponse:
            return await connection.exchange(method, params, timeout_s)

        def diagnose() -> str:
            return suggest_fix(record, connection.stderr, env, has_read=connection.has_read)

        try:
            async with asyncio.timeout(timeout_s):
                argv = [expand(launch.command), *map(expand, launch.args)]
                cwd = None if launch.cwd is None else expand(launch.cwd)
                self.warden.admit()
                # Once nothing else can prevent the process, and before it exists.
                self.on_spawn(record, listener.purpose)
                connection.attach(await self.warden.spawn(argv, env=env, cwd=cwd, owner=connection))
                info = await negotiate(
                    send,
                    connection.notify,
                    **handshake,
                    wait_until_read=connection.wait_until_read,
                    probe_timeout_s=self.probe_timeout_s,
                )
                connection.open(info)
                await asyncio.sleep(0)  # the subscriptions are the first thing that the server reads
        except (TimeoutError, CallTimedOut) as exc:
            reason = f"it did not finish its start within {timeout_s:g} s"
            raise contract.StartFailed(reason, state="list_timeout", hint=diagnose()) from exc
        except ServerUnavailable as exc:
            if connection.has_read:  # else it did not die of the probe
                self._unprobed ^= {server_id}
            raise contract.StartFailed(f"it {connection.end_reason}", hint=diagnose()) from exc
        finally:
            if not connection.is_open:
                await connection.discard()
        self._unprobed.discard(server_id)
        return connection


# The cause of a failed start: the last line is rarely it. Node ends with its version, npm with the path of
# a log, uv with a frame. Pure; never quotes the arguments that may be a secret.

MAX_CAUSE_CHARS: Final = 300  # a choice: the one or two lines of an error

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRAILER: Final = re.compile(
    r"Node\.js v.+|at .+|[\W_]+|npm (?:notice|warn) .*|Run 'docker .*|For more information, try .*|See '.*"
)
"""Lines that end an error message without adding to it."""
_NPM: Final = re.compile(r"npm (?:error|ERR!) (?P<message>.+)")
_NPM_FACT: Final = re.compile(
    r"(?:code|syscall|errno|path|dest|signal|command|cwd|A complete log|network (?:This|In most|'proxy'))\b.*"
    r"|\d+"
)
"""What npm writes around the message itself."""
_CROSS: Final = "\N{MULTIPLICATION SIGN} "
_FRAME: Final = _CROSS + "├╰─▶│"
_UV_LINES: Final = 5  # the reason is among the first; below are frames of uv's own
_ERROR: Final = re.compile(
    r"(?:Uncaught |\[cause\]: )?(?:[\w.]+\.)?(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?: .+"
)
_EXCEPTION_FRAME: Final = re.compile(r"^[|+\s-]+")
_LOGGED: Final = re.compile(
    r"(?:.{0,60}?[\s\[|:])?(?:(?:ERROR|FATAL|CRITICAL)[\]:)|\s]|(?:error|fatal|panic): ).+"
    r"|.*(?:\blevel=|\"level\": ?\")(?:error|fatal|panic)\b.*"
)
"""A line of a log or of a parser of arguments, at the level of an error."""
_USAGE: Final = re.compile(r"usage\b.*", re.IGNORECASE)
"""The beginning of a program's help, which follows the error."""

_CERTIFICATE: Final = re.compile(
    r"certificate.verify.failed|self.signed.certificate|unable_to_(?:get_issuer|verify_leaf)|"
    r"unable to get (?:local )?issuer|invalid peer certificate|unknownissuer|signed by unknown authority",
    re.IGNORECASE,
)
_NETWORK: Final = re.compile(
    r"enotfound|eai_again|econnrefused|econnreset|etimedout|enetunreach|getaddrinfo|dns error|timed out|"
    r"could not resolve|name resolution|name or service not known|connection refused|tcp connect error|"
    r"network is unreachable",
    re.IGNORECASE,
)
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
_NODE: Final = frozenset(
    {"npx", "pnpx", "bunx", "npm exec", "npm x", "pnpm dlx", "yarn dlx", "bun x", "bun run"}
)


def suggest_fix(record: ServerRecord, stderr: str, environment: Mapping[str, str], *, has_read: bool) -> str:
    """What an operator can do. `has_read`: the child has read its input, so its packages are downloaded."""
    where = "where the gateway runs, or in the `env` of the record"
    if _CERTIFICATE.search(stderr):
        name = choose_ca_variable(find_runner(record) or "", stderr)
        if environment.get(name):
            return f"the certificate is not signed by a CA in the file that `{name}` names: check it"
        return f"set `{name}` to the file with your company's CA, {where}"
    # Once it runs, an unreachable address concerns the server itself: its database, its API.
    if not has_read and find_runner(record) is not None and _NETWORK.search(stderr):
        name = next((name for name in _PROXIES if environment.get(name)), "")
        if name:
            return f"packages cannot be downloaded through `{name}`: check it, and `NO_PROXY`"
        return f"packages cannot be downloaded: set `HTTPS_PROXY` if there is a proxy, {where}"
    if record.stdio is None:
        return ""
    return (
        f"run the command yourself: {_shorten_command(record.stdio)}; the last 40 lines of its output are in "
        f'"toolgate servers get {record.server_id}"'
    )


def choose_ca_variable(runner: str, stderr: str = "") -> str:
    """The environment variable with the company's CA for programs that a runner starts."""
    if runner in _NODE or "UNABLE_TO_" in stderr:
        return "NODE_EXTRA_CA_CERTS"
    if runner == "pipx":
        return "PIP_CERT"
    return "REQUESTS_CA_BUNDLE" if "requests.exceptions" in stderr else "SSL_CERT_FILE"


def _shorten_command(launch: StdioLaunch) -> str:
    """The command up to what it starts, or up to a possible secret: `npx -y some-server …`."""
    words = [launch.command]
    for argument in launch.args:
        if looks_secret(words[-1]) or looks_secret(argument.partition("=")[0]) or any(random_spans(argument)):
            break
        words.append(argument)
        if not argument.startswith("-"):
            break
    return " ".join(words) + (" …" if len(words) <= len(launch.args) else "")


def find_cause(stderr: str) -> str:
    """The one or two lines with the error; empty if nothing was written."""
    lines = [line for raw in _ANSI.sub("", stderr).splitlines() if (line := raw.strip())]
    npm_lines = (_NPM.fullmatch(line) for line in lines)
    npm_error = next((one[0] for one in npm_lines if one and not _NPM_FACT.fullmatch(one["message"])), "")
    cause = npm_error or _find_uv_error(lines) or _find_exception(lines)
    cause = cause or next((line for line in lines if _LOGGED.fullmatch(line)), "")
    if lines and not cause:
        usage_at = next((at for at, line in enumerate(lines) if _USAGE.fullmatch(line)), 0)
        before = lines[:usage_at] or lines
        cause = next((line for line in reversed(before) if not _TRAILER.fullmatch(line)), lines[-1])
    return cause if len(cause) <= MAX_CAUSE_CHARS else cause[: MAX_CAUSE_CHARS - 1] + "…"


def _find_uv_error(lines: Sequence[str]) -> str:
    """`x message:` with the frames below it, or `error: message` with what caused it."""
    start = next((at for at, line in enumerate(lines) if line.startswith((_CROSS, "error: "))), None)
    if start is None:
        return ""
    block = [line.lstrip(_FRAME) for line in lines[start : start + _UV_LINES]]
    # uv ends with a line of advice, after the reason.
    return " ".join(line for line in block if not line.startswith(("help: ", "hint: ")))


def _find_exception(lines: Sequence[str]) -> str:
    """What Node threw (the first error: others are what it led to), or Python raised (the last one)."""
    errors = [bare for line in lines if _ERROR.fullmatch(bare := _EXCEPTION_FRAME.sub("", line))]
    if not errors:
        return ""
    is_python = any(line.endswith("(most recent call last):") for line in lines)
    return errors[-1 if is_python else 0]
