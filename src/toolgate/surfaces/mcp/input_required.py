"""A client of the stateless era, as the server of one of its requests can reach it.

It hears of its request on the stream of the answer. It cannot be asked anything there: it answers by sending
its request again.

The `requestState` that clients of the stateless era hand back: ours, around what a server put into it.

A state is good for the credential (`fingerprint_of`), the request and the time it was made for, at any node.
Nothing in it is taken at its word before its seal is checked.

Requests of the stateless era whose server may want to know something first.

Such a client cannot be asked: it gets the questions as its answer, and sends its request again with what it
has to say. What has to be remembered until then travels with it, sealed; a call that a legacy server has not
ended yet waits, parked, on this node.
"""

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal

import msgspec

from toolgate.catalog.encoding import InputRequired, adapt_result
from toolgate.errors import (
    ApprovalRequired,
    InputStateRefused,
    InvalidParams,
    MissingCapability,
    ServerUnavailable,
)
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.call.elicitation import (
    ELICIT,
    MAX_INPUTS,
    MAX_ROUNDS,
    UNSUPPORTED,
    ApprovalElicitation,
    ElicitedAnswer,
    check_inputs,
    missing_capability,
    parse_action,
    too_many_rounds,
)
from toolgate.gateway.call.parked_calls import ParkableCall, ParkedCalls, PendingInput
from toolgate.model.json_text import UNREADABLE, Members, decode_members
from toolgate.model.protocol import CAPABILITY_OF, LOG_MESSAGE
from toolgate.registry.approvals.contract import ApprovalVerdict
from toolgate.surfaces.mcp.capabilities import is_severe_enough
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.responses import encode_notification
from toolgate.upstream.connection.contract import ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import ServerResponse


