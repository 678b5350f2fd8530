"""Multi-round-trip requests of the stateless revision: a server may require input before it responds.

The gateway cannot send requests to a stateless client. The client gets them as a result with `requestState`,
and sends its request again with the responses. No state is used before its seal is verified.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from toolgate import errors
from toolgate.catalog.encoding import InputRequired, adapt_result
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.call import elicitation
from toolgate.model.json_text import UNREADABLE, Members, decode_members
from toolgate.model.protocol import CAPABILITY_OF, LOG_MESSAGE
from toolgate.registry.approvals import ApprovalVerdict
from toolgate.surfaces.mcp.dispatch import RequestDispatcher, is_severe_enough
from toolgate.surfaces.mcp.exchange import CallerBinding, McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.responses import encode_notification
from toolgate.upstream.connection.contract import Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import ServerResponse


class ClientEnvelope(NamedTuple):
    """What a request declares about its client."""

    capabilities: bytes
    """Those that the gateway carries."""
    log_level: str


class StatelessRequest:
    """One request of a stateless client, and the channel from its server to that client.

    Notifications go on the stream of the response.
    """

    has_session: Final = False

    def __init__(
        self,
        exchange: McpExchange,
        message: McpMessage,
        envelope: ClientEnvelope,
        binding: CallerBinding,
        dispatcher: RequestDispatcher,
    ) -> None:
        self.exchange = exchange
        self.message = message
        self.binding = binding
        self.dispatcher = dispatcher
        self.principal_id = exchange.principal.id
        self.capabilities, self.log_level = envelope
        self.missing: errors.MissingCapability | None = None
        """Why the request was aborted: its server needs a capability that the client does not have."""
        self.rounds = 0
        """How often the server required input before, according to the state in the request."""

    @property
    def credential(self) -> str:
        """The fingerprint of the caller's credential."""
        return fingerprint_of(self.exchange.principal)

    @property
    def digest(self) -> str:
        """What its state is bound to: the request and its server as of now. Raises as `server_of` does."""
        server_id = self.dispatcher.server_of(self.message, self.binding)
        return request_digest(self.message.method, self.message.params, server_id=server_id)

    def notify(self, method: str, params: bytes) -> None:
        if method == LOG_MESSAGE and not (self.log_level and is_severe_enough(params, self.log_level)):
            return
        if self.exchange.accepts_stream:
            self.exchange.responder.send_message(encode_notification(method, params))

    async def request(self, method: str, params: bytes) -> RpcResponse:
        if method in CAPABILITY_OF and self.missing is None:
            self.missing = elicitation.missing_capability(method, params)
            self.exchange.responder.task.cancel()
        return elicitation.UNSUPPORTED


STATE_LIFETIME_S: Final = 600  # how long the user of the client may take to respond
MAX_STATE_BYTES: Final = 256 * 1024  # of a server's own state, which travels with every round

StateKind = Literal["server", "parked", "again", "approval"]
"""What the payload is: a server's own state; a handle to a parked call; nothing, the request is sent again;
the approval that the client elicits."""

_STATE_PURPOSE: Final = b"requestState"
_ROUND_MEMBERS: Final = frozenset({"_meta", "inputResponses", "requestState"})
_decode_text = msgspec.json.Decoder(str).decode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


