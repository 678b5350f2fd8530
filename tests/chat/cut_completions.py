"""Whole replies, and the streams that servers would have made of them."""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from hypothesis import strategies as st

Quirk = Literal["none", "names", "ids", "zero", "zero_ids", "no_index", "fresh_ids"]
"""How calls are cut up.

none: an index each · names, ids: said with every piece · zero: all at index 0 · zero_ids: so, with the id in
every piece · no_index: without any · fresh_ids: another id with every piece.
"""
QUIRKS: tuple[Quirk, ...] = ("none", "names", "ids", "zero", "zero_ids", "no_index", "fresh_ids")
IN_ORDER: tuple[Quirk, ...] = ("zero", "no_index")
"""Only the order says to which call a piece belongs."""
PLACES = st.lists(st.integers(0, 40), max_size=4)

TEXTS = st.text(st.sampled_from('ab é😀"\\\n'), min_size=1, max_size=9)
ARGUMENTS = st.sampled_from(['{"path":"a b"}', '{"a":{"b":[1,{"c":"{}"}]}}', '{"cut', "{}", '{"t":"é😀\\n"}'])
EXTRAS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"extra_content": {"google": {"thought_signature": "c2ln"}}}, {"x": None}]
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_content": TEXTS,
        "refusal": st.none(),
        "x_object": st.fixed_dictionaries({"deep": st.fixed_dictionaries({"text": TEXTS})}),
        "x_numbers": st.just([1, 2.5]),
        "reasoning_details": st.lists(TEXTS, min_size=1, max_size=3).map(
            lambda texts: [{"index": n, "type": "reasoning.text", "text": one} for n, one in enumerate(texts)]
        ),
    },
)


@dataclass
class Cut:
    """One reply, whole and in chunks."""

    whole: bytes
    chunks: list[bytes]
    content: str | None


def _pieces(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def _field_deltas(name: str, value: Any, places: list[int]) -> list[dict[str, Any]]:
    """`value` as a server streams it: its texts cut up, the rest once."""
    match value:
        case str():
            return [{name: piece} for piece in _pieces(value, places)]
        case {"deep": {"text": text}}:
            return [{name: {"deep": {"text": piece}}} for piece in _pieces(text, places)]
        case [{"index": _}, *_]:
            return [
                {name: [entry | {"text": piece}]}
                for entry in value
                for piece in _pieces(entry["text"], places)
            ]
        case [*entries]:
            return [{name: [entry]} for entry in entries]
        case _:
            return [{name: value}]


def _call_deltas(index: int, call: dict[str, Any], quirk: Quirk, places: list[int]) -> list[dict[str, Any]]:
    first, *later = _pieces(call["function"]["arguments"], places)
    name = {"name": call["function"]["name"]}
    pieces: list[dict[str, Any]] = [call | {"function": name | {"arguments": first}}]
    for n, piece in enumerate(later):
        sent_text: dict[str, Any] = {"function": (name if quirk == "names" else {}) | {"arguments": piece}}
        if quirk in ("ids", "zero_ids"):
            sent_text["id"] = call["id"]
        elif quirk == "fresh_ids":
            sent_text["id"] = f"{call['id']}.{n}"
        pieces.append(sent_text)
    where = {} if quirk == "no_index" else {"index": 0 if quirk.startswith("zero") else index}
    return [{"tool_calls": [where | piece]} for piece in pieces]


@st.composite
def _calls(draw: st.DrawFn, quirk: Quirk) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Calls, and the deltas of them."""
    drawn = draw(st.lists(st.tuples(st.sampled_from(["f", "get_x"]), ARGUMENTS, EXTRAS, PLACES), max_size=3))
    calls = [
        {"id": f"call_{n}", "type": "function", **extra, "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments, extra, _) in enumerate(drawn)
    ]
    streams = [_call_deltas(n, call, quirk, drawn[n][-1]) for n, call in enumerate(calls)]
    if quirk == "zero_ids":  # the order in which they begin is all there is
        begun = [stream[0] for stream in streams]
        return calls, [*begun, *draw(shuffled([stream[1:] for stream in streams]))]
    if quirk in IN_ORDER:
        return calls, [delta for stream in streams for delta in stream]
    return calls, draw(shuffled(streams))


@st.composite
def cut_completions(draw: st.DrawFn) -> Cut:
    """Replies, whole and streamed in any of the ways there are."""
    content = draw(st.none() | TEXTS)
    fields = draw(FIELDS)
    calls, of_calls = draw(st.sampled_from(QUIRKS).flatmap(_calls))
    message = {"role": "assistant", "content": content, **fields} | ({"tool_calls": calls} if calls else {})
    streams = [_field_deltas(name, value, draw(PLACES)) for name, value in fields.items()]
    streams.append(_field_deltas("content", content, draw(PLACES)))
    deltas = [{"role": "assistant", "content": None}, *draw(shuffled([*streams, of_calls])), {}]
    reason = draw(st.sampled_from(["stop", "tool_calls"]))
    head = {"id": "chatcmpl-1", "created": 7, "model": "m"}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 3}}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else reason}], "usage": None}
        for delta in deltas
    ]
    chunks.append({"choices": [], "usage": {"total_tokens": 3}})
    return Cut(
        json.dumps(whole).encode(),
        [json.dumps({**head, "object": "chat.completion.chunk", **chunk}).encode() for chunk in chunks],
        content,
    )


@st.composite
def shuffled(draw: st.DrawFn, streams: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All of them, each in its own order."""
    turns = draw(st.permutations([n for n, stream in enumerate(streams) for _ in stream]))
    rests = [iter(stream) for stream in streams]
    return [next(rests[n]) for n in turns]
