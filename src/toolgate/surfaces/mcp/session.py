"""What is asked of a client in the middle of its requests, and how its answers find their way back.

A question goes out on the stream of the request it belongs to. Its answer comes as a message of its own in
the same session, on the same node, and is found by an id that nobody else could have made up.

Legacy sessions without a session store: the id itself, signed, says whose it is and what it asks for.

Any node with the key can serve any session. A node keeps a bounded table of the sessions it has seen,
for idle time, cancellation and the one GET stream; losing the table loses nothing a client would miss.
Possession of an id is not authentication: it is bound to its principal.
"""

import asyncio
import heapq
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRequest, SessionLimit, UnknownSession
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.call.audit_trail import SessionTotals
from toolgate.gateway.scope.caller import Caller, Mode
from toolgate.gateway.subscriptions.listeners import Subscription
from toolgate.gateway.subscriptions.resources import ResourceWatch
from toolgate.model.principals import Principal
from toolgate.model.protocol import CANCELLED
from toolgate.model.reports import MAX_ENDED, EndedSession
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.http.responder import KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.mcp.binding import CallerBinding
from toolgate.surfaces.mcp.jsonrpc import ClientResponse
from toolgate.surfaces.mcp.responses import encode_notification, encode_request
from toolgate.upstream.connection.contract import NO_CAPABILITIES, RpcResponse

MAX_OPEN_REQUESTS: Final = 32
"""Questions of one session that may wait for their answers."""
_ID_PREFIX: Final = b'"toolgate-'

TOO_MANY: Final = RpcResponse(error=b'{"code":-32603,"message":"the client has too much to answer already"}')
GONE: Final = RpcResponse(error=b'{"code":-32603,"message":"the client reads nothing at the moment"}')


class ClientRequests:
    """The open questions of one session."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[Principal, asyncio.Future[RpcResponse]]] = {}

    async def put(
        self, responder: Responder, method: str, params: bytes, *, principal: Principal
    ) -> RpcResponse:
        """Ask ahead of an answer, and wait for what comes back. A question that is given up is taken back.

        Only the credential of `principal` can answer: another token of the same subject may be allowed less.
        """
        if len(self._open) >= MAX_OPEN_REQUESTS:
            return TOO_MANY
        ask_id = b'%b%b"' % (_ID_PREFIX, secrets.token_urlsafe(16).encode())
        answer: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        self._open[ask_id] = principal, answer
        try:
            if not responder.say(encode_request(ask_id, method, params)):
                return GONE
            # People take their time, and whoever is between us and them may cut a stream that is silent.
            while not (await asyncio.wait({answer}, timeout=KEEPALIVE_S))[0]:
                await responder.write(KEEPALIVE)
            return answer.result()
        except asyncio.CancelledError:
            taken_back = msgspec.json.encode({"requestId": msgspec.Raw(ask_id)})
            responder.say(encode_notification(CANCELLED, taken_back))
            raise
        finally:
            del self._open[ask_id]

    def take(self, answer: ClientResponse, principal: Principal) -> None:
        """Bring an answer to the request that waits for it. A late or second answer has no effect.

        Raises InvalidRequest for an answer to what `principal` was never asked here.
        """
        asked_principal, asked = self._open.get(answer.id, (principal, None))
        is_own = asked_principal is principal or fingerprint_of(asked_principal) == fingerprint_of(principal)
        if asked is not None and is_own and not asked.done():
            asked.set_result(answer.reply)
        elif not (is_own and answer.id.startswith(_ID_PREFIX)):
            raise InvalidRequest("this answers nothing that was asked", hint="answer with the request's `id`")


MAX_SESSIONS: Final = 10_000
SHARE: Final = 10
"""A principal that holds less than this part of a full table still gets in, at the largest's expense."""
DISPLACED_AT_ONCE: Final = 100
IDLE_S: Final = 30 * 60
LIFETIME_S: Final = 24 * 60 * 60
MAX_ID_BYTES: Final = 7 * 1024
"""An id is a header, and many proxies and clients take no header line of more than 8 KiB."""
_PURPOSE: Final = b"session"


