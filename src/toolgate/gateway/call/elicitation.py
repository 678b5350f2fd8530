"""Input that a call needs from its client: what a server asks for, and approvals by the client's own user.

A stateless server responds with its questions, and gets the request again with the answers. A session-based
server asks while the call runs. A client that can be asked live is taken through either; for the others,
calls are parked. Only the response to an elicitation counts as an answer: nothing in the arguments of a call
does.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from toolgate.catalog.encoding import InputRequired
from toolgate.errors import (
    InputNotGiven,
    InputStateRefused,
    MissingCapability,
    ServerUnavailable,
    SessionLimit,
    ToolgateError,
)
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import UNREADABLE, encode_raw, escape_invisible, format_json
from toolgate.model.protocol import CAPABILITY_OF
from toolgate.registry.approvals import ApprovalVerdict
from toolgate.upstream.connection.contract import CALL_CEILING_S, ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import ServerResponse

MAX_ROUNDS: Final = 10  # how often a server may ask in one call: the default of the SDKs of clients
MAX_INPUTS: Final = 16  # questions in one round: more would not fit a dialog
UNSUPPORTED: Final = RpcResponse(
    error=b'{"code":-32601,"message":"the client of this request cannot do that"}'
)
"""The response to a server that asks for something its client did not announce."""
ELICIT: Final = "elicitation/create"
APPROVAL_TIMEOUT_S: Final = CALL_CEILING_S
"""How long a person may take while the call waits."""
_STATE_ONLY_WAIT_S: Final = 0.1
"""A server that asks nothing and only wants to be called again is not called at once."""
_MAX_QUOTED: Final = 200  # characters of a client's error message: a sentence or two

ElicitAction = Literal["accept", "decline", "cancel"]


class _InputRequest(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Elicitation(msgspec.Struct):
    mode: str = "form"


class _ElicitResult(msgspec.Struct):
    action: ElicitAction


_decode_request = msgspec.json.Decoder(_InputRequest).decode
_decode_capabilities = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode
_decode_result = msgspec.json.Decoder(_ElicitResult).decode


def can_respond(capabilities: bytes, method: str, params: bytes) -> bool:
    """Whether a client of these capabilities may be asked that."""
    name = CAPABILITY_OF.get(method)
    can = _decode_capabilities(capabilities)
    if name is None or name not in can:
        return False
    if name != "elicitation":
        return True
    try:
        mode = _decode_elicitation(params).mode
    except UNREADABLE:
        return False
    # Without modes, a client can do forms: they came first.
    return mode in (can[name].keys() or {"form"})


async def collect_inputs(client: ClientChannel, needed: InputRequired) -> Params:
    """Ask the client; the extra params of the next request. Raises InputNotGiven and ServerUnavailable."""
    questions = _parse_requests(needed)
    params: Params = {}
    if questions:
        params["inputResponses"] = encode_raw(await _request_all(client, questions))
    else:
        await asyncio.sleep(_STATE_ONLY_WAIT_S)
    if needed.request_state is not None:
        params["requestState"] = needed.request_state
    return params


def check_inputs(capabilities: bytes, needed: InputRequired) -> None:
    """Raises MissingCapability unless a client of these capabilities may be asked everything."""
    for one in _parse_requests(needed).values():
        if not can_respond(capabilities, one.method, bytes(one.params)):
            raise missing_capability(one.method, bytes(one.params))


def missing_capability(method: str, params: bytes) -> MissingCapability:
    """The error of a server that asks for something its client did not announce."""
    name = CAPABILITY_OF.get(method, method)
    is_page = name == "elicitation" and can_respond(b'{"elicitation":{"url":{}}}', method, params)
    return MissingCapability(
        f"the server needs a client that can do `{name}`",
        data={"requiredCapabilities": {name: {"url": {}} if is_page else {}}},
    )


def too_many_rounds() -> ServerUnavailable:
    return ServerUnavailable(f"the server asked for input more than {MAX_ROUNDS} times in one call")


async def _request_all(client: ClientChannel, questions: Mapping[str, _InputRequest]) -> Params:
    try:
        async with asyncio.timeout(CALL_CEILING_S), asyncio.TaskGroup() as tasks:
            running = {
                key: tasks.create_task(client.request(one.method, bytes(one.params)))
                for key, one in questions.items()
            }
    except TimeoutError as exc:
        raise InputNotGiven(f"no answer to the server's question within {CALL_CEILING_S:g} s") from exc
    answers: Params = {}
    for key, task in running.items():
        rpc = task.result()
        if rpc.result is None:
            reason = parse_error(rpc.error).message[:_MAX_QUOTED] or "no reason given"
            raise InputNotGiven(f"the client did not answer the server's question: {reason}")
        answers[key] = msgspec.Raw(rpc.result)
    return answers


def _parse_requests(needed: InputRequired) -> dict[str, _InputRequest]:
    if len(needed.input_requests) > MAX_INPUTS:
        raise ServerUnavailable(f"the server asks for more than {MAX_INPUTS} things at once")
    requests = {}
    for key, raw in needed.input_requests.items():
        try:
            request = requests[key] = _decode_request(raw)
            _decode_object(request.params)
        except UNREADABLE as exc:
            raise ServerUnavailable("the server asks for input in a way that cannot be read") from exc
        if request.method not in CAPABILITY_OF:
            raise ServerUnavailable(f"the server asks for `{request.method[:80]}`, which is not carried")
    return requests


class ApprovalElicitation(NamedTuple):
    """The question to a client that can only be asked by the response to its request."""

    elicitation: bytes
    """The params of the elicitation."""
    verdict: ApprovalVerdict
    """The verdict if the client does not ask its user."""


class ElicitedResponse(NamedTuple):
    """The answer of a client's user, and the verdict it answers to."""

    verdict: ApprovalVerdict
    action: ElicitAction