class StatelessClient:
    """Behind one request."""

    __slots__ = ("_exchange", "capabilities", "log_level", "missing", "principal_id")
    has_session: Final = False

    def __init__(self, exchange: McpExchange, capabilities: bytes, log_level: str) -> None:
        self._exchange = exchange
        self.principal_id = exchange.principal.id
        self.capabilities = capabilities
        self.log_level = log_level
        self.missing: MissingCapability | None = None
        """Why the request was broken off: its server wants what this client does not offer."""

    @property
    def credential(self) -> str:
        """With which it came: see `fingerprint_of`."""
        return fingerprint_of(self._exchange.principal)

    @property
    def supports_url_mode(self) -> bool:
        """Whether somebody can be sent to a web page."""
        return b'"url"' in self.capabilities

    def notify(self, method: str, params: bytes) -> None:
        if method == LOG_MESSAGE and not (self.log_level and is_severe_enough(params, self.log_level)):
            return
        if self._exchange.accepts_stream:
            self._exchange.responder.say(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> RpcResponse:
        if method in CAPABILITY_OF and self.missing is None:
            self.missing = missing_capability(method, params)
            self._exchange.responder.task.cancel()
        return UNSUPPORTED


STATE_LIFETIME_S: Final = 600
"""How long a person may take to answer."""
MAX_STATE_BYTES: Final = 256 * 1024
"""Of what a server puts into its state: it travels with every round."""

StateKind = Literal["server", "parked", "again", "approval"]
"""Around a server's own state; a handle to a parked call; nothing but that the request was sent before; what
approval its client was asked for."""

_STATE_PURPOSE: Final = b"requestState"
_ROUND_MEMBERS: Final = frozenset({"_meta", "inputResponses", "requestState"})
_decode_text = msgspec.json.Decoder(str).decode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


class SealedState(msgspec.Struct, array_like=True, frozen=True):
    """What was sealed."""

    kind: StateKind
    payload: str
    credential: str
    request: str
    expires_s: int
    rounds: int = 1
    """How often the client was asked, this time included."""


class StateSealer:
    """Seals states and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._signer = signer
        self._wall_s = wall_s

    def seal(self, kind: StateKind, payload: str, *, credential: str, request: str, rounds: int = 1) -> str:
        """A state for this credential's next round of this request. Raises ServerUnavailable if too long."""
        if len(payload) > MAX_STATE_BYTES:
            raise ServerUnavailable(f"the server's `requestState` is longer than {MAX_STATE_BYTES} bytes")
        expires_s = int(self._wall_s()) + STATE_LIFETIME_S
        state = SealedState(kind, payload, credential, request, expires_s, rounds)
        return self._signer.sign(_STATE_PURPOSE, msgspec.json.encode(state)).decode("ascii")

    def open(self, raw: msgspec.Raw, *, credential: str, request: str) -> SealedState:
        """The state as it was sealed. Raises InputStateRefused, which does not say what was wrong."""
        state = self._read(raw)
        if state is None or state.credential != credential or state.request != request:
            raise InputStateRefused("this `requestState` does not belong to this request")
        if state.expires_s < self._wall_s():
            raise InputStateRefused("this `requestState` has expired")
        return state

    def _read(self, raw: msgspec.Raw) -> SealedState | None:
        try:
            token = _decode_text(raw).encode("ascii")
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
        payload = self._signer.open(_STATE_PURPOSE, token)
        return None if payload is None else msgspec.json.decode(payload, type=SealedState)


def request_digest(method: str, params: Params, *, server_id: str) -> str:
    """Tells one request from another, and not one round of it from the next. Raises InvalidParams."""
    try:
        asked = {name: msgspec.json.decode(raw) for name, raw in params.items() if name not in _ROUND_MEMBERS}
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidParams("`params` cannot be read") from exc
    return hashlib.sha256(_encode_canonical([server_id, method, asked])).hexdigest()


APPROVAL: Final = "approval"
"""The key of the question whether a call may be made."""
URL_WANTED: Final = -32042
"""How a legacy server says that somebody has to visit a page before the call can be made."""

SendRequest = Callable[[ClientChannel], Coroutine[Any, Any, ServerResponse]]
"""Puts a request, as it now is, to its server for the client given."""
_encode = msgspec.json.encode


class _Pages(msgspec.Struct):
    elicitations: list[msgspec.Raw] = []


class StatelessRequest(msgspec.Struct):
    """One request, as its client sent it."""

    message: McpMessage
    client: StatelessClient
    ask: SendRequest
    server_of: Callable[[], str]
    """Where it goes as things are now. Raises what it is refused with."""
    rounds: int = 0
    """How often its client was asked before, as the state says that it brings."""

    @property
    def digest(self) -> str:
        """Tells it from any other request, and from the same one to another server. Raises as `server_of`."""
        return request_digest(self.message.method, self.message.params, server_id=self.server_of())


class RoundTrips:
    """Takes requests through as many rounds as they need."""

    def __init__(self, parking: ParkedCalls, seals: StateSealer) -> None:
        self._parking = parking
        self._seals = seals

    async def run(self, request: StatelessRequest) -> RpcResponse:
        """What to answer this round with. Raises what `request.ask` does, and InputStateRefused."""
        params = request.message.params
        state = params.pop("requestState", None)
        if state is None:
            came = await self._begin(request)
        else:
            # Decided anew, also where the call runs already.
            opened = self._seals.open(state, credential=request.client.credential, request=request.digest)
            request.rounds = opened.rounds
            came = await self._go_on(request, opened)
        if isinstance(came, ServerResponse):
            return self.finish(request, came)
        if isinstance(came, ApprovalElicitation):
            agree = {APPROVAL: _encode_input_request(ELICIT, came.elicitation)}
            return RpcResponse(
                result=self._require_input(request, agree, "approval", _encode(came.verdict).decode())
            )
        questions = {
            key: _encode_input_request(one.method, one.params) for key, one in came.questions.items()
        }
        return RpcResponse(result=self._require_input(request, questions, "parked", came.handle))

    def finish(self, request: StatelessRequest, answer: ServerResponse) -> RpcResponse:
        """What a server answered, as this client takes it: its questions under our seal.

        Raises MissingCapability where the client may not be asked, and ServerUnavailable.
        """
        reply = answer.reply
        if reply.members is None:
            return self._as_input_request(request, reply)
        try:
            result = adapt_result(
                reply.take_members(), upstream=answer.era, client="modern", method=request.message.method
            )
        except InputRequired as needed:
            result = self._seal_in(request, needed)
        return RpcResponse(result=result)

    async def _begin(
        self, request: StatelessRequest, agreement: ElicitedAnswer | None = None
    ) -> ServerResponse | PendingInput | ApprovalElicitation:
        client = request.client
        size = sum(map(len, request.message.params.values()))
        call = ParkableCall(
            client.principal_id, client.capabilities, client.log_level, size=size, agreement=agreement
        )
        call.credential = client.credential
        try:
            return await self._parking.run(call, request.ask(call), client.notify)
        except ApprovalRequired:
            if call.elicitation_due is None:
                raise
            return call.elicitation_due

    async def _go_on(
        self, request: StatelessRequest, state: SealedState
    ) -> ServerResponse | PendingInput | ApprovalElicitation:
        params = request.message.params
        if state.kind == "approval":
            responses = _parse_responses(params.pop("inputResponses", None))
            asked = msgspec.json.decode(state.payload, type=ApprovalVerdict)
            return await self._begin(request, ElicitedAnswer(asked, parse_action(responses.get(APPROVAL))))
        if state.kind == "parked":
            responses = _parse_responses(params.get("inputResponses"))
            return await self._parking.resume(
                state.payload, request.client.credential, responses, request.client.notify
            )
        if state.kind == "again":
            params.pop("inputResponses", None)
        else:
            params["requestState"] = msgspec.Raw(_encode(state.payload))
            request.message.round = state.rounds
        return await self._begin(request)

    def _seal_in(self, request: StatelessRequest, needed: InputRequired) -> bytes:
        """The server's own result, with its state in our seal. One without a state needs none from us."""
        check_inputs(request.client.capabilities, needed)
        if needed.request_state is None:
            return needed.result
        members = decode_members(needed.result)
        sealed = self._seal(request, "server", _decode_text(needed.request_state))
        return _encode({**members, "requestState": sealed})

    def _as_input_request(self, request: StatelessRequest, reply: RpcResponse) -> RpcResponse:
        """An error that only says what somebody has to do first is put as a question."""
        error = parse_error(reply.error)
        if error.code != URL_WANTED:
            return reply
        if not request.client.supports_url_mode:
            raise missing_capability("elicitation/create", b'{"mode":"url"}')
        try:
            pages = msgspec.json.decode(error.data, type=_Pages).elicitations
        except UNREADABLE:
            return reply
        if not (0 < len(pages) <= MAX_INPUTS and all(bytes(page)[:1] == b"{" for page in pages)):
            return reply
        questions = {
            f"elicitation-{number}": _encode_input_request("elicitation/create", bytes(page))
            for number, page in enumerate(pages, start=1)
        }
        return RpcResponse(result=self._require_input(request, questions, "again", ""))

    def _require_input(
        self, request: StatelessRequest, questions: Mapping[str, msgspec.Raw], kind: StateKind, payload: str
    ) -> bytes:
        state = self._seal(request, kind, payload)
        return _encode({"resultType": "input_required", "inputRequests": questions, "requestState": state})

    def _seal(self, request: StatelessRequest, kind: StateKind, payload: str) -> str:
        if request.rounds >= MAX_ROUNDS:
            raise too_many_rounds()
        return self._seals.seal(
            kind,
            payload,
            credential=request.client.credential,
            request=request.digest,
            # Whether the call may be made is asked before it is, so it is no round of its own.
            rounds=request.rounds + (kind != "approval"),
        )


def _encode_input_request(method: str, params: bytes) -> msgspec.Raw:
    return msgspec.Raw(_encode({"method": method, "params": msgspec.Raw(params)}))


def _parse_responses(raw: msgspec.Raw | None) -> Members:
    try:
        responses = {} if raw is None else decode_members(raw)
    except msgspec.DecodeError as exc:
        raise InvalidParams("`inputResponses` must be an object") from exc
    for key, response in responses.items():
        if bytes(response)[:1] != b"{":
            raise InvalidParams(f"`inputResponses` has no object for `{key[:80]}`")
    return responses
