"""One reply of a model over the Responses API, streamed or whole, as the client gets it.

Calls of the gateway's tools become `mcp_call` items as they come. The caller's own calls, and those that wait
for an approval, are held until it is known what was done beside them. All else passes as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.chat.responses.output import (
    Ending,
    Item,
    ResponseOutput,
    call_item_id,
    mcp_approval_request,
    mcp_call,
    member_text,
)
from toolgate.chat.responses.tools import GATEWAY_LABEL, OfferedTool, OfferedTools
from toolgate.chat.tool_calls import ToolCall, repair_arguments
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import NULL, UNREADABLE, Members, decode_members, encode_raw

_BEGINNINGS: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDINGS: Final[dict[str, Ending]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_ARGUMENTS: Final = "response.function_call_arguments."
_OPEN: Final = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "mcp_approval_request",
        "shell_call",
    }
)
"""What only the caller can answer, unless it is a call of a tool of ours."""
_OF_THE_WIRE: Final = frozenset({"type", "sequence_number", "output_index"})


@dataclass(frozen=True, slots=True)
class ModelResponseTurn:
    """A reply that has come to its end."""

    response: Members
    ending: Ending
    items: tuple[msgspec.Raw, ...]
    """As the model's server takes them back."""
    calls: tuple[ToolCall, ...]
    has_text: bool


@dataclass(slots=True)
class _ShownItem:
    """Passes as it is. `text` is what a message has said so far, `done` what it is in the end."""

    index: int
    item: Members
    text: str = ""
    is_done: bool = False


@dataclass(slots=True)
class _CalledItem:
    """A call of a tool of ours, or of none that there is."""

    index: int
    item: Item
    is_told: bool = False
    is_done: bool = False


@dataclass(slots=True)
class _HeldItem:
    """The caller's to answer. `offer`: the tool for which it is to approve."""

    index: int | None
    item: Members
    offer: OfferedTool | None = None
    events: list[tuple[str, Members]] = field(default_factory=list)
    is_done: bool = False


_Place = _ShownItem | _CalledItem | _HeldItem | None
"""None: it is not shown."""