def encode_elicitation(request: ApprovalRequest, approval_id: str) -> bytes:
    """The question to a client's user, with everything that approvers see. There is no form to fill in."""
    lines = [
        f"May `{request.server_id}.{request.tool}` be called with these arguments?",
        "",
        format_json(request.arguments),
        "",
        f"Server: {request.server_id}",
        f"Tool: {request.tool}",
        *([f"Task: {request.task_id}"] if request.task_id else ()),
        f"Asked for by: {request.why}",
        f"Approval: {approval_id}",
    ]
    message = "\n".join(
        escape_invisible(line, lambda char: ascii(char)[1:-1]) for text in lines for line in text.split("\n")
    )
    return msgspec.json.encode({"message": message, "requestedSchema": {"type": "object", "properties": {}}})


def parse_action(raw: bytes | msgspec.Raw | None) -> ElicitAction:
    """The action of an elicitation result. An invalid one counts as a closed dialog."""
    try:
        return "cancel" if raw is None else _decode_result(raw).action
    except UNREADABLE:
        return "cancel"


async def elicit_approval(client: ClientChannel, elicitation: bytes, timeout_s: float) -> ElicitAction:
    try:
        async with asyncio.timeout(timeout_s):
            rpc = await client.request(ELICIT, elicitation)
    except TimeoutError:
        return "cancel"
    return parse_action(rpc.result)


MAX_PARKED: Final = 1_024  # calls on a node: each holds a task and a connection's state
MAX_PARKED_EACH: Final = 64  # calls of one principal: sixteen of them fill a node
MAX_PARKED_BYTES: Final = 64 * 1024 * 1024  # of their requests together: a parked call keeps its arguments
MAX_PARKED_BYTES_EACH: Final = 16 * 1024 * 1024  # of the requests of one principal: a quarter of all

Notify = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of a server, and the future that its answer goes into."""

    method: str
    params: bytes
    answer: asyncio.Future[RpcResponse]


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A parked call: it continues when the handle comes back with answers to these questions."""

    handle: str
    questions: Mapping[str, ServerQuestion]


