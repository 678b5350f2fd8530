"""Input that a call needs from its client: requests of its server, and approvals by the client's user.

A stateless server returns its input requests as a result, and gets the call again with the responses. A
session-based server sends requests while the call runs. A client with a stream gets either kind of request
live; for other clients, the call is parked. Only the response to an elicitation decides an approval: the
arguments of a call never do.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from toolgate import errors
from toolgate.catalog.encoding import InputRequired
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import UNREADABLE, decode_members, encode_raw, escape_invisible, format_json
from toolgate.model.protocol import CAPABILITY_OF
from toolgate.registry.approvals import ApprovalVerdict
from toolgate.upstream.connection.contract import CALL_CEILING_S, ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import ServerResponse

MAX_ROUNDS: Final = 10  # how often a server may require input in one call: the default of client SDKs
MAX_INPUTS: Final = 16  # input requests in one round: more would not fit a dialog
UNSUPPORTED: Final = RpcResponse(
    error=b'{"code":-32601,"message":"the client of this request does not support this method"}'
)
"""The response to a server that requests something its client did not declare."""
ELICIT: Final = "elicitation/create"
APPROVAL_TIMEOUT_S: Final = CALL_CEILING_S
"""How long a person may take while the call waits."""
_STATE_ONLY_WAIT_S: Final = 0.1
"""The pause before the call is repeated for a server that requires no input, only the repetition."""
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
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode
_decode_result = msgspec.json.Decoder(_ElicitResult).decode


def can_respond(capabilities: bytes, method: str, params: bytes) -> bool:
    """Whether a client with these capabilities supports the request."""
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
    # A client that declares no modes supports forms: earlier revisions had nothing else.
    return mode in (can[name].keys() or {"form"})


async def collect_inputs(client: ClientChannel, needed: InputRequired) -> Params:
    """Request the input from the client. Returns the extra params of the repeated call.

    Raises InputNotGiven and ServerUnavailable.
    """
    requests = _parse_requests(needed)
    params: Params = {}
    if requests:
        params["inputResponses"] = encode_raw(await _request_all(client, requests))
    else:
        await asyncio.sleep(_STATE_ONLY_WAIT_S)
    if needed.request_state is not None:
        params["requestState"] = needed.request_state
    return params


def check_inputs(capabilities: bytes, needed: InputRequired) -> None:
    """Raises MissingCapability unless a client with these capabilities supports all input requests."""
    for one in _parse_requests(needed).values():
        if not can_respond(capabilities, one.method, bytes(one.params)):
            raise missing_capability(one.method, bytes(one.params))


def missing_capability(method: str, params: bytes) -> errors.MissingCapability:
    """The error for a server that requests something its client did not declare."""
    name = CAPABILITY_OF.get(method, method)
    is_page = name == "elicitation" and can_respond(b'{"elicitation":{"url":{}}}', method, params)
    return errors.MissingCapability(
        f"the server requires a client with the capability `{name}`",
        data={"requiredCapabilities": {name: {"url": {}} if is_page else {}}},
    )


def too_many_rounds() -> errors.ServerUnavailable:
    return errors.ServerUnavailable(f"the server required input more than {MAX_ROUNDS} times in one call")


async def _request_all(client: ClientChannel, requests: Mapping[str, _InputRequest]) -> Params:
    try:
        async with asyncio.timeout(CALL_CEILING_S), asyncio.TaskGroup() as tasks:
            running = {
                key: tasks.create_task(client.request(one.method, bytes(one.params)))
                for key, one in requests.items()
            }
    except TimeoutError as exc:
        raise errors.InputNotGiven(
            f"the client did not respond to the server's input request within {CALL_CEILING_S:g} s"
        ) from exc
    responses: Params = {}
    for key, task in running.items():
        rpc = task.result()
        if rpc.result is None:
            reason = parse_error(rpc.error).message[:_MAX_QUOTED] or "no reason given"
            raise errors.InputNotGiven(f"the client rejected the server's input request: {reason}")
        responses[key] = msgspec.Raw(rpc.result)
    return responses


def _parse_requests(needed: InputRequired) -> dict[str, _InputRequest]:
    if len(needed.input_requests) > MAX_INPUTS:
        raise errors.ServerUnavailable(f"the server sent more than {MAX_INPUTS} input requests at once")
    requests = {}
    for key, raw in needed.input_requests.items():
        try:
            request = requests[key] = _decode_request(raw)
            decode_members(request.params)
        except UNREADABLE as exc:
            raise errors.ServerUnavailable("the server sent an invalid input request") from exc
        if request.method not in CAPABILITY_OF:
            raise errors.ServerUnavailable(
                f"the server sent an input request with the unsupported method `{request.method[:80]}`"
            )
    return requests


class ApprovalElicitation(NamedTuple):
    """An approval request for a client that gets it as the result of its call."""

    elicitation: bytes
    """The params of the elicitation."""
    verdict: ApprovalVerdict
    """The verdict if the client does not return a decision."""


class ElicitedResponse(NamedTuple):
    """The response of a client's user, and the verdict that it replaces."""

    verdict: ApprovalVerdict
    action: ElicitAction