class ResponseRound:
    """One reply. Feed it the events, or play it the whole."""

    def __init__(
        self, output: ResponseOutput, offered: OfferedTools, *, number: int, drops_calls: bool
    ) -> None:
        """`drops_calls`: what it calls is neither run nor shown."""
        self._output = output
        self._offered = offered
        self._number = number
        self._drops_calls = drops_calls
        self._places: dict[int, _Place] = {}
        self._items: dict[int, msgspec.Raw] = {}
        self._call_ids: dict[int, str] = {}
        self._calls: dict[int, ToolCall] = {}
        self._has_text = False
        self._end: tuple[Members, Ending] | None = None

    def feed(self, data: bytes) -> None:
        """One event of the model's server. Raises ModelUnavailable where it is none, or says an error."""
        event = _decode(data)
        kind = member_text(event, "type") or ""
        if kind in _BEGINNINGS:
            self._output.begin(_response(event))
        elif kind in _ENDINGS:
            self._end = (_response(event), _ENDINGS[kind])
            self._output.begin(self._end[0])
            self._play_items(self._end[0])
        elif kind == "error" or "error" in event:
            raise ModelUnavailable(f"the model's server said an error: {_error_message(event)}")
        else:
            self._feed_item(kind, event)

    def play(self, body: bytes) -> None:
        """A whole response. Raises ModelUnavailable where it is none."""
        response = _decode(body)
        status = member_text(response, "status")
        self._end = (response, _ENDINGS.get(f"response.{status}", "completed"))
        self._output.begin(response)
        self._play_items(response)

    def finish(self) -> ModelResponseTurn:
        """All of it. Raises ModelUnavailable where the model's server broke off."""
        if self._end is None:
            raise ModelUnavailable("the model's server ended its answer before it was complete")
        response, ending = self._end
        self._output.count(response.get("usage"))
        self._abandon(place for index, place in self._places.items() if index not in self._items)
        return ModelResponseTurn(
            response=response,
            ending=ending,
            items=tuple(raw for _, raw in sorted(self._items.items())),
            calls=tuple(call for _, call in sorted(self._calls.items())),
            has_text=self._has_text,
        )

    # What became of its calls

    def end_call(self, call: ToolCall, text: str, *, is_error: bool) -> None:
        """A step was done: the client is told what came of it."""
        place = self._place_of(call)
        if isinstance(place, _CalledItem):
            place.is_done = True
            self._output.end_call(place.index, place.item, text=text, is_error=is_error)

    def needs_approval(self, call: ToolCall) -> OfferedTool | None:
        """The tool that is called, where somebody has to agree first."""
        place = self._place_of(call)
        return place.offer if isinstance(place, _HeldItem) else None

    def request_approval(self, call: ToolCall, request_id: str) -> None:
        """The client is asked whether a call may be made."""
        place = self._place_of(call)
        assert isinstance(place, _HeldItem)
        assert place.offer is not None  # whoever asks has looked
        place.is_done = True
        label, name = place.offer.label, place.offer.name
        self._output.put(mcp_approval_request(request_id, label=label, name=name, arguments=call.arguments))

    def own_id(self, call: ToolCall) -> str:
        """What the client is to answer a call of its own by."""
        place = self._place_of(call)
        assert isinstance(place, _HeldItem)
        return call.call_id if "call_id" in place.item else member_text(place.item, "id") or ""

    def hand_over(self, call: ToolCall, own_id: str) -> None:
        """The client gets a call of its own, to be answered by `own_id`."""
        place = self._place_of(call)
        assert isinstance(place, _HeldItem)
        self._release(place, own_id)

    def abandon(self) -> None:
        """Nothing more comes: what has begun ends as it is."""
        self._abandon(self._places.values())

    def _abandon(self, places: Iterable[_Place]) -> None:
        for place in places:
            if place is None or place.is_done:
                continue
            place.is_done = True
            if isinstance(place, _ShownItem):
                self._output.end(place.index, _cut_item(place))
            elif isinstance(place, _CalledItem):
                self._output.end(place.index, {**place.item, "status": "incomplete"})
            else:
                self._release(place, None)

    def _release(self, place: _HeldItem, own_id: str | None) -> None:
        place.is_done = True
        if place.index is None:
            return
        for kind, event in place.events:
            item = _item(event)
            if item is not None and own_id is not None:
                item = {**item, _answer_key(item): encode_raw(own_id)}
            self._pass_on(kind, event, place.index, item)
        if all(kind != _DONE for kind, _ in place.events):
            self._output.end(place.index, {**place.item, "status": "incomplete"})

    def _place_of(self, call: ToolCall) -> _Place:
        return next((self._places[at] for at, one in self._calls.items() if one is call), None)

    # What comes in

    def _play_items(self, response: Members) -> None:
        """Items of which events have not told, or not to their end."""
        is_untold = not self._items
        for index, raw in enumerate(_items(response)):
            if is_untold or (index in self._places and index not in self._items):
                members = {"item": raw, "output_index": msgspec.Raw(b"%d" % index)}
                if index not in self._places:
                    self._feed_item(_ADDED, members)
                self._feed_item(_DONE, members)

    def _feed_item(self, kind: str, event: Members) -> None:
        index, item = _index(event), _item(event)
        is_known = kind == _ADDED and index in self._places
        if is_known or (kind in (_ADDED, _DONE) and (index is None or item is None)):
            return  # some servers announce what never comes, or twice
        if index is None:
            self._output.send_event(kind, _own_members(event))
            return
        if item is not None and index not in self._places:
            self._places[index] = self._place(index, item)
        if item is not None and kind == _DONE:
            self._note(index, item, event["item"])
        place = self._places.get(index)
        match place:
            case _ShownItem():
                self._follow(place, kind, event)
                self._pass_on(kind, event, place.index, None)
            case _HeldItem():
                place.events.append((kind, event))
            case _CalledItem():
                self._tell_call(place, kind, event, item)

    def _place(self, index: int, item: Members) -> _Place:
        kind = member_text(item, "type") or ""
        if kind not in _OPEN or self._offered.is_empty:
            return _ShownItem(self._output.reserve(), item)
        self._call_ids[index] = self._unique_id(item, index)
        if self._drops_calls:
            return None
        if self._is_own(item):
            return _HeldItem(self._output.reserve(), item)
        name = member_text(item, "name") or ""
        offer = self._offered.by_name.get(name)
        if offer is not None and offer.needs_approval:
            return _HeldItem(None, item, offer)
        call_id = self._call_ids[index]
        label, shown = (GATEWAY_LABEL, name) if offer is None else (offer.label, offer.name)
        call_item = mcp_call(call_item_id(call_id, self._output.size), label=label, name=shown)
        return _CalledItem(self._output.begin_call(call_item), call_item)

    def _is_own(self, item: Members) -> bool:
        """Whether what an item calls is the caller's."""
        return not _is_plain_function(item) or self._offered.is_own(member_text(item, "name") or "")

    def _check_place(self, item: Members, place: _Place) -> None:
        """What a call is in the end, it was when it began: by that it was decided who is to answer it."""
        offer = self._offered.by_name.get(member_text(item, "name") or "")
        waits = self._is_own(item) or (offer is not None and offer.needs_approval)
        if place is not None and waits != isinstance(place, _HeldItem):
            raise ModelUnavailable("the model's server began one call, and ended it as another")

    def _unique_id(self, item: Members, index: int) -> str:
        call_id = member_text(item, "call_id") or ""
        is_new = bool(call_id) and call_id not in self._call_ids.values()
        return call_id if is_new else f"call_tg_{self._number}_{index}"

    def _note(self, index: int, item: Members, raw: msgspec.Raw) -> None:
        """An item is what it will be: for the history, and for the loop."""
        self._items[index] = raw
        kind = member_text(item, "type") or ""
        self._has_text = self._has_text or (kind == "message" and _has_message_text(item))
        if index not in self._call_ids:
            return
        self._check_place(item, self._places[index])
        call_id, name = self._call_ids[index], member_text(item, "name") or ""
        arguments = member_text(item, "arguments") or ""
        is_function = _is_plain_function(item)
        self._calls[index] = ToolCall(
            call_id=call_id,
            name=name if is_function else kind,
            arguments=arguments,
            kind="function" if is_function else "other",
        )
        self._items[index] = _repair_item(item, raw, call_id) if kind == "function_call" else raw

    def _tell_call(self, place: _CalledItem, kind: str, event: Members, item: Members | None) -> None:
        if kind.startswith(_ARGUMENTS):
            place.is_told = True
            own = {**_own_members(event), "output_index": place.index, "item_id": place.item["id"]}
            own.pop("name", None)
            self._output.send_event(f"response.mcp_call_arguments.{kind.removeprefix(_ARGUMENTS)}", own)
        elif item is not None and kind == _DONE:
            arguments = member_text(item, "arguments") or ""
            place.item = {**place.item, "arguments": arguments}
            if not place.is_told:
                self._output.send_arguments(place.index, place.item["id"], arguments)

    def _follow(self, place: _ShownItem, kind: str, event: Members) -> None:
        if kind == "response.output_text.delta":
            place.text += member_text(event, "delta") or ""
        elif kind == _DONE:
            place.is_done = True

    def _pass_on(self, kind: str, event: Members, index: int, item: Members | None) -> None:
        shown = event.get("item") if item is None else encode_raw(item)
        if kind == _DONE and shown is not None:
            self._output.end(index, shown)
        elif kind == _ADDED and shown is not None:
            self._output.add(index, shown)
        else:
            self._output.send_event(kind, {**_own_members(event), "output_index": index})


