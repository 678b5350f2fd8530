"""Input a server wants in the middle of a call, and the two ways a client can be asked for it.

A modern server answers with what it wants to know, and is asked again with the answers. A legacy server asks
while the call runs. Here stand the words both have in common, and how a client that can be asked live is
taken through a modern server's questions.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.catalog.encoding import InputNeeded
from toolgate.errors import InputNotGiven, MissingCapability, ServerUnavailable
from toolgate.model.protocol import CAPABILITY_OF
from toolgate.model.raw import UNREADABLE
from toolgate.upstream.connection.contract import ClientSide, Params, Reply
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.limits import CALL_CEILING_S

MAX_ROUNDS: Final = 10
"""So often a server may ask in one call, as the SDKs of clients have it."""
MAX_INPUTS: Final = 16
"""So much it may ask at once."""
CANNOT: Final = Reply(error=b'{"code":-32601,"message":"the client of this request cannot do that"}')
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


async def answer_inputs(client: ClientSide, needed: InputNeeded) -> Params:
    """What the next request brings beside its own params. Raises InputNotGiven and ServerUnavailable."""
    asked = _parse_all(needed)
    params: Params = {}
    if asked:
        params["inputResponses"] = msgspec.Raw(msgspec.json.encode(await _ask_all(client, asked)))
    else:
        await asyncio.sleep(_STATE_ONLY_WAIT_S)
    if needed.request_state is not None:
        params["requestState"] = needed.request_state
    return params


def check_inputs(capabilities: bytes, needed: InputNeeded) -> None:
    """Whether a client of these capabilities may be asked all of it. Raises MissingCapability where not."""
    for one in _parse_all(needed).values():
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


async def _ask_all(client: ClientSide, asked: Mapping[str, _InputRequest]) -> Params:
    try:
        async with asyncio.timeout(CALL_CEILING_S), asyncio.TaskGroup() as asking:
            replies = {
                key: asking.create_task(client.ask(one.method, bytes(one.params)))
                for key, one in asked.items()
            }
    except TimeoutError as exc:
        raise InputNotGiven(f"no answer to the server's question within {CALL_CEILING_S:g} s") from exc
    return {key: msgspec.Raw(_given(reply.result())) for key, reply in replies.items()}


def _given(reply: Reply) -> bytes:
    if reply.result is not None:
        return reply.result
    said = parse_error(reply.error).message[:_MAX_QUOTED]
    raise InputNotGiven(f"the client did not answer the server's question: {said or 'no reason given'}")


def _parse_all(needed: InputNeeded) -> dict[str, _InputRequest]:
    if len(needed.input_requests) > MAX_INPUTS:
        raise ServerUnavailable(f"the server asks for more than {MAX_INPUTS} things at once")
    return {key: _parse(raw) for key, raw in needed.input_requests.items()}


def _parse(raw: msgspec.Raw) -> _InputRequest:
    try:
        request = _decode_request(raw)
        _decode_object(request.params)
    except UNREADABLE as exc:
        raise ServerUnavailable("the server asks for input in a way that cannot be read") from exc
    if request.method not in CAPABILITY_OF:
        raise ServerUnavailable(f"the server asks for `{request.method[:80]}`, which is not carried")
    return request
