"""What a scripted model says, and how it goes over the wire. See `scripted_model` for how they are used."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

AUTO: Final = "auto"
"""An id that the server makes up, as OpenAI's do: `call_<request>_<place>`."""
USAGE: Final[Mapping[str, int]] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
CREATED: Final = 1_790_000_000
DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Ask:
    """A request as it arrived."""

    number: int
    """Counted from 0, lists of models not."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes
    body: Any
    """Decoded; None where there is not one."""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has closed the connection before the reply was complete."""

    @property
    def is_stream(self) -> bool:
        return bool(self.body and self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body["messages"]
        return found

    @property
    def tool_names(self) -> list[str]:
        """Of the functions that are offered."""
        return [one["function"]["name"] for one in self.body.get("tools", ()) if one["type"] == "function"]


@dataclass(frozen=True)
class Wire:
    """One answer as bytes."""

    pieces: Sequence[bytes]
    """Each is sent by itself: one event each, unless it was cut up further."""
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    held_after: int | None = None
    """So many bytes, and it waits for `gate`. None of the head either, where it is 0."""
    gate: asyncio.Event | None = None
    """None: it waits until the client goes."""
    cut_after: int | None = None
    """So many bytes, and the connection is closed."""


Reply = Callable[[Ask], Wire]


@dataclass(frozen=True)
class Call:
    """One tool call."""

    name: str
    arguments: str = "{}"
    id: str | None = AUTO
    """None: it has none."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields next to `function`, such as `extra_content`."""


def call(name: str, arguments: Any = "{}", *, id: str | None = AUTO, **extra: Any) -> Call:  # noqa: A002
    """A call for `calls`. `arguments` are taken as text as they are, anything else as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Call(name, text, id, extra)


@dataclass(frozen=True)
class Turn:
    """What a model says in one turn of a chat; a Reply. Streamed or whole, as it is asked for."""

    content: str | None = None
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    """None: as OpenAI has it."""
    usage: Mapping[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the message that OpenAI does not have, such as `reasoning_content`."""
    step: int = 16
    """Characters in a delta."""
    at_index_zero: bool = False
    """Every call is at index 0, as from ollama or Gemini."""
    repeats_ids: bool = False
    """Every delta of a call has its id and name, not only the first."""

    def __call__(self, request: Ask) -> Wire:
        if not request.is_stream:
            return Wire([encode(self.completion(request))])
        pieces = [b"data: " + encode(chunk) + b"\n\n" for chunk in self.chunks(request)]
        return Wire([*pieces, DONE], kind="text/event-stream")

    def completion(self, request: Ask) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.content, "refusal": None, **self.extra}
        if self.calls:
            message["tool_calls"] = [
                {**self._id(request, place), "type": "function", "function": function(one), **one.extra}
                for place, one in enumerate(self.calls)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason}
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**_head(request, "chat.completion"), "choices": [choice], **usage}

    def chunks(self, request: Ask) -> Iterator[dict[str, Any]]:
        head = _head(request, "chat.completion.chunk")
        for delta in self._deltas(request):
            yield {**head, "choices": [_choice(delta)]}
        yield {**head, "choices": [_choice({}, self._reason)]}
        if self.usage is not None and (request.body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self.usage}

    def _deltas(self, request: Ask) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": None if self.content is None else "", **self.extra}
        for part in _parts(self.content or "", self.step):
            yield {"content": part}
        for place, one in enumerate(self.calls):
            index = {"index": 0 if self.at_index_zero else place}
            first = {**self._id(request, place), "type": "function", **one.extra}
            yield {"tool_calls": [{**index, **first, "function": {"name": one.name, "arguments": ""}}]}
            for part in _parts(one.arguments, self.step):
                again = first if self.repeats_ids else {}
                named = {"name": one.name} if self.repeats_ids else {}
                yield {"tool_calls": [{**index, **again, "function": {**named, "arguments": part}}]}

    def _id(self, request: Ask, place: int) -> dict[str, str]:
        given = self.calls[place].id
        if given is None:
            return {}
        return {"id": f"call_{request.number}_{place}" if given == AUTO else given}

    @property
    def _reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