def _decode(data: bytes | msgspec.Raw) -> Members:
    """Once it is read here, all texts in it can be."""
    try:
        bytes(data).decode()
        return decode_members(data)
    except UNREADABLE as exc:
        raise ModelUnavailable("the model's server does not speak the Responses API") from exc


def _response(event: Members) -> Members:
    return _decode(event.get("response", NULL))


def _items(response: Members) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(response.get("output", b"[]"), type=list[msgspec.Raw])
    except msgspec.DecodeError as exc:
        raise ModelUnavailable("the model's server does not speak the Responses API") from exc


def _index(event: Members) -> int | None:
    try:
        return msgspec.json.decode(event.get("output_index", b"null"), type=int | None)
    except msgspec.DecodeError:
        return None


def _item(event: Members) -> Members | None:
    raw = event.get("item", NULL)
    return None if raw == NULL else _decode(raw)


def _own_members(event: Members) -> dict[str, Any]:
    return {key: raw for key, raw in event.items() if key not in _OF_THE_WIRE}


def _error_message(event: Members) -> str:
    error = event.get("error")
    inner = event if error is None or memoryview(error)[0] != ord("{") else decode_members(error)
    return (member_text(inner, "message") or "it does not say which")[:500]


def _answer_key(item: Members) -> str:
    """Which member a client answers an item by."""
    return "call_id" if "call_id" in item else "id"


def _is_plain_function(item: Members) -> bool:
    return member_text(item, "type") == "function_call" and member_text(item, "namespace") is None


def _has_message_text(item: Members) -> bool:
    content = msgspec.json.decode(item.get("content", b"null"))
    parts = content if isinstance(content, list) else []
    return any(isinstance(one, dict) and (one.get("text") or one.get("refusal")) for one in parts)


def _repair_item(item: Members, raw: msgspec.Raw, call_id: str) -> msgspec.Raw:
    """A call as its server takes it back: with an id of its own, and arguments that can be read."""
    changed: dict[str, Any] = {}
    if member_text(item, "call_id") != call_id:
        changed["call_id"] = call_id
    arguments = repair_arguments(member_text(item, "arguments") or "")
    if member_text(item, "arguments") != arguments:
        changed["arguments"] = arguments
    return encode_raw({**item, **changed}) if changed else raw


def _cut_item(place: _ShownItem) -> Item:
    item: Item = {**place.item, "status": "incomplete"}
    if member_text(place.item, "type") == "message":
        part = {"type": "output_text", "text": place.text, "annotations": [], "logprobs": []}
        item["content"] = [part] if place.text else []
    return item
