"""Sessions of the session-based revisions, without a session store, and the requests to their clients.

A session id holds its principal and its selection, signed. Any node with the key can serve any session. A
node keeps a bounded table of the sessions it has seen, for idle time, cancellation and the one GET stream; a
client does not notice when a node loses its table. An id is bound to its principal: possessing it
authenticates no one.

A request to a client goes out on the stream of the request that caused it. Its response is another message of
the same session, on the same node, matched by an unguessable id.
"""

import asyncio
import heapq
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRequest, SessionLimit, UnknownSession
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.call.audit_trail import SessionTotals
from toolgate.gateway.scope.caller import Caller, Mode
from toolgate.gateway.subscriptions import Subscription
from toolgate.gateway.subscriptions.resources import ResourceWatch
from toolgate.model.principals import Principal
from toolgate.model.protocol import CANCELLED
from toolgate.model.reports import MAX_ENDED, EndedSession
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.http.messages import KEEPALIVE, KEEPALIVE_S, Responder
from toolgate.surfaces.mcp.exchange import CallerBinding
from toolgate.surfaces.mcp.jsonrpc import ClientResponse
from toolgate.surfaces.mcp.responses import encode_notification, encode_request
from toolgate.upstream.connection.contract import NO_CAPABILITIES, RpcResponse

_ID_PREFIX: Final = b'"toolgate-'