def encode_elicitation(request: ApprovalRequest, approval_id: str) -> bytes:
    """Encode an elicitation with everything that approvers see, and with an empty form."""
    lines = [
        f"Allow the call of `{request.server_id}.{request.tool}` with these arguments?",
        "",
        format_json(request.arguments),
        "",
        f"Server: {request.server_id}",
        f"Tool: {request.tool}",
        *([f"Task: {request.task_id}"] if request.task_id else ()),
        f"Required by: {request.why}",
        f"Approval: {approval_id}",
    ]
    message = "\n".join(
        escape_invisible(line, lambda char: ascii(char)[1:-1]) for text in lines for line in text.split("\n")
    )
    return msgspec.json.encode({"message": message, "requestedSchema": {"type": "object", "properties": {}}})


def parse_action(raw: bytes | msgspec.Raw | None) -> ElicitAction:
    """The action of an elicitation result. An invalid result counts as `cancel`."""
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
class ServerRequest:
    """A server's request to the client, and the future that gets the response."""

    method: str
    params: bytes
    response: asyncio.Future[RpcResponse]


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A parked call: it continues when the client sends the handle with responses to these requests."""

    handle: str
    requests: Mapping[str, ServerRequest]


@dataclass(eq=False, repr=False, slots=True)
class ParkableCall:
    """One call, and the `ClientChannel` that its server sees."""

    has_session: ClassVar[bool] = False

    principal_id: str
    capabilities: bytes
    log_level: str
    _: KW_ONLY
    credential: str
    """The only credential that may continue the call: another token of the same subject may not."""
    size: int = 0
    """Size of the request in bytes."""
    elicited: ElicitedResponse | None = None
    """The user's response to the approval that the gateway elicited earlier."""
    elicitation_due: ApprovalElicitation | None = field(default=None, init=False)
    """The approval to elicit from the client's user, if the call needs one first."""
    rounds: int = field(default=0, init=False)
    _requests: dict[str, ServerRequest] = field(default_factory=dict, init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False)
    _listener: Notify | None = field(default=None, init=False)
    _woken: asyncio.Future[None] | None = field(default=None, init=False)
    _failure: errors.ToolgateError | None = field(default=None, init=False)
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
        response: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        key = f"{CAPABILITY_OF[method]}-{next(self._numbers)}"
        self._requests[key] = ServerRequest(method, params, response)
        self._wake()
        try:
            return await response
        finally:
            self._requests.pop(key, None)

    def start(self, call: Coroutine[Any, Any, ServerResponse]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._on_done)

    async def wait_for_turn(self, listener: Notify) -> ServerResponse | Mapping[str, ServerRequest]:
        """Wait for the result of the call or for requests of its server. `listener` gets notifications.

        Raises as the call. Cancelling this cancels the call.
        """
        assert self._task is not None  # started
        self._listener = listener
        try:
            while not (self._task.done() or self._requests or self._failure):
                self._woken = asyncio.get_running_loop().create_future()
                await self._woken
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._listener = self._woken = None
        if self._failure is not None:
            raise self._failure
        return self._task.result() if self._task.done() else dict(self._requests)

    def respond(self, responses: Mapping[str, msgspec.Raw]) -> None:
        """Pass the client's responses to the server. Unrequested or repeated ones have no effect."""
        for key, response in responses.items():
            request = self._requests.pop(key, None)
            if request is not None and not request.response.done():
                request.response.set_result(RpcResponse(result=bytes(response)))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _on_done(self, task: asyncio.Task[ServerResponse]) -> None:
        if not task.cancelled():
            task.exception()  # marks it retrieved: the client may never continue the call
        self._wake()


class ParkedCalls:
    """The calls of a node that wait for input from a stateless client.

    A session-based server sends requests during a call; a stateless client responds by sending its request
    again. So the call runs as its own task. When its server requests input, the call is parked under a
    handle, and the next request with the handle brings the responses. A parked call exists on this node only,
    until it expires, and takes no slot of its server. A handle works once, and only for the credential that
    began the call.
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
            raise errors.InputStateRefused(
                "this node has no parked call that waits for this input",
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
            raise errors.SessionLimit(
                "too many calls are waiting for input",
                hint="respond to pending input requests or cancel them",
            )
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
