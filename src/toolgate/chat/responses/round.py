"""One response of a model over the Responses API, streamed or whole, as the client gets it.

Calls of the gateway's tools become `mcp_call` items as they come. The client's own calls, and those that need
approval, are held until the calls next to them have run. All other items pass unchanged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from toolgate.chat.responses import output
from toolgate.chat.responses.output import Ending, Item, ResponseOutput, read_text
from toolgate.chat.responses.tools import GATEWAY_LABEL, OfferedTool, OfferedTools
from toolgate.chat.tool_calls import ToolCall, repair_arguments
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import NULL, UNREADABLE, Members, as_object, decode_members, encode_raw

_BEGINNINGS: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDINGS: Final[dict[str, Ending]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_ARGUMENTS: Final = "response.function_call_arguments."
_CALLS: Final = (
    *("apply_patch_call", "computer_call", "custom_tool_call", "function_call", "local_shell_call"),
    *("mcp_approval_request", "shell_call"),
)
"""Items that only the client can complete, unless they call a tool of the gateway."""
_GATEWAY_MEMBERS: Final = frozenset({"type", "sequence_number", "output_index"})
"""Members of events that the gateway writes itself."""
_MAX_QUOTED: Final = 500  # characters of a server's error message


@dataclass(frozen=True, slots=True)
class ModelResponseTurn:
    response: Members
    ending: Ending
    items: tuple[msgspec.Raw, ...]
    """In a form that the model's server accepts."""
    calls: tuple[ToolCall, ...]
    has_text: bool


@dataclass(slots=True)
class _ShownItem:
    """Passes unchanged. `text` is the text of a message so far."""

    index: int
    item: Members
    text: str = ""
    is_done: bool = False


@dataclass(slots=True)
class _CalledItem:
    """A call of a tool of the gateway, or of an unknown tool."""

    index: int
    item: Item
    has_arguments: bool = False
    is_done: bool = False


@dataclass(slots=True)
class _HeldItem:
    """Waits for the client's result, or for its approval to call the tool `offer`."""

    index: int | None
    item: Members
    offer: OfferedTool | None = None
    events: list[tuple[str, Members]] = field(default_factory=list)
    is_done: bool = False


_Place: TypeAlias = _ShownItem | _CalledItem | _HeldItem | None  # None: the item is dropped