TOO_MANY: Final = RpcResponse(
    error=b'{"code":-32603,"message":"too many requests already wait for the client"}'
)
GONE: Final = RpcResponse(
    error=b'{"code":-32603,"message":"the client does not read its stream at the moment"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """What sessions may hold on one node."""

    max_sessions: int = 10_000
    """Bounds the memory that callers can take on a node."""
    displaced_per_session: int = 100
    """Sessions displaced at once: finding the least recently used ones scans the whole table."""
    max_client_requests: int = 32
    """Requests to the client of one session that wait for their responses."""
    max_stream_requests: int = 64
    """Requests on one SSE stream that wait for their responses: each holds a task."""
    max_batch_bytes: int = 16 * 1024 * 1024
    """Of all responses to a batch, held until the last one arrives. A single response may be larger."""
    keepalive_s: float = KEEPALIVE_S
    """Between events on a stream while its client responds to a request."""


DEFAULT_LIMITS: Final = SessionLimits()


SHARE: Final = 10
"""A principal with less than a tenth of a full table gets a session, and the largest holder loses some."""
IDLE_S: Final = 30 * 60  # a choice: outlasts a short break, and abandoned sessions leave the table
LIFETIME_S: Final = 24 * 60 * 60
"""Ids expire because no node remembers deleted sessions forever."""
MAX_ID_BYTES: Final = 7 * 1024
"""An id is a header, and many proxies and clients accept no header line over 8 KiB."""
NO_SESSION: Final = "no such session"
_PURPOSE: Final = b"session"


class _SessionClaims(msgspec.Struct, array_like=True, frozen=True):
    """The contents of an id. 128 random bits make it unguessable and unique even before it is signed."""

    nonce: str
    principal: str
    version: str
    issued_s: int
    task_id: str | None
    only_server: str | None
    request: SessionRequest
    capabilities: msgspec.Raw = msgspec.Raw(NO_CAPABILITIES)
    revision: int = 0
    mode: Mode = "list"


@dataclass(slots=True, eq=False, kw_only=True)
class ClientSession:
    """One session as this node knows it, and the requests to its client that wait for their responses."""

    nonce: str
    principal_id: str
    version: str
    expires_s: int
    """When its id expires; wall clock."""
    capabilities: bytes
    """The client's capabilities that the gateway carries."""
    revision: int
    """Of the registry when the session was opened: a node that is behind catches up first."""
    binding: CallerBinding
    """What the session selects for the credential that was used last."""
    last_used: float
    limits: SessionLimits
    watch: ResourceWatch
    """The resources it subscribed to."""
    calls: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    log_level: str = ""
    """The least severe log message the client requested; empty if it requested none."""
    stream: Subscription | None = None
    """Its one GET stream."""
    has_ended: bool = False
    """It cannot be used again on this node."""
    ended_by: str = ""
    """Why this node dropped it."""
    totals: SessionTotals = field(default_factory=SessionTotals)
    _requests: dict[bytes, tuple[Principal, asyncio.Future[RpcResponse]]] = field(default_factory=dict)

    def bind(self, principal: Principal) -> CallerBinding:
        """What the session selects for a request with a credential of `principal`."""
        if self.binding.caller.principal is not principal:
            self.binding = self.binding.for_principal(principal)
        return self.binding

    @property
    def is_busy(self) -> bool:
        """A running call or an open stream keeps a session alive."""
        return bool(self.calls) or self.stream is not None

    @contextmanager
    def attach_stream(self, stream: Subscription) -> Iterator[None]:
        """Make `stream` the session's for the block. An earlier one, which may be broken, ends."""
        if self.stream is not None:
            self.stream.end()
        self.stream = stream
        try:
            yield
        finally:
            if self.stream is stream:
                self.stream = None

    async def request(
        self, responder: Responder, method: str, params: bytes, principal: Principal
    ) -> RpcResponse:
        """Send the client a request on the stream of `responder`, and wait for its response.

        Only the credential of `principal` may respond: another token of the same subject may be allowed less.
        If the wait is cancelled, so is the request.
        """
        if len(self._requests) >= self.limits.max_client_requests:
            return TOO_MANY
        request_id = b'%b%b"' % (_ID_PREFIX, secrets.token_urlsafe(16).encode())
        response: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        self._requests[request_id] = principal, response
        try:
            if not responder.send_message(encode_request(request_id, method, params)):
                return GONE
            # People take their time, and a proxy may close a stream that is silent.
            while not (await asyncio.wait({response}, timeout=self.limits.keepalive_s))[0]:
                await responder.write(KEEPALIVE)
            return response.result()
        except asyncio.CancelledError:
            cancelled = msgspec.json.encode({"requestId": msgspec.Raw(request_id)})
            responder.send_message(encode_notification(CANCELLED, cancelled))
            raise
        finally:
            del self._requests[request_id]

    def resolve(self, response: ClientResponse, principal: Principal) -> None:
        """Hand a response to the request that waits for it. A late or second response has no effect.

        Raises InvalidRequest for a response to a request that `principal` was never sent here.
        """
        owner, waiting = self._requests.get(response.id, (principal, None))
        is_own = owner is principal or fingerprint_of(owner) == fingerprint_of(principal)
        if waiting is not None and is_own and not waiting.done():
            waiting.set_result(response.rpc)
        elif not (is_own and response.id.startswith(_ID_PREFIX)):
            raise InvalidRequest("no request has the `id` of this response", hint="use the request's `id`")


@dataclass(eq=False)
class ClientSessions:
    """Issues, verifies and drops sessions. `clock_s` is monotonic, `wall_s` the time of day."""

    key: InitVar[bytes]
    _: KW_ONLY
    clock_s: Callable[[], float]
    wall_s: Callable[[], float]
    limits: SessionLimits = DEFAULT_LIMITS
    on_dropped: Callable[[ClientSession], None] = lambda _session: None
    """Called with each session that this node drops."""
    on_ended: Callable[[EndedSession], None] = lambda _ended: None
    """Called with each session that its client ended here, and that no other node may serve."""
    _open: dict[bytes, ClientSession] = field(default_factory=dict, init=False)
    _held: Counter[str] = field(default_factory=Counter, init=False)
    _ended: OrderedDict[str, None] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self, key: bytes) -> None:
        self.signer = Signer(key)

    def __len__(self) -> int:
        return len(self._open)

    def use_key(self, key: bytes) -> None:
        """Sign with `key` from now on. Sessions signed with another key become unknown."""
        if key != self.signer.key:
            self.signer.key = key
            for session_id in tuple(self._open):
                self._drop(session_id, for_good=True, ended_by="key_changed")

    def issue(
        self, caller: Caller, version: str, capabilities: bytes = NO_CAPABILITIES, *, revision: int = 0
    ) -> bytes:
        """Open a session and return its id. Raises InvalidParams if the selection does not fit into an id.

        `capabilities`: those of the client that the gateway carries. `revision`: of the registry, now.
        """
        claims = _SessionClaims(
            nonce=secrets.token_urlsafe(16),
            principal=caller.principal.id,
            version=version,
            issued_s=int(self.wall_s()),
            task_id=caller.task_id,
            only_server=caller.only_server,
            request=caller.request,
            capabilities=msgspec.Raw(capabilities),
            revision=revision,
            mode=caller.mode,
        )
        session_id = self.signer.sign(_PURPOSE, msgspec.json.encode(claims))
        if len(session_id) > MAX_ID_BYTES:
            raise InvalidParams(
                "the selection of tools and servers is too long for a session",
                hint="put it into a task or a profile, and name that in the URL",
            )
        self._admit(session_id, claims, caller, is_new=True)
        return session_id

    def find(self, session_id: bytes, principal: Principal) -> ClientSession:
        """The live session of that id, for its own principal; for anyone else it does not exist."""
        session = self._open.get(session_id)
        if session is None:
            session = self._revive(session_id, principal)
        elif session.principal_id != principal.id:
            raise UnknownSession(NO_SESSION)
        now = self.clock_s()
        if now - session.last_used > IDLE_S and not session.is_busy:
            self._forget(session_id, "idle")
            raise UnknownSession(NO_SESSION)
        session.last_used = now
        return session

    def end(self, session_id: bytes, principal: Principal, *, everywhere: bool = False) -> None:
        """Close a session for good, here or on every node. Its stream ends and its calls are cancelled."""
        session = self.find(session_id, principal)
        self._close(session_id, "deleted" if everywhere else "closed")
        if everywhere:
            self.on_ended(EndedSession(session.nonce, session.expires_s * 1000))

    def apply_ended(self, nonces: Collection[str]) -> None:
        """Close the sessions that were ended on other nodes, for good."""
        news = set(nonces) - self._ended.keys()
        if not news:
            return
        for session_id in [key for key, one in self._open.items() if one.nonce in news]:
            self._close(session_id, "deleted")
        for nonce in news:
            self._remember(nonce)

    def close(self) -> None:
        """Drop all sessions: the process ends. Their ids stay valid."""
        for session_id in tuple(self._open):
            self._drop(session_id, for_good=False, ended_by="shutdown")

    def _close(self, session_id: bytes, ended_by: str) -> None:
        session = self._open[session_id]
        if session.stream is not None:
            session.stream.end()
            session.stream = None
        self._forget(session_id, ended_by)
        running, session.calls = session.calls, {}
        for task in running.values():
            task.cancel()

    def _admit(
        self, session_id: bytes, claims: _SessionClaims, caller: Caller, *, is_new: bool
    ) -> ClientSession:
        if len(self._open) >= self.limits.max_sessions:
            self.drop_idle()
        if len(self._open) >= self.limits.max_sessions:
            self._displace(claims.principal, is_new=is_new)
        self._held[claims.principal] += 1
        session = self._open[session_id] = ClientSession(
            nonce=claims.nonce,
            principal_id=claims.principal,
            version=claims.version,
            expires_s=claims.issued_s + LIFETIME_S,
            capabilities=bytes(claims.capabilities),
            revision=claims.revision,
            binding=CallerBinding(caller),
            last_used=self.clock_s(),
            limits=self.limits,
            watch=ResourceWatch(claims.principal),
        )
        return session

    def _displace(self, principal_id: str, *, is_new: bool) -> None:
        """Make room in a full table: for a session that is already open, or a new one within its share.

        Displaced sessions lose nothing: their ids stay valid, and the next use of an id restores its session.
        """
        most, own = self.limits.max_sessions, self._held[principal_id]
        if is_new and own * SHARE >= most:
            raise SessionLimit(f"this node holds {most} sessions, {own} of them yours")
        [(largest, _)] = self._held.most_common(1)
        unused = (
            (one.last_used, key)
            for key, one in self._open.items()
            if one.principal_id == largest and not one.is_busy
        )
        displaced = heapq.nsmallest(self.limits.displaced_per_session, unused)
        if not displaced:
            raise SessionLimit(f"this node holds {most} sessions, and all are in use")
        for _, session_id in displaced:
            self._drop(session_id, for_good=False, ended_by="displaced")

    def drop_idle(self) -> None:
        """End the sessions that were idle for too long."""
        oldest = self.clock_s() - IDLE_S
        idle = [key for key, one in self._open.items() if one.last_used < oldest and not one.is_busy]
        for session_id in idle:
            self._forget(session_id, "idle")

    def _drop(self, session_id: bytes, *, for_good: bool, ended_by: str) -> ClientSession:
        session = self._open.pop(session_id)
        session.has_ended = for_good
        session.ended_by = ended_by
        self._held[session.principal_id] -= 1
        if not self._held[session.principal_id]:
            del self._held[session.principal_id]
        self.on_dropped(session)
        return session

    def _forget(self, session_id: bytes, ended_by: str) -> None:
        self._remember(self._drop(session_id, for_good=True, ended_by=ended_by).nonce)

    def _remember(self, nonce: str) -> None:
        self._ended[nonce] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _revive(self, session_id: bytes, principal: Principal) -> ClientSession:
        """A session that this node has not seen: another node opened it, or this one before a restart."""
        payload = self.signer.open(_PURPOSE, session_id) if len(session_id) <= MAX_ID_BYTES else None
        if payload is None:
            raise UnknownSession(NO_SESSION)
        claims = msgspec.json.decode(payload, type=_SessionClaims)
        age_s = self.wall_s() - claims.issued_s
        if claims.principal != principal.id or claims.nonce in self._ended or age_s > LIFETIME_S:
            raise UnknownSession(NO_SESSION)
        caller = Caller(principal, claims.task_id, claims.request, claims.only_server, claims.mode)
        return self._admit(session_id, claims, caller, is_new=False)
