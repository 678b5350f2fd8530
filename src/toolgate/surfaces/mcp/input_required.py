"""Requests of the stateless era whose server may want to know something first.

Such a client cannot be asked: it gets the questions as its answer, and sends its request again with what it
has to say. What has to be remembered until then travels with it, sealed; a call that a legacy server has not
ended yet waits, parked, on this node.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from toolgate.catalog.encoding import InputNeeded, adapt_result
from toolgate.errors import ApprovalRequired, InvalidParams
from toolgate.gateway.call.elicitation import (
    MAX_INPUTS,
    MAX_ROUNDS,
    check_inputs,
    missing_capability,
    too_many_rounds,
)
from toolgate.gateway.call.parked_calls import ParkableCall, Parking, Waiting
from toolgate.gateway.in_place import ELICIT, Agreement, Asking, parse_action
from toolgate.model.raw import UNREADABLE, Members, decode_members
from toolgate.registry.approvals.contract import Verdict
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.surfaces.mcp.modern_client import ModernClient
from toolgate.surfaces.mcp.seals import Kind, Seals, State, request_digest
from toolgate.upstream.connection.contract import ClientSide, Reply
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import Answer

APPROVAL: Final = "approval"
"""The key of the question whether a call may be made."""
URL_WANTED: Final = -32042
"""How a legacy server says that somebody has to visit a page before the call can be made."""

Ask = Callable[[ClientSide], Coroutine[Any, Any, Answer]]
"""Puts a request, as it now is, to its server for the client given."""

_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode


class _Pages(msgspec.Struct):
    elicitations: list[msgspec.Raw] = []


class ModernRequest(msgspec.Struct):
    """One request, as its client sent it."""

    message: Message
    client: ModernClient
    ask: Ask
    server_of: Callable[[], str]
    """Where it goes as things are now. Raises what it is refused with."""
    rounds: int = 0
    """How often its client was asked before, as the state says that it brings."""

    @property
    def digest(self) -> str:
        """Tells it from any other request, and from the same one to another server. Raises as `server_of`."""
        return request_digest(self.message.method, self.message.params, server_id=self.server_of())


class Rounds:
    """Takes requests through as many rounds as they need."""

    def __init__(self, parking: Parking, seals: Seals) -> None:
        self._parking = parking
        self._seals = seals

    async def run(self, request: ModernRequest) -> Reply:
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
        if isinstance(came, Answer):
            return self.conclude(request, came)
        if isinstance(came, Asking):
            agree = {APPROVAL: _question(ELICIT, came.elicitation)}
            return Reply(result=self._ask_back(request, agree, "approval", _encode(came.verdict).decode()))
        questions = {key: _question(one.method, one.params) for key, one in came.questions.items()}
        return Reply(result=self._ask_back(request, questions, "parked", came.handle))

    def conclude(self, request: ModernRequest, answer: Answer) -> Reply:
        """What a server answered, as this client takes it: its questions under our seal.

        Raises MissingCapability where the client may not be asked, and ServerUnavailable.
        """
        reply = answer.reply
        if reply.members is None:
            return self._as_question(request, reply)
        try:
            result = adapt_result(
                reply.take_members(), upstream=answer.era, client="modern", method=request.message.method
            )
        except InputNeeded as needed:
            result = self._seal_in(request, needed)
        return Reply(result=result)

    async def _begin(
        self, request: ModernRequest, agreement: Agreement | None = None
    ) -> Answer | Waiting | Asking:
        client = request.client
        size = sum(map(len, request.message.params.values()))
        call = ParkableCall(
            client.principal_id, client.capabilities, client.log_level, size=size, agreement=agreement
        )
        call.credential = client.credential
        try:
            return await self._parking.run(call, request.ask(call), client.notify)
        except ApprovalRequired:
            if call.asking is None:
                raise
            return call.asking

    async def _go_on(self, request: ModernRequest, state: State) -> Answer | Waiting | Asking:
        params = request.message.params
        if state.kind == "approval":
            responses = _parse_responses(params.pop("inputResponses", None))
            asked = msgspec.json.decode(state.payload, type=Verdict)
            return await self._begin(request, Agreement(asked, parse_action(responses.get(APPROVAL))))
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

    def _seal_in(self, request: ModernRequest, needed: InputNeeded) -> bytes:
        """The server's own result, with its state in our seal. One without a state needs none from us."""
        check_inputs(request.client.capabilities, needed)
        if needed.request_state is None:
            return needed.result
        members = decode_members(needed.result)
        sealed = self._seal(request, "server", _decode_text(needed.request_state))
        return _encode({**members, "requestState": sealed})

    def _as_question(self, request: ModernRequest, reply: Reply) -> Reply:
        """An error that only says what somebody has to do first is put as a question."""
        error = parse_error(reply.error)
        if error.code != URL_WANTED:
            return reply
        if not request.client.can_visit:
            raise missing_capability("elicitation/create", b'{"mode":"url"}')
        try:
            pages = msgspec.json.decode(error.data, type=_Pages).elicitations
        except UNREADABLE:
            return reply
        if not (0 < len(pages) <= MAX_INPUTS and all(bytes(page)[:1] == b"{" for page in pages)):
            return reply
        questions = {
            f"elicitation-{number}": _question("elicitation/create", bytes(page))
            for number, page in enumerate(pages, start=1)
        }
        return Reply(result=self._ask_back(request, questions, "again", ""))

    def _ask_back(
        self, request: ModernRequest, questions: Mapping[str, msgspec.Raw], kind: Kind, payload: str
    ) -> bytes:
        state = self._seal(request, kind, payload)
        return _encode({"resultType": "input_required", "inputRequests": questions, "requestState": state})

    def _seal(self, request: ModernRequest, kind: Kind, payload: str) -> str:
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


def _question(method: str, params: bytes) -> msgspec.Raw:
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