@dataclass(eq=False)
class ResponseRound:
    """One response. `feed` it the events, or `play` it whole."""

    output: ResponseOutput
    tools: OfferedTools
    number: int
    drops_calls: bool
    """Whether its calls do not run, and the client does not see them."""
    _places: dict[int, _Place] = field(default_factory=dict, init=False)
    _items: dict[int, msgspec.Raw] = field(default_factory=dict, init=False)
    _call_ids: dict[int, str] = field(default_factory=dict, init=False)
    _calls: dict[int, ToolCall] = field(default_factory=dict, init=False)
    _has_text: bool = field(default=False, init=False)
    _end: tuple[Members, Ending] | None = field(default=None, init=False)

    def feed(self, data: bytes) -> None:
        """Take one event. Raises ModelUnavailable for an invalid one, and for an error in it."""
        event = _decode(data)
        kind = read_text(event, "type") or ""
        if kind in _BEGINNINGS:
            self.output.begin(_decode(event.get("response", NULL)))
        elif kind in _ENDINGS:
            self._complete(_decode(event.get("response", NULL)), _ENDINGS[kind])
        elif kind == "error" or "error" in event:
            details = as_object(event.get("error")) or event
            message = (read_text(details, "message") or "no message")[:_MAX_QUOTED]
            raise ModelUnavailable(f"the model's server sent an error: {message}")
        else:
            self._feed_item(kind, event)

    def play(self, body: bytes) -> None:
        """Take a whole response. Raises ModelUnavailable for an invalid one."""
        response = _decode(body)
        status = read_text(response, "status")
        self._complete(response, _ENDINGS.get(f"response.{status}", "completed"))

    def finish(self) -> ModelResponseTurn:
        """Build the whole response. Raises ModelUnavailable if the model's server broke off."""
        if self._end is None:
            raise ModelUnavailable("the model's server ended its response before it was complete")
        response, ending = self._end
        self.output.count(response.get("usage"))
        self._abandon(place for index, place in self._places.items() if index not in self._items)
        return ModelResponseTurn(
            response=response,
            ending=ending,
            items=tuple(raw for _, raw in sorted(self._items.items())),
            calls=tuple(call for _, call in sorted(self._calls.items())),
            has_text=self._has_text,
        )

    # Its calls

    def end_call(self, call: ToolCall, text: str, *, is_error: bool) -> None:
        """Send the client the result of a call that ran or was refused."""
        place = self._find_place(call)
        if isinstance(place, _CalledItem):
            place.is_done = True
            self.output.end_call(place.index, place.item, text=text, is_error=is_error)

    def needs_approval(self, call: ToolCall) -> OfferedTool | None:
        """Find the tool of a call that needs approval; None for other calls."""
        place = self._find_place(call)
        return place.offer if isinstance(place, _HeldItem) else None

    def request_approval(self, call: ToolCall, request_id: str) -> None:
        """Request the client's approval of a call."""
        place = self._find_held(call)
        assert place.offer is not None  # `needs_approval` has found it
        place.is_done = True
        label, name = place.offer.label, place.offer.name
        item = output.make_approval_request(request_id, label=label, name=name, arguments=call.arguments)
        self.output.put(item)

    def find_own_id(self, call: ToolCall) -> str:
        """Find the id that the client uses for the result of its own call."""
        item = self._find_held(call).item
        return call.call_id if "call_id" in item else read_text(item, "id") or ""

    def hand_over(self, call: ToolCall, own_id: str) -> None:
        """Send the client its own call. It uses `own_id` for the result."""
        self._release(self._find_held(call), own_id)

    def abandon(self) -> None:
        """End all items that have begun as they are, because nothing more comes."""
        self._abandon(self._places.values())

    def _abandon(self, places: Iterable[_Place]) -> None:
        for place in places:
            if place is None or place.is_done:
                continue
            place.is_done = True
            item: Item = {**place.item, "status": "incomplete"}
            if isinstance(place, _HeldItem):
                self._release(place, None)
            elif isinstance(place, _CalledItem):
                self.output.end(place.index, item)
            else:
                if read_text(place.item, "type") == "message":
                    item["content"] = [output.make_text_part(place.text)] if place.text else []
                self.output.end(place.index, item)

    def _release(self, place: _HeldItem, own_id: str | None) -> None:
        place.is_done = True
        if place.index is None:
            return
        for kind, event in place.events:
            item = _read_item(event)
            if item is not None and own_id is not None:
                key = "call_id" if "call_id" in item else "id"
                item = {**item, key: encode_raw(own_id)}
            self._pass_on(kind, event, place.index, item)
        if all(kind != _DONE for kind, _ in place.events):
            self.output.end(place.index, {**place.item, "status": "incomplete"})

    def _find_place(self, call: ToolCall) -> _Place:
        return next((self._places[at] for at, one in self._calls.items() if one is call), None)

    def _find_held(self, call: ToolCall) -> _HeldItem:
        place = self._find_place(call)
        assert isinstance(place, _HeldItem)
        return place

    # Its items

    def _complete(self, response: Members, ending: Ending) -> None:
        """End the response. Plays the items that no event announced or completed."""
        self._end = (response, ending)
        self.output.begin(response)
        try:
            items = msgspec.json.decode(response.get("output", b"[]"), type=list[msgspec.Raw])
        except msgspec.DecodeError as exc:
            raise ModelUnavailable("the model's server does not speak the Responses API") from exc
        has_none = not self._items
        for index, raw in enumerate(items):
            if has_none or (index in self._places and index not in self._items):
                members = {"item": raw, "output_index": msgspec.Raw(b"%d" % index)}
                if index not in self._places:
                    self._feed_item(_ADDED, members)
                self._feed_item(_DONE, members)

    def _feed_item(self, kind: str, event: Members) -> None:
        index, item = _read_index(event), _read_item(event)
        is_known = kind == _ADDED and index in self._places
        if is_known or (kind in (_ADDED, _DONE) and (index is None or item is None)):
            return  # some servers announce items that never come, or announce them twice
        if index is None:
            self.output.send_event(kind, _copy_event(event))
            return
        if item is not None and index not in self._places:
            self._places[index] = self._make_place(index, item)
        if item is not None and kind == _DONE:
            self._keep(index, item, event["item"])
        place = self._places.get(index)
        match place:
            case _ShownItem():
                if kind == "response.output_text.delta":
                    place.text += read_text(event, "delta") or ""
                elif kind == _DONE:
                    place.is_done = True
                self._pass_on(kind, event, place.index, None)
            case _HeldItem():
                place.events.append((kind, event))
            case _CalledItem():
                self._feed_call(place, kind, event, item)

    def _make_place(self, index: int, item: Members) -> _Place:
        kind = read_text(item, "type") or ""
        if kind not in _CALLS or self.tools.is_empty:
            return _ShownItem(self.output.reserve(), item)
        call_id = read_text(item, "call_id") or ""
        if not call_id or call_id in self._call_ids.values():
            call_id = f"call_tg_{self.number}_{index}"
        self._call_ids[index] = call_id
        if self.drops_calls:
            return None
        if self._is_own(item):
            return _HeldItem(self.output.reserve(), item)
        name = read_text(item, "name") or ""
        offer = self.tools.by_name.get(name)
        if offer is not None and offer.needs_approval:
            return _HeldItem(None, item, offer)
        label, shown = (GATEWAY_LABEL, name) if offer is None else (offer.label, offer.name)
        call_item = output.make_call(
            output.make_call_item_id(call_id, self.output.size), label=label, name=shown
        )
        return _CalledItem(self.output.begin_call(call_item), call_item)

    def _is_own(self, item: Members) -> bool:
        """Whether an item calls a tool of the client."""
        return not _is_plain_function(item) or self.tools.is_own(read_text(item, "name") or "")

    def _keep(self, index: int, item: Members, raw: msgspec.Raw) -> None:
        """Keep a complete item, for the history and for the loop."""
        self._items[index] = raw
        kind = read_text(item, "type") or ""
        self._has_text = self._has_text or (kind == "message" and _has_message_text(item))
        if index not in self._call_ids:
            return
        name, place = read_text(item, "name") or "", self._places[index]
        offer = self.tools.by_name.get(name)
        is_held = self._is_own(item) or (offer is not None and offer.needs_approval)
        if place is not None and is_held != isinstance(place, _HeldItem):
            # Its first event decided whether the client or the gateway runs a call.
            raise ModelUnavailable("the model's server began one call, and ended it as another")
        call_id, arguments = self._call_ids[index], read_text(item, "arguments") or ""
        is_function = _is_plain_function(item)
        self._calls[index] = ToolCall(
            call_id=call_id,
            name=name if is_function else kind,
            arguments=arguments,
            kind="function" if is_function else "other",
        )
        if kind == "function_call":
            repaired = {"call_id": call_id, "arguments": repair_arguments(arguments)}
            if any(read_text(item, key) != value for key, value in repaired.items()):
                self._items[index] = encode_raw({**item, **repaired})

    def _feed_call(self, place: _CalledItem, kind: str, event: Members, item: Members | None) -> None:
        if kind.startswith(_ARGUMENTS):
            place.has_arguments = True
            members = {**_copy_event(event), "output_index": place.index, "item_id": place.item["id"]}
            members.pop("name", None)
            self.output.send_event(f"response.mcp_call_arguments.{kind.removeprefix(_ARGUMENTS)}", members)
        elif item is not None and kind == _DONE:
            arguments = read_text(item, "arguments") or ""
            place.item = {**place.item, "arguments": arguments}
            if not place.has_arguments:
                self.output.send_arguments(place.index, place.item["id"], arguments)

    def _pass_on(self, kind: str, event: Members, index: int, item: Members | None) -> None:
        shown = event.get("item") if item is None else encode_raw(item)
        if kind == _DONE and shown is not None:
            self.output.end(index, shown)
        elif kind == _ADDED and shown is not None:
            self.output.add(index, shown)
        else:
            self.output.send_event(kind, {**_copy_event(event), "output_index": index})


def _decode(data: bytes | msgspec.Raw) -> Members:
    """Decode an object. Checks UTF-8 here, since most strings are never decoded."""
    try:
        bytes(data).decode()
        return decode_members(data)
    except UNREADABLE as exc:
        raise ModelUnavailable("the model's server does not speak the Responses API") from exc


def _read_index(event: Members) -> int | None:
    try:
        return msgspec.json.decode(event.get("output_index", b"null"), type=int | None)
    except msgspec.DecodeError:
        return None


def _read_item(event: Members) -> Members | None:
    raw = event.get("item", NULL)
    return None if raw == NULL else _decode(raw)


def _copy_event(event: Members) -> dict[str, Any]:
    return {key: raw for key, raw in event.items() if key not in _GATEWAY_MEMBERS}


def _is_plain_function(item: Members) -> bool:
    return read_text(item, "type") == "function_call" and read_text(item, "namespace") is None


def _has_message_text(item: Members) -> bool:
    content = msgspec.json.decode(item.get("content", b"null"))
    parts = content if isinstance(content, list) else []
    return any(isinstance(one, dict) and (one.get("text") or one.get("refusal")) for one in parts)
