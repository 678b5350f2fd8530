"""Asking the person at the client that calls, right there, whether the call may be made.

A client that can be asked while its call runs is asked at once. One of the stateless era is asked by its
answer, and says what it has to say with its next request, at any node. Only what the protocol carries as the
answer to an elicitation counts: nothing that stands in the arguments of a call does.
"""

import asyncio
from typing import Final, Literal, NamedTuple

import msgspec

from toolgate.gateway.call.elicitation import can_answer
from toolgate.model.approvals import Question
from toolgate.model.raw import UNREADABLE
from toolgate.model.visible import escape, show_json
from toolgate.registry.approvals.contract import Verdict
from toolgate.upstream.connection.contract import ClientSide
from toolgate.upstream.limits import CALL_CEILING_S

ELICIT: Final = "elicitation/create"
ANSWER_S: Final = CALL_CEILING_S
"""How long a person may take whose client is asked while its call runs."""

Action = Literal["accept", "decline", "cancel"]

_CANNOT: Final = b"{}"
_NOTHING_TO_FILL_IN: Final = {"type": "object", "properties": {}}


class _Answered(msgspec.Struct):
    action: Action


class Asking(NamedTuple):
    """What a client is to be asked by its answer."""

    elicitation: bytes
    """The params of its request."""
    verdict: Verdict
    """What it is told that does not want to be asked."""


class Agreement(NamedTuple):
    """What was said to it, and to what."""

    verdict: Verdict
    action: Action


_decode_answer: Final = msgspec.json.Decoder(_Answered).decode


def can_be_asked(client: ClientSide) -> bool:
    """Whether a person is to be expected there, by what the client says of itself."""
    return client.capabilities != _CANNOT and can_answer(client.capabilities, ELICIT, b"{}")


def encode_elicitation(question: Question, approval_id: str) -> bytes:
    """What a person is asked, with all that others would see of it. There is nothing to fill in."""
    lines = [
        f"May `{question.server_id}.{question.tool}` be called with these arguments?",
        "",
        show_json(question.arguments),
        "",
        f"Server: {question.server_id}",
        f"Tool: {question.tool}",
        *([f"Task: {question.task_id}"] if question.task_id else ()),
        f"Asked for by: {question.why}",
        f"Approval: {approval_id}",
    ]
    message = "\n".join(escape(line, _spell) for text in lines for line in text.split("\n"))
    return msgspec.json.encode({"message": message, "requestedSchema": _NOTHING_TO_FILL_IN})


def _spell(character: str) -> str:
    return ascii(character)[1:-1]


def parse_action(raw: bytes | msgspec.Raw | None) -> Action:
    """What the answer to an elicitation says. What is none says as little as who closes the dialog."""
    try:
        return "cancel" if raw is None else _decode_answer(raw).action
    except UNREADABLE:
        return "cancel"


async def ask_person(client: ClientSide, elicitation: bytes) -> Action:
    """What the person at a client says that can be asked while its call runs, if anything in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reply = await client.ask(ELICIT, elicitation)
    except TimeoutError:
        return "cancel"
    return parse_action(reply.result)