@dataclass(eq=False, repr=False, slots=True)
class ParkableCall:
    """One call, and the `ClientChannel` that its server sees."""

    has_session: ClassVar[bool] = False

    principal_id: str
    capabilities: bytes
    log_level: str
    _: KW_ONLY
    credential: str
    """The credential that may continue the call: another token of the same subject may not."""
    size: int = 0
    """Of the request, in bytes."""
    elicited: ElicitedResponse | None = None
    """The answer of the client's user to our earlier question."""
    elicitation_due: ApprovalElicitation | None = field(default=None, init=False)
    """The question to the client's user, because of which the call was refused for now."""
    rounds: int = field(default=0, init=False)
    _questions: dict[str, ServerQuestion] = field(default_factory=dict, init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False)
    _listener: Notify | None = field(default=None, init=False)
    _woken: asyncio.Future[None] | None = field(default=None, init=False)
    _failure: ToolgateError | None = field(default=None, init=False)
    _task: asyncio.Task[ServerResponse] | None = field(default=None, init=False)

    def notify(self, method: str, params: bytes) -> None:
        if self._listener is not None:
            self._listener(method, params)

    async def request(self, method: str, params: bytes) -> RpcResponse:
        if method not in CAPABILITY_OF:
            return UNSUPPORTED
        if not can_respond(self.capabilities, method, params):
            self._failure = missing_capability(method, params)
            self.cancel()
            self._wake()
            return UNSUPPORTED
        answer: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        key = f"{CAPABILITY_OF[method]}-{next(self._numbers)}"
        self._questions[key] = ServerQuestion(method, params, answer)
        self._wake()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)

    def start(self, call: Coroutine[Any, Any, ServerResponse]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._on_done)

    async def wait_for_turn(self, listener: Notify) -> ServerResponse | Mapping[str, ServerQuestion]:
        """The response to the call, or the questions of its server. `listener` gets notifications meanwhile.

        Raises what the call raises. Cancelling this cancels the call.
        """
        assert self._task is not None  # started
        self._listener = listener
        try:
            while not (self._task.done() or self._questions or self._failure):
                self._woken = asyncio.get_running_loop().create_future()
                await self._woken
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._listener = self._woken = None
        if self._failure is not None:
            raise self._failure
        return self._task.result() if self._task.done() else dict(self._questions)

    def respond(self, responses: Mapping[str, msgspec.Raw]) -> None:
        """Pass on the client's answers. Unasked or repeated ones have no effect."""
        for key, response in responses.items():
            question = self._questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(RpcResponse(result=bytes(response)))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _on_done(self, task: asyncio.Task[ServerResponse]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: no one may come back for it
        self._wake()


class ParkedCalls:
    """The calls of a node that wait for input of a client that cannot be asked while they run.

    A session-based server asks in the middle of a call; a stateless client answers by sending its request
    again. So the call runs as its own task. When its server asks, it is parked under a handle, and the next
    request with the handle brings the answers. Only this node has a parked call, for a while; it takes no
    slot of its server. A handle works once, and only for the credential that began the call.
    """

    def __init__(self) -> None:
        self._parked: dict[str, tuple[ParkableCall, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    async def run(
        self, call: ParkableCall, work: Coroutine[Any, Any, ServerResponse], listener: Notify
    ) -> ServerResponse | PendingInput:
        call.start(work)
        return await self._wait(call, listener)

    async def resume(
        self, handle: str, credential: str, responses: Mapping[str, msgspec.Raw], listener: Notify
    ) -> ServerResponse | PendingInput:
        """Continue a parked call. Raises InputStateRefused for an invalid handle."""
        parked = self._parked.get(handle)
        if parked is None or parked[0].credential != credential:
            raise InputStateRefused(
                "no call waits for this input here",
                hint="it has ended, or another node has it: send the request again without `requestState`",
            )
        call = self._remove(handle)
        call.respond(responses)
        return await self._wait(call, listener)

    def close(self) -> None:
        for handle in tuple(self._parked):
            self._expire(handle)

    async def _wait(self, call: ParkableCall, listener: Notify) -> ServerResponse | PendingInput:
        turn = await call.wait_for_turn(listener)
        return turn if isinstance(turn, ServerResponse) else PendingInput(self._park(call), turn)

    def _park(self, call: ParkableCall) -> str:
        call.rounds += 1
        if call.rounds > MAX_ROUNDS:
            call.cancel()
            raise too_many_rounds()
        sizes = [one.size for one, _ in self._parked.values()]
        own_sizes = [one.size for one, _ in self._parked.values() if one.principal_id == call.principal_id]
        if (
            len(sizes) >= MAX_PARKED
            or len(own_sizes) >= MAX_PARKED_EACH
            or sum(sizes) + call.size > MAX_PARKED_BYTES
            or sum(own_sizes) + call.size > MAX_PARKED_BYTES_EACH
        ):
            call.cancel()
            raise SessionLimit("too many calls wait for input", hint="answer or give up some of them")
        handle = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(CALL_CEILING_S, self._expire, handle)
        self._parked[handle] = (call, timer)
        return handle

    def _expire(self, handle: str) -> None:
        self._remove(handle).cancel()

    def _remove(self, handle: str) -> ParkableCall:
        call, timer = self._parked.pop(handle)
        timer.cancel()
        return call
