"""The `input` of a Responses request, as the model's server knows the conversation.

It never saw an `mcp_call` or a request for approval: those are the gateway's, made of function calls. What a
client sends back of them becomes function calls and their outputs again, under the ids they had.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.chat.calls import sendable_name
from toolgate.chat.hidden_turns import ID_PREFIX, MAX_SPLICED_BYTES, short_id
from toolgate.chat.parsing import wrong_type
from toolgate.chat.responses.tools import GATEWAY_LABEL, Offer
from toolgate.chat.responses_carried import Carried
from toolgate.chat.responses_items import (
    APPROVAL,
    CALL,
    LIST,
    function_call,
    function_call_output,
    member_text,
    output_text,
    parse_call_item_id,
)
from toolgate.errors import InvalidChat
from toolgate.model.raw import NULL, Members, decode_members, encode_raw

MAX_ITEMS: Final = 10_000
_ANSWERS: Final = ("_output", "_response")
_MARKS: Final = tuple(f'"{prefix}'.encode() for prefix in (CALL, LIST, APPROVAL, ID_PREFIX))

OpenCarried = Callable[[str], Carried | None]
"""Gets the id a client sent back. None: it is not one of ours, not this caller's, or too old."""
ChatName = Callable[[str, str], str]
"""The function a model knows as the tool of this label and name."""


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that somebody agreed to: its place among the items is where its output goes."""

    request_id: str
    carried: Carried


RestoredItem = msgspec.Raw | Approved


@dataclass(frozen=True, slots=True)
class Restored:
    """The input for the model's server, but for the outputs of approved calls."""

    items: tuple[RestoredItem, ...]
    listed: frozenset[str]
    """The labels whose tools this conversation has seen listed."""

    @property
    def approved(self) -> tuple[Approved, ...]:
        return tuple(one for one in self.items if isinstance(one, Approved))


def parse_input(raw: msgspec.Raw | None) -> tuple[msgspec.Raw, ...]:
    """`input` as items: a text is one message of the user. Raises InvalidChat."""
    if raw is None or raw == NULL:
        return ()
    try:
        sent = msgspec.json.decode(raw, type=str | list[msgspec.Raw])
    except msgspec.DecodeError as exc:
        raise wrong_type("input", "one of a string or array of objects", raw) from exc
    if isinstance(sent, str):
        return (encode_raw({"role": "user", "content": sent}),)
    if len(sent) > MAX_ITEMS:
        raise InvalidChat(f"`input` has more than {MAX_ITEMS} entries", param="input")
    return tuple(sent)


def has_ours(items: Sequence[msgspec.Raw]) -> bool:
    """Whether anything in them is the gateway's to restore."""
    return any(mark in bytes(item) for item in items for mark in _MARKS)


def restore(items: Sequence[msgspec.Raw], *, open_carried: OpenCarried, chat_name: ChatName) -> Restored:
    """The items as the model's server knows them. Raises InvalidChat for approvals of nothing."""
    return _Restoring([_members(item) for item in items], open_carried, chat_name).restore(items)


def chat_name(offers: Sequence[Offer], label: str, name: str) -> str:
    """The function that stood for a tool. One that is no longer offered gets a name much like it had."""
    for one in offers:
        if one.label == label and one.name == name:
            return one.chat_name
    joined = name.replace(".", "__", 1) if label == GATEWAY_LABEL else f"{label}__{name}"
    return sendable_name(f"mcp__{joined}")