def text(content: str, **options: Any) -> Turn:
    """An answer in words. `options` are fields of Turn."""
    return Turn(content=content, **options)


def calls(*made: Call | tuple[Any, ...], content: str | None = None, **options: Any) -> Turn:
    """Tool calls: `("name", '{"a": 1}')`, `("name", '{"a": 1}', "id")` or `call(...)`."""
    return Turn(
        content=content,
        calls=tuple(
            one if isinstance(one, Call) else call(*one[:2], id=(*one, AUTO)[2] if len(one) > 2 else AUTO)
            for one in made
        ),
        **options,
    )


def whole(document: Any, *, kind: str = "application/json") -> Reply:
    """This JSON, or these bytes as they are, whatever was asked for."""
    body = document if isinstance(document, bytes) else encode(document)
    return lambda request: Wire([body], kind=kind)


def status(code: int, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
    """An error. Without `body` it is one of OpenAI's."""
    failure = {"error": {"message": f"status {code}", "type": "server_error", "param": None, "code": None}}
    piece = body if isinstance(body, bytes) else encode(failure if body is None else body)
    return lambda request: Wire([piece], status=code, headers=headers or {})


def stream(*pieces: bytes) -> Reply:
    """An event stream of exactly these bytes, each piece by itself."""
    return lambda request: Wire(pieces, kind="text/event-stream")


def events(*payloads: Mapping[str, Any]) -> Reply:
    """Events of the Responses API: `event: <type>` and `data: <payload>`; `sequence_number` is added.

    Asked for a whole answer, it is the `response` of the last event that has one.
    """
    numbered = [{**payload, "sequence_number": number} for number, payload in enumerate(payloads)]

    def completion(request: Ask) -> Wire:
        if not request.is_stream:
            return Wire([encode([one["response"] for one in payloads if "response" in one][-1])])
        pieces = [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), encode(one)) for one in numbered]
        return Wire(pieces, kind="text/event-stream")

    return completion


# How a reply goes over the wire. Each takes a reply and gives another.


def cut(completion: Reply, after: int) -> Reply:
    """The connection is closed after so many bytes of the body."""
    return lambda request: replace(completion(request), cut_after=after)


def hold(completion: Reply, gate: asyncio.Event | None = None, *, after: int = 0) -> Reply:
    """After so many bytes of the body it waits for `gate`; 0: before the head is sent, even."""
    return lambda request: replace(completion(request), held_after=after, gate=gate)


def hang(completion: Reply | None = None, *, after: int = 0) -> Reply:
    """After so many bytes it waits until the client goes."""
    return hold(completion or whole({}), after=after)


def in_bytes(completion: Reply, size: int = 1) -> Reply:
    """So many bytes at a time: characters, lines and events are split."""

    def resplit(request: Ask) -> Wire:
        wire = completion(request)
        body = b"".join(wire.pieces)
        return replace(wire, pieces=[body[at : at + size] for at in range(0, len(body), size)])

    return resplit


def without_done(completion: Reply) -> Reply:
    """A stream that ends without `[DONE]`."""

    def shorten(request: Ask) -> Wire:
        wire = completion(request)
        return replace(wire, pieces=[piece for piece in wire.pieces if piece != DONE])

    return shorten


def fail_after(completion: Reply, count: int, error: Any = None) -> Reply:
    """A stream that says an error after so many events, and ends."""
    failure = {"error": {"message": "the model broke down", "type": "server_error", "code": None}}
    piece = b"data: " + encode(failure if error is None else error) + b"\n\n"
    return lambda request: replace(completion(request), pieces=[*completion(request).pieces[:count], piece])


def encode(value: Any) -> bytes:
    """Not in ASCII, so that there are characters to split."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def function(made: Call) -> dict[str, str]:
    return {"name": made.name, "arguments": made.arguments}


def _head(request: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": CREATED,
        "model": request.body.get("model", "scripted"),
        "system_fingerprint": "fp_scripted",
    }


def _choice(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _parts(content: str, step: int) -> Iterable[str]:
    return (content[at : at + step] for at in range(0, len(content), step))
