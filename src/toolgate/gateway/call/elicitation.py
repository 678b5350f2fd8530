"""Input that a call needs from its client: what a server asks for, and approvals by the client's own user.

A stateless server responds with its questions, and gets the request again with the answers. A session-based
server asks while the call runs. A client that can be asked live is taken through either here; see
`parked_calls` for the others. Only the response to an elicitation counts as an answer: nothing in the
arguments of a call does.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from toolgate.catalog.encoding import InputRequired
from toolgate.errors import InputNotGiven, MissingCapability, ServerUnavailable
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import UNREADABLE, escape_invisible, format_json
from toolgate.model.protocol import CAPABILITY_OF
from toolgate.registry.approvals.contract import ApprovalVerdict
from toolgate.upstream.connection.contract import CALL_CEILING_S, ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error

MAX_ROUNDS: Final = 10
"""How often a server may ask in one call: the default of the SDKs of clients."""
MAX_INPUTS: Final = 16
"""Questions in one round: more would not fit a dialog."""
UNSUPPORTED: Final = RpcResponse(
    error=b'{"code":-32601,"message":"the client of this request cannot do that"}'
)
"""The response to a server that asks for something its client did not announce."""
ELICIT: Final = "elicitation/create"
APPROVAL_TIMEOUT_S: Final = CALL_CEILING_S
"""How long a person may take while the call waits."""
_STATE_ONLY_WAIT_S: Final = 0.1
"""A server that asks nothing and only wants to be called again is not called at once."""
_MAX_QUOTED: Final = 200

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


# What servers ask


def can_answer(capabilities: bytes, method: str, params: bytes) -> bool:
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
        params["inputResponses"] = msgspec.Raw(msgspec.json.encode(await _ask_all(client, questions)))
    else:
        await asyncio.sleep(_STATE_ONLY_WAIT_S)
    if needed.request_state is not None:
        params["requestState"] = needed.request_state
    return params


def check_inputs(capabilities: bytes, needed: InputRequired) -> None:
    """Raises MissingCapability unless a client of these capabilities may be asked everything."""
    for one in _parse_requests(needed).values():
        if not can_answer(capabilities, one.method, bytes(one.params)):
            raise missing_capability(one.method, bytes(one.params))


def missing_capability(method: str, params: bytes) -> MissingCapability:
    """The error of a server that asks for something its client did not announce."""
    name = CAPABILITY_OF.get(method, method)
    is_page = name == "elicitation" and can_answer(b'{"elicitation":{"url":{}}}', method, params)
    return MissingCapability(
        f"the server needs a client that can do `{name}`",
        data={"requiredCapabilities": {name: {"url": {}} if is_page else {}}},
    )


def too_many_rounds() -> ServerUnavailable:
    """The error of a server that keeps asking."""
    return ServerUnavailable(f"the server asked for input more than {MAX_ROUNDS} times in one call")


async def _ask_all(client: ClientChannel, questions: Mapping[str, _InputRequest]) -> Params:
    try:
        async with asyncio.timeout(CALL_CEILING_S), asyncio.TaskGroup() as tasks:
            running = {
                key: tasks.create_task(client.ask(one.method, bytes(one.params)))
                for key, one in questions.items()
            }
    except TimeoutError as exc:
        raise InputNotGiven(f"no answer to the server's question within {CALL_CEILING_S:g} s") from exc
    answers: Params = {}
    for key, task in running.items():
        reply = task.result()
        if reply.result is None:
            reason = parse_error(reply.error).message[:_MAX_QUOTED] or "no reason given"
            raise InputNotGiven(f"the client did not answer the server's question: {reason}")
        answers[key] = msgspec.Raw(reply.result)
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


# Approval by the client's user


class ApprovalElicitation(NamedTuple):
    """The question to a client that can only be asked by the response to its request."""

    elicitation: bytes
    """The params of the elicitation."""
    verdict: ApprovalVerdict
    """The verdict if the client does not ask its user."""


class ElicitedAnswer(NamedTuple):
    """The answer of a client's user, and the verdict it answers to."""

    verdict: ApprovalVerdict
    action: ElicitAction


def can_elicit(client: ClientChannel) -> bool:
    """Whether the client says that it can ask its user."""
    return client.capabilities != b"{}" and can_answer(client.capabilities, ELICIT, b"{}")


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


async def elicit_approval(client: ClientChannel, elicitation: bytes) -> ElicitAction:
    """Ask the user of a client that can be asked while its call runs."""
    try:
        async with asyncio.timeout(APPROVAL_TIMEOUT_S):
            reply = await client.ask(ELICIT, elicitation)
    except TimeoutError:
        return "cancel"
    return parse_action(reply.result)