class _Restoring:
    """One conversation."""

    def __init__(self, all_members: list[Members], open_carried: OpenCarried, chat_name: ChatName) -> None:
        self._members = all_members
        self._open_carried = open_carried
        self._opened: dict[str, Carried | None] = {}
        self._opened_bytes = 0
        self._chat_name = chat_name
        self._listed: set[str] = set()
        self._out: list[RestoredItem] = []
        ours = [one for one in all_members if _is_call(one)]
        self._ended = {member_text(one, "approval_request_id") for one in ours}
        """Approvals that were used: the calls stand in the conversation themselves."""
        self._answered = {
            member_text(one, "approval_request_id")
            for one in all_members
            if member_text(one, "type") == "mcp_approval_response"
        }
        self._decided: set[str] = set()
        """Requests whose answer was met."""
        self._known = {member_text(one, "call_id") for one in all_members} | {
            parse_call_item_id(member_text(one, "id") or "") for one in ours
        }

    def restore(self, items: Sequence[msgspec.Raw]) -> Restored:
        for place, (item, members) in enumerate(zip(items, self._members, strict=True)):
            kind = member_text(members, "type")
            if kind == "mcp_list_tools" and _begins(members, "id", LIST):
                self._listed.add(member_text(members, "server_label") or "")
            elif kind == "mcp_approval_request" and _begins(members, "id", APPROVAL):
                self._restore_request(members)
            elif kind == "mcp_approval_response" and _begins(members, "approval_request_id", APPROVAL):
                self._restore_approval(members, place)
            elif _is_call(members):
                self._restore_call(members)
            elif (key := _handed_by(members)) is not None:
                self._restore_handed(members, key)
            else:
                self._out.append(item)
        return Restored(tuple(self._out), frozenset(self._listed))

    def _open(self, sent: str) -> Carried | None:
        """What an id holds. It is opened once, however often it stands there."""
        if sent not in self._opened:
            may_open = self._opened_bytes < MAX_SPLICED_BYTES
            self._opened[sent] = carried = self._open_carried(sent) if may_open else None
            self._opened_bytes += 0 if carried is None else sum(len(output) for _, output in carried.outputs)
        return self._opened[sent]

    def _say(self, item: dict[str, Any]) -> None:
        self._out.append(encode_raw(item))

    def _restore_call(self, members: Members) -> None:
        call_id = parse_call_item_id(member_text(members, "id") or "") or ""
        self._say_call(members, call_id)
        self._say(function_call_output(call_id, output_text(members)))

    def _say_call(self, members: Members, call_id: str) -> None:
        label, name = member_text(members, "server_label") or "", member_text(members, "name") or ""
        arguments = member_text(members, "arguments") or "{}"
        self._say(function_call(call_id, name=self._chat_name(label, name), arguments=arguments))

    def _restore_request(self, members: Members) -> None:
        """One that nobody answered, or whose call stands there by itself, is nothing to the model."""
        request_id = member_text(members, "id") or ""
        if request_id in self._answered and request_id not in self._ended:
            carried = self._open(request_id)
            call_id = short_id(request_id) if carried is None else carried.call_id
            self._say_call(members, call_id)
            self._known.add(call_id)

    def _restore_approval(self, members: Members, place: int) -> None:
        request_id = member_text(members, "approval_request_id") or ""
        if request_id in self._ended:
            return
        if request_id in self._decided:
            raise InvalidChat(
                "this approval request is answered twice", param=f"input[{place}].approval_request_id"
            )
        self._decided.add(request_id)
        carried = self._open(request_id)
        is_approved = msgspec.json.decode(members.get("approve", b"null"))
        if not isinstance(is_approved, bool):
            raise InvalidChat("`approve` must be true or false", param=f"input[{place}].approve")
        if carried is not None:
            self._say_outputs(carried)
        elif is_approved or short_id(request_id) not in self._known:
            raise InvalidChat(
                "there is no such approval request, or it is too old",
                param=f"input[{place}].approval_request_id",
                hint="ask again without it: the model makes the call anew",
            )
        if carried is not None and is_approved:
            self._out.append(Approved(request_id, carried))
        else:
            call_id = short_id(request_id) if carried is None else carried.call_id
            self._say(function_call_output(call_id, _declined(member_text(members, "reason"))))

    def _restore_handed(self, members: Members, key: str) -> None:
        """The id the model's server knows, and with an answer those of the calls that were run beside it."""
        sent = member_text(members, key) or ""
        carried = self._open(sent)
        own_id = short_id(sent) if carried is None else carried.call_id
        if carried is not None and (member_text(members, "type") or "").endswith(_ANSWERS):
            self._say_outputs(carried)
        self._say({**members, key: own_id})

    def _say_outputs(self, carried: Carried) -> None:
        for call_id, output in carried.outputs:
            if call_id not in self._known:
                self._known.add(call_id)
                self._say(function_call_output(call_id, output))


def _is_call(members: Members) -> bool:
    is_call = member_text(members, "type") == "mcp_call"
    return is_call and parse_call_item_id(member_text(members, "id") or "") is not None


def _handed_by(members: Members) -> str | None:
    """The member whose id carries something; None where none does."""
    keys = ("call_id", "approval_request_id", "id")
    return next((key for key in keys if _begins(members, key, ID_PREFIX)), None)


def _begins(members: Members, key: str, prefix: str) -> bool:
    return (member_text(members, key) or "").startswith(prefix)


def _declined(reason: str | None) -> str:
    message = "the user declined this call" + (f": {reason}" if reason else "")
    return json.dumps({"error": {"code": "approval_declined", "message": message, "retryable": False}})


def _members(item: msgspec.Raw) -> Members:
    """An item that is no object is the model's server's to refuse."""
    try:
        return decode_members(item)
    except msgspec.DecodeError:
        return {}