class SealedState(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a `requestState`."""

    kind: StateKind
    payload: str
    credential: str
    request: str
    expires_s: int
    rounds: int = 1
    """How often input was required, this time included."""


class StateSealer:
    """Seals states and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._signer = signer
        self._wall_s = wall_s

    def seal(self, kind: StateKind, payload: str, *, credential: str, request: str, rounds: int = 1) -> str:
        """A state for the next round of a request. Raises ServerUnavailable if the payload is too long."""
        if len(payload) > MAX_STATE_BYTES:
            raise errors.ServerUnavailable(
                f"the server's `requestState` is longer than {MAX_STATE_BYTES} bytes"
            )
        expires_s = int(self._wall_s()) + STATE_LIFETIME_S
        state = SealedState(kind, payload, credential, request, expires_s, rounds)
        return self._signer.sign(_STATE_PURPOSE, msgspec.json.encode(state)).decode("ascii")

    def open(self, raw: msgspec.Raw, *, credential: str, request: str) -> SealedState:
        """The state as it was sealed. Raises InputStateRefused, which does not reveal what is wrong."""
        try:
            payload = self._signer.open(_STATE_PURPOSE, _decode_text(raw).encode("ascii"))
        except (msgspec.DecodeError, UnicodeEncodeError):
            payload = None
        state = None if payload is None else msgspec.json.decode(payload, type=SealedState)
        if state is None or state.credential != credential or state.request != request:
            raise errors.InputStateRefused("this `requestState` does not belong to this request")
        if state.expires_s < self._wall_s():
            raise errors.InputStateRefused("this `requestState` has expired")
        return state


def request_digest(method: str, params: Params, *, server_id: str) -> str:
    """A digest that all rounds of a request share, and no other request has. Raises InvalidParams."""
    try:
        members = {
            name: msgspec.json.decode(raw) for name, raw in params.items() if name not in _ROUND_MEMBERS
        }
    except (msgspec.DecodeError, RecursionError) as exc:
        raise errors.InvalidParams("`params` cannot be read") from exc
    return hashlib.sha256(_encode_canonical([server_id, method, members])).hexdigest()


APPROVAL: Final = "approval"  # the key of the input request for an approval
URL_ELICITATION_REQUIRED: Final = -32042
"""The error by which a session-based server requires that a user visits a URL before the call."""

_encode = msgspec.json.encode


class _Pages(msgspec.Struct):
    elicitations: list[msgspec.Raw] = []


class RoundTrips:
    """Serves requests that take several rounds.

    The state between rounds travels with the client, sealed: it is valid for one credential and request, on
    any node. A call that a session-based server has not completed is parked on this node.
    """

    def __init__(self, parking: elicitation.ParkedCalls, seals: StateSealer) -> None:
        self._parking = parking
        self._seals = seals

    async def run(self, request: StatelessRequest) -> RpcResponse:
        """The response of this round. Raises as the call to its server does, and InputStateRefused."""
        params = request.message.params
        state = params.pop("requestState", None)
        if state is None:
            outcome = await self._begin(request)
        else:
            # Policy decides again, even if the call is already running.
            opened = self._seals.open(state, credential=request.credential, request=request.digest)
            request.rounds = opened.rounds
            outcome = await self._resume(request, opened)
        if isinstance(outcome, ServerResponse):
            return self.finish(request, outcome)
        if isinstance(outcome, elicitation.ApprovalElicitation):
            inputs = {APPROVAL: _encode_input_request(elicitation.ELICIT, outcome.elicitation)}
            return self._require_input(request, inputs, "approval", _encode(outcome.verdict).decode())
        inputs = {key: _encode_input_request(one.method, one.params) for key, one in outcome.requests.items()}
        return self._require_input(request, inputs, "parked", outcome.handle)

    def finish(self, request: StatelessRequest, response: ServerResponse) -> RpcResponse:
        """A server's response, adapted to this revision, with its state sealed.

        Raises MissingCapability if the client cannot give the required input, and ServerUnavailable.
        """
        rpc = response.rpc
        if rpc.members is None:
            return self._as_input_request(request, rpc)
        try:
            result = adapt_result(
                rpc.take_members(), upstream=response.revision, client="modern", method=request.message.method
            )
        except InputRequired as needed:
            elicitation.check_inputs(request.capabilities, needed)
            result = needed.result
            if needed.request_state is not None:  # a result without a state needs no seal
                sealed = self._seal(request, "server", _decode_text(needed.request_state))
                result = _encode({**decode_members(result), "requestState": sealed})
        return RpcResponse(result=result)

    async def _begin(
        self, request: StatelessRequest, elicited: elicitation.ElicitedResponse | None = None
    ) -> ServerResponse | elicitation.PendingInput | elicitation.ApprovalElicitation:
        size = sum(map(len, request.message.params.values()))
        call = elicitation.ParkableCall(
            request.principal_id,
            request.capabilities,
            request.log_level,
            size=size,
            elicited=elicited,
            credential=request.credential,
        )
        try:
            pending = request.dispatcher.request(request.message, request.binding, call)
            return await self._parking.run(call, pending, request.notify)
        except errors.ApprovalRequired:
            if call.elicitation_due is None:
                raise
            return call.elicitation_due

    async def _resume(
        self, request: StatelessRequest, state: SealedState
    ) -> ServerResponse | elicitation.PendingInput | elicitation.ApprovalElicitation:
        params = request.message.params
        if state.kind == "approval":
            responses = _parse_responses(params.pop("inputResponses", None))
            verdict = msgspec.json.decode(state.payload, type=ApprovalVerdict)
            action = elicitation.parse_action(responses.get(APPROVAL))
            return await self._begin(request, elicitation.ElicitedResponse(verdict, action))
        if state.kind == "parked":
            responses = _parse_responses(params.get("inputResponses"))
            return await self._parking.resume(state.payload, request.credential, responses, request.notify)
        if state.kind == "again":
            params.pop("inputResponses", None)
        else:
            params["requestState"] = msgspec.Raw(_encode(state.payload))
            request.message.round = state.rounds
        return await self._begin(request)

    def _as_input_request(self, request: StatelessRequest, rpc: RpcResponse) -> RpcResponse:
        """An error that requires a URL visit, as an input request; any other error unchanged."""
        error = parse_error(rpc.error)
        if error.code != URL_ELICITATION_REQUIRED:
            return rpc
        if b'"url"' not in request.capabilities:
            raise elicitation.missing_capability("elicitation/create", b'{"mode":"url"}')
        try:
            pages = msgspec.json.decode(error.data, type=_Pages).elicitations
        except UNREADABLE:
            return rpc
        if not (0 < len(pages) <= elicitation.MAX_INPUTS and all(bytes(page)[:1] == b"{" for page in pages)):
            return rpc
        inputs = {
            f"elicitation-{number}": _encode_input_request("elicitation/create", bytes(page))
            for number, page in enumerate(pages, start=1)
        }
        return self._require_input(request, inputs, "again", "")

    def _require_input(
        self, request: StatelessRequest, inputs: Mapping[str, msgspec.Raw], kind: StateKind, payload: str
    ) -> RpcResponse:
        state = self._seal(request, kind, payload)
        result = {"resultType": "input_required", "inputRequests": inputs, "requestState": state}
        return RpcResponse(result=_encode(result))

    def _seal(self, request: StatelessRequest, kind: StateKind, payload: str) -> str:
        if request.rounds >= elicitation.MAX_ROUNDS:
            raise elicitation.too_many_rounds()
        return self._seals.seal(
            kind,
            payload,
            credential=request.credential,
            request=request.digest,
            # An approval precedes the call, so it is not one of its rounds.
            rounds=request.rounds + (kind != "approval"),
        )


def _encode_input_request(method: str, params: bytes) -> msgspec.Raw:
    return msgspec.Raw(_encode({"method": method, "params": msgspec.Raw(params)}))


def _parse_responses(raw: msgspec.Raw | None) -> Members:
    try:
        responses = {} if raw is None else decode_members(raw)
    except msgspec.DecodeError as exc:
        raise errors.InvalidParams("`inputResponses` must be an object") from exc
    for key, response in responses.items():
        if bytes(response)[:1] != b"{":
            raise errors.InvalidParams(f"`inputResponses` has no object for `{key[:80]}`")
    return responses