class _SessionClaims(msgspec.Struct, array_like=True, frozen=True):
    """What an id says. 128 random bits make it unguessable and unique even before it is signed."""

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


class ClientSession:
    """One legacy session as this node knows it."""

    __slots__ = (
        "_binding",
        "asks",
        "calls",
        "capabilities",
        "ended_by",
        "expires_s",
        "has_ended",
        "last_used",
        "log_level",
        "nonce",
        "principal_id",
        "revision",
        "stream",
        "totals",
        "version",
        "watch",
    )

    def __init__(self, claims: _SessionClaims, binding: CallerBinding, now: float) -> None:
        self.nonce = claims.nonce
        self.principal_id = claims.principal
        """Whose it is."""
        self.version = claims.version
        self.expires_s = claims.issued_s + LIFETIME_S
        """When its id is good for nothing any more; wall clock."""
        self.capabilities = bytes(claims.capabilities)
        """What the client can do, as far as it is carried to servers."""
        self.revision = claims.revision
        """Of the registry, when the session was opened: a node that is behind has to catch up first."""
        self._binding = binding
        self.last_used = now
        self.calls: dict[bytes, asyncio.Task[None]] = {}
        self.asks = ClientRequests()
        self.log_level = ""
        """The least severe log message the client wants to hear; empty where it did not say."""
        self.watch = ResourceWatch(self.principal_id)
        """The resources it wants to hear of."""
        self.stream: Subscription | None = None
        """The one stream it listens on."""
        self.has_ended = False
        """Nobody can come back to it here."""
        self.ended_by = ""
        """Why this node does not know it any more."""
        self.totals = SessionTotals()

    @property
    def caller(self) -> Caller:
        """What it is for, by the credential that was used last."""
        return self._binding.caller

    def bind(self, principal: Principal) -> CallerBinding:
        """What the session is for a request that came with a credential of `principal`."""
        binding = self._binding
        if binding.caller.principal is not principal:
            binding = self._binding = binding.for_principal(principal)
        return binding

    def rebind(self, binding: CallerBinding) -> None:
        """Have the session be for what `binding` asks for, from now on."""
        self._binding = binding

    @property
    def is_busy(self) -> bool:
        """A running call or an open stream keeps a session alive."""
        return bool(self.calls) or self.stream is not None

    @contextmanager
    def listening(self, stream: Subscription) -> Iterator[None]:
        """While the block runs, `stream` is the session's. One that was before it, broken perhaps, ends."""
        if self.stream is not None:
            self.stream.end()
        self.stream = stream
        try:
            yield
        finally:
            if self.stream is stream:
                self.stream = None


