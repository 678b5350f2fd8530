"""Input a server wants in the middle of a call, and the two ways a client can be asked for it.

A modern server answers with what it wants to know, and is asked again with the answers. A legacy server asks
while the call runs. Here stand the words both have in common, and how a client that can be asked live is
taken through a modern server's questions.

Asking the person at the client that calls, right there, whether the call may be made.

A client that can be asked while its call runs is asked at once. One of the stateless era is asked by its
answer, and says what it has to say with its next request, at any node. Only what the protocol carries as the
answer to an elicitation counts: nothing that stands in the arguments of a call does.
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
"""So often a server may ask in one call, as the SDKs of clients have it."""
MAX_INPUTS: Final = 16
"""So much it may ask at once."""
UNSUPPORTED: Final = RpcResponse(
    error=b'{"code":-32601,"message":"the client of this request cannot do that"}'
)
"""What a server is told that asks a client for what it did not say it can do."""
_STATE_ONLY_WAIT_S: Final = 0.1
"""A server that asks nothing and only wants to be called again is not called again at once."""
_MAX_QUOTED: Final = 200


class _InputRequest(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Elicitation(msgspec.Struct):
    mode: str = "form"


_decode_request = msgspec.json.Decoder(_InputRequest).decode
_decode_capabilities = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode


def can_answer(capabilities: bytes, method: str, params: bytes) -> bool:
    """Whether a client of these (carried) capabilities may be asked that."""
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
    # No mode named means forms: that is what there was before there were modes.
    return mode in (can[name].keys() or {"form"})


async def collect_inputs(client: ClientChannel, needed: InputRequired) -> Params:
    """What the next request brings beside its own params. Raises InputNotGiven and ServerUnavailable."""
    asked = _parse_requests(needed)
    params: Params = {}
    if asked:
        params["inputResponses"] = msgspec.Raw(msgspec.json.encode(await _elicit_all(client, asked)))
    else:
        await asyncio.sleep(_STATE_ONLY_WAIT_S)
    if needed.request_state is not None:
        params["requestState"] = needed.request_state
    return params


def check_inputs(capabilities: bytes, needed: InputRequired) -> None:
    """Whether a client of these capabilities may be asked all of it. Raises MissingCapability where not."""
    for one in _parse_requests(needed).values():
        if not can_answer(capabilities, one.method, bytes(one.params)):
            raise missing_capability(one.method, bytes(one.params))


def missing_capability(method: str, params: bytes) -> MissingCapability:
    """The server asks what the client did not say it can answer."""
    name = CAPABILITY_OF.get(method, method)
    is_page = name == "elicitation" and can_answer(b'{"elicitation":{"url":{}}}', method, params)
    return MissingCapability(
        f"the server needs a client that can do `{name}`",
        data={"requiredCapabilities": {name: {"url": {}} if is_page else {}}},
    )


def too_many_rounds() -> ServerUnavailable:
    """The server never has enough."""
    return ServerUnavailable(f"the server asked for input more than {MAX_ROUNDS} times in one call")


async def _elicit_all(client: ClientChannel, asked: Mapping[str, _InputRequest]) -> Params:
    try:
        async with asyncio.timeout(CALL_CEILING_S), asyncio.TaskGroup() as asking:
            replies = {
                key: asking.create_task(client.ask(one.method, bytes(one.params)))
                for key, one in asked.items()
            }
    except TimeoutError as exc:
        raise InputNotGiven(f"no answer to the server's question within {CALL_CEILING_S:g} s") from exc
    return {key: msgspec.Raw(_input_result(reply.result())) for key, reply in replies.items()}


def _input_result(reply: RpcResponse) -> bytes:
    if reply.result is not None:
        return reply.result
    said = parse_error(reply.error).message[:_MAX_QUOTED]
    raise InputNotGiven(f"the client did not answer the server's question: {said or 'no reason given'}")


def _parse_requests(needed: InputRequired) -> dict[str, _InputRequest]:
    if len(needed.input_requests) > MAX_INPUTS:
        raise ServerUnavailable(f"the server asks for more than {MAX_INPUTS} things at once")
    return {key: _parse_request(raw) for key, raw in needed.input_requests.items()}


def _parse_request(raw: msgspec.Raw) -> _InputRequest:
    try:
        request = _decode_request(raw)
        _decode_object(request.params)
    except UNREADABLE as exc:
        raise ServerUnavailable("the server asks for input in a way that cannot be read") from exc
    if request.method not in CAPABILITY_OF:
        raise ServerUnavailable(f"the server asks for `{request.method[:80]}`, which is not carried")
    return request


ELICIT: Final = "elicitation/create"
APPROVAL_TIMEOUT_S: Final = CALL_CEILING_S
"""How long a person may take whose client is asked while its call runs."""

ElicitAction = Literal["accept", "decline", "cancel"]

_NO_CAPABILITIES: Final = b"{}"
_NOTHING_TO_FILL_IN: Final = {"type": "object", "properties": {}}


class _ElicitResult(msgspec.Struct):
    action: ElicitAction


class ApprovalElicitation(NamedTuple):
    """What a client is to be asked by its answer."""

    elicitation: bytes
    """The params of its request."""
    verdict: ApprovalVerdict
    """What it is told that does not want to be asked."""


class ElicitedAnswer(NamedTuple):
    """What was said to it, and to what."""

    verdict: ApprovalVerdict
    action: ElicitAction


_decode_answer: Final = msgspec.json.Decoder(_ElicitResult).decode


def can_elicit(client: ClientChannel) -> bool:
    """Whether a person is to be expected there, by what the client says of itself."""
    return client.capabilities != _NO_CAPABILITIES and can_answer(client.capabilities, ELICIT, b"{}")


def encode_elicitation(question: ApprovalRequest, approval_id: str) -> bytes:
    """What a person is asked, with all that others would see of it. There is nothing to fill in."""
    lines = [
        f"May `{question.server_id}.{question.tool}` be called with these arguments?",
        "",
        format_json(question.arguments),
        "",
        f"Server: {question.server_id}",
        f"Tool: {question.tool}",
        *([f"Task: {question.task_id}"] if question.task_id else ()),
        f"Asked for by: {question.why}",
        f"Approval: {approval_id}",
    ]
    message = "\n".join(escape_invisible(line, _spell) for text in lines for line in text.split("\n"))
    return msgspec.json.encode({"message": message, "requestedSchema": _NOTHING_TO_FILL_IN})


def _spell(character: str) -> str:
    return ascii(character)[1:-1]


def parse_action(raw: bytes | msgspec.Raw | None) -> ElicitAction:
    """What the answer to an elicitation says. What is none says as little as who closes the dialog."""
    try:
        return "cancel" if raw is None else _decode_answer(raw).action
    except UNREADABLE:
        return "cancel"


async def elicit_approval(client: ClientChannel, elicitation: bytes) -> ElicitAction:
    """What the person at a client says that can be asked while its call runs, if anything in time."""
    try:
        async with asyncio.timeout(APPROVAL_TIMEOUT_S):
            reply = await client.ask(ELICIT, elicitation)
    except TimeoutError:
        return "cancel"
    return parse_action(reply.result)