class ClientSessions:
    """Issues, verifies and forgets sessions. `clock_s` is monotonic, `wall_s` the time of day."""

    def __init__(self, key: bytes, *, clock_s: Callable[[], float], wall_s: Callable[[], float]) -> None:
        self.signer = Signer(key)
        self._clock_s = clock_s
        self.wall_s = wall_s
        self._open: dict[bytes, ClientSession] = {}
        self._held: Counter[str] = Counter()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.on_dropped: Callable[[ClientSession], None] = lambda _session: None
        """Told of each session this node does not know any more."""
        self.on_ended: Callable[[EndedSession], None] = lambda _ended: None
        """Told of each session that its client has ended here, and that no other node may serve."""

    def __len__(self) -> int:
        return len(self._open)

    def use_key(self, key: bytes) -> None:
        """Sign with `key` from now on. Sessions that were signed with another are not known any more."""
        if key != self.signer.key:
            self.signer.key = key
            for session_id in tuple(self._open):
                self._drop(session_id, for_good=True, ended_by="key_changed")

    def issue(
        self, caller: Caller, version: str, capabilities: bytes = NO_CAPABILITIES, *, revision: int = 0
    ) -> bytes:
        """Open a session; its id. Raises InvalidParams when the caller asks for more than an id can hold.

        `capabilities` are the client's, as far as they are carried; `revision` is what the caller's scope was
        found at.
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
        session = ClientSession(claims, CallerBinding(caller), self._clock_s())
        self._admit(session_id, session, is_new=True)
        return session_id

    def find(self, session_id: bytes, principal: Principal) -> ClientSession:
        """The live session of that id, for its own principal; to anybody else it does not exist."""
        session = self._open.get(session_id)
        if session is None:
            session = self._revive(session_id, principal)
        elif session.principal_id != principal.id:
            raise _unknown()
        now = self._clock_s()
        if now - session.last_used > IDLE_S and not session.is_busy:
            self._forget(session_id, "idle")
            raise _unknown()
        session.last_used = now
        return session

    def end(self, session_id: bytes, principal: Principal, *, everywhere: bool = False) -> None:
        """Close a session for good, here or on every node. Its stream ends, and its calls are cancelled."""
        session = self.find(session_id, principal)
        self._close(session_id, session, "deleted" if everywhere else "closed")
        if everywhere:
            self.on_ended(EndedSession(session.nonce, session.expires_s * 1000))

    def apply_ended(self, nonces: Collection[str]) -> None:
        """Close the sessions that were ended on other nodes, and let none of them come back."""
        news = set(nonces) - self._ended.keys()
        if not news:
            return
        for session_id, session in [one for one in self._open.items() if one[1].nonce in news]:
            self._close(session_id, session, "deleted")
        for nonce in news:
            self._remember(nonce)

    def close(self) -> None:
        """Forget all sessions: the process ends. Their ids stay valid."""
        for session_id in tuple(self._open):
            self._drop(session_id, for_good=False, ended_by="shutdown")

    def _close(self, session_id: bytes, session: ClientSession, ended_by: str) -> None:
        if session.stream is not None:
            session.stream.end()
            session.stream = None
        self._forget(session_id, ended_by)
        running, session.calls = session.calls, {}
        for task in running.values():
            task.cancel()

    def _admit(self, session_id: bytes, session: ClientSession, *, is_new: bool) -> None:
        if len(self._open) >= MAX_SESSIONS:
            self.drop_idle()
        if len(self._open) >= MAX_SESSIONS:
            self._displace(session.principal_id, is_new=is_new)
        self._open[session_id] = session
        self._held[session.principal_id] += 1

    def _displace(self, principal_id: str, *, is_new: bool) -> None:
        """Make room in a full table: for a session that is open already, and for a new one within its share.

        Those that go lose nothing: their ids are still good, and bring them back when they are used.
        """
        if is_new and self._held[principal_id] * SHARE >= MAX_SESSIONS:
            raise SessionLimit(
                f"this node holds {MAX_SESSIONS} sessions, {self._held[principal_id]} of them yours"
            )
        [(largest, _)] = self._held.most_common(1)
        unused = (
            (one.last_used, key)
            for key, one in self._open.items()
            if one.principal_id == largest and not one.is_busy
        )
        displaced = heapq.nsmallest(DISPLACED_AT_ONCE, unused)
        if not displaced:
            raise SessionLimit(f"this node holds {MAX_SESSIONS} sessions, and all are in use")
        for _, session_id in displaced:
            self._drop(session_id, for_good=False, ended_by="displaced")

    def drop_idle(self) -> None:
        """End the sessions that were idle for too long."""
        oldest = self._clock_s() - IDLE_S
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
        """A session this node has not seen, opened on another or before a restart."""
        claims = self._verify(session_id)
        age_s = self.wall_s() - claims.issued_s
        if claims.principal != principal.id or claims.nonce in self._ended or age_s > LIFETIME_S:
            raise _unknown()
        caller = Caller(principal, claims.task_id, claims.request, claims.only_server, claims.mode)
        session = ClientSession(claims, CallerBinding(caller), self._clock_s())
        self._admit(session_id, session, is_new=False)
        return session

    def _verify(self, session_id: bytes) -> _SessionClaims:
        payload = self.signer.open(_PURPOSE, session_id) if len(session_id) <= MAX_ID_BYTES else None
        if payload is None:
            raise _unknown()
        return msgspec.json.decode(payload, type=_SessionClaims)


def _unknown() -> UnknownSession:
    return UnknownSession("no such session")
