"""Turns with calls of both sides: what the caller did not see is put back when it answers."""

import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chat.conversations import HI, call, function, offered, plain, raw, reply_of, request_of
from tests.upstream.strict_history import fault_of
from toolgate.chat.completions import Transcript
from toolgate.chat.hidden_turns import (
    ID_PREFIX,
    MAX_BYTES,
    MAX_RAW_BYTES,
    MAX_RESTORED_BYTES,
    HiddenRound,
    HiddenTurn,
    decode_hidden,
    encode_hidden,
    restore_turns,
    shorten_id,
)
from toolgate.chat.model_completion import ModelCompletion
from toolgate.chat.parsing import check_messages
from toolgate.chat.tool_loop import PromptModel

TOKEN = f"{ID_PREFIX}token"
SIGNED = {"google": {"thought_signature": "s=="}}
MIXED = [
    call("h1", arguments='{"path":"a"}', extra_content=SIGNED),
    call("o1", "mine", '{"x":1}', extra_content=SIGNED),
    call("h2", arguments='{"path":"b"}'),
    call("o2", "mine", '{"x":2}'),
]


class Handing:
    """A conversation that ends with calls handed over, and what any caller then knows of it."""

    def __init__(self, *rounds: ModelCompletion) -> None:
        self.transcript = Transcript(request_of(tools=[function("mine")]), offered("read"))
        for completion in rounds:
            self.transcript.take(completion)
            for one in completion.calls:
                if one.name != "mine":
                    self.transcript.add_result(one, f"result of {one.call_id}")
        self.handed = tuple(one for one in rounds[-1].calls if one.name == "mine")
        sealed = encode_hidden(self.transcript.hide_turn(self.handed))
        self.turns = {TOKEN: decode_hidden(sealed)}
        self.completion = rounds[-1]
        self.shown = "".join(completion.text or "" for completion in rounds)

    @property
    def calls(self) -> list[Any]:
        """The calls as the caller gets them: its own, the first under an id of the gateway."""
        ids = [one.call_id for one in self.handed]
        entries = [json.loads(bytes(entry)) for entry in self.completion.entries]
        mine = [entry for entry in entries if entry["id"] in ids]
        return [{**mine[0], "id": TOKEN}, *mine[1:]]

    @property
    def message(self) -> dict[str, Any]:
        message = {name: json.loads(bytes(one)) for name, one in self.completion.without_calls().items()}
        return {**message, "tool_calls": self.calls}

    @property
    def results(self) -> list[Any]:
        return [result(one["id"]) for one in self.calls]

    def spliced(self, *messages: Any) -> list[Any]:
        return plain(restore_turns([raw(one) for one in messages], self.turns.get))

    @property
    def whole(self) -> list[Any]:
        """The history as it would be, had the gateway made all calls itself."""
        for one in self.handed:
            self.transcript.add_result(one, "mine")
        messages: list[Any] = json.loads(self.transcript.build_request(PromptModel(choice="auto")))[
            "messages"
        ]
        return messages


def result(call_id: str, content: str = "mine") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def whole_message(handing: Handing) -> dict[str, Any]:
    return handing.message


def streamed_message(handing: Handing) -> dict[str, Any]:
    """A stream shows the text of all rounds."""
    return {**handing.message, "content": handing.shown or None}


def dumped_message(handing: Handing) -> dict[str, Any]:
    """Clients with types write nulls for all that they know."""
    return {"refusal": None, "audio": None, "function_call": None, "annotations": None, **handing.message}


def handmade_message(handing: Handing) -> dict[str, Any]:
    calls = [call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in handing.calls]
    return {"role": "assistant", "content": None, "tool_calls": calls}


CALLERS = [whole_message, streamed_message, dumped_message, handmade_message]


@pytest.mark.parametrize("tell", CALLERS)
def test_what_was_hidden_is_put_back_exactly(tell: Callable[[Handing], dict[str, Any]]) -> None:
    handing = Handing(
        reply_of(call("e1", extra_content=SIGNED), content="First I look."),
        reply_of(*MIXED, content="Now both.", reasoning_content="hm"),
    )
    spliced = handing.spliced(HI, tell(handing), *handing.results)

    assert spliced == handing.whole
    assert [one["id"] for one in spliced[3]["tool_calls"]] == ["h1", "o1", "h2", "o2"]


@pytest.mark.parametrize("tell", CALLERS)
def test_a_caller_that_continues_many_turns_later_still_has_it(
    tell: Callable[[Handing], dict[str, Any]],
) -> None:
    handing = Handing(reply_of(*MIXED))
    later = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "and?"}]

    assert handing.spliced(HI, tell(handing), *handing.results, *later) == [*handing.whole, *later]


def test_a_history_that_is_sent_twice_is_whole_twice() -> None:
    handing = Handing(reply_of(*MIXED))
    once = [HI, handing.message, *handing.results]

    assert handing.spliced(*once, *once) == handing.whole * 2


def test_results_stay_in_the_order_the_caller_gives_them() -> None:
    handing = Handing(reply_of(*MIXED))
    spliced = handing.spliced(handing.message, *reversed(handing.results))

    assert [one["tool_call_id"] for one in spliced[1:]] == ["h1", "h2", "o2", "o1"]


def test_a_call_that_the_caller_has_dropped_is_gone() -> None:
    handing = Handing(reply_of(*MIXED))
    spliced = handing.spliced({**handing.message, "tool_calls": handing.calls[:1]}, handing.results[0])

    assert [one["id"] for one in spliced[0]["tool_calls"]] == ["h1", "o1", "h2"]
    assert [one["tool_call_id"] for one in spliced[1:]] == ["h1", "h2", "o1"]


def test_a_caller_that_has_dropped_the_first_call_is_taken_at_its_word() -> None:
    handing = Handing(reply_of(*MIXED))
    message = {**handing.message, "tool_calls": handing.calls[1:]}

    assert handing.spliced(message, handing.results[1]) == [message, handing.results[1]]


def test_a_call_that_the_caller_has_added_stays() -> None:
    handing = Handing(reply_of(*MIXED))
    message = {**handing.message, "tool_calls": [*handing.calls, call("new", "mine")]}

    assert handing.spliced(message)[0]["tool_calls"] == [*MIXED, call("new", "mine")]


def test_calls_in_another_order_are_put_back_in_the_first() -> None:
    handing = Handing(reply_of(*MIXED))
    message = {**handing.message, "tool_calls": handing.calls[::-1]}

    assert handing.spliced(message)[0]["tool_calls"] == MIXED


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param("Now both.", "Now both.", id="as it was"),
        pytest.param("First I look.\n\nNow both.", "Now both.", id="all that was shown"),
        pytest.param(None, "Now both.", id="nothing"),
        pytest.param("Edited.", "Edited.", id="something else"),
        pytest.param("Now both. And more.", "Now both. And more.", id="more"),
        pytest.param([{"type": "text", "text": "Now"}], [{"type": "text", "text": "Now"}], id="parts"),
    ],
)
def test_the_caller_may_edit_the_text(received: Any, expected: Any) -> None:
    handing = Handing(
        reply_of(call("e1"), content="First I look."),
        reply_of(*MIXED, content="Now both."),
    )

    assert handing.spliced({**handing.message, "content": received})[2]["content"] == expected


def test_the_caller_may_edit_its_own_calls() -> None:
    handing = Handing(reply_of(*MIXED))
    message = {**handing.message, "tool_calls": [call(TOKEN, "mine", '{"x":9}')]}

    assert handing.spliced(message)[0]["tool_calls"][1] == call("o1", "mine", '{"x":9}', extra_content=SIGNED)


def test_broken_arguments_of_the_callers_own_calls_come_back_mended() -> None:
    handing = Handing(reply_of(MIXED[0], call("o1", "mine", '{"x":')))
    spliced = handing.spliced(handing.message)

    assert spliced[0]["tool_calls"][1] == call("o1", "mine", '{"__invalid__":"{\\"x\\":"}')


def test_a_call_of_another_kind_comes_back_as_well() -> None:
    custom = {"id": "o1", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    turn = HiddenTurn(
        message={"role": raw("assistant"), "tool_calls": raw([call("h1"), custom])},
        results=(("h1", "done"),),
        own_ids=("o1",),
    )
    message = {"role": "assistant", "tool_calls": [{**custom, "id": TOKEN}]}

    assert plain(restore_turns([raw(message)], {TOKEN: turn}.get)) == [
        {"role": "assistant", "tool_calls": [call("h1"), custom]},
        result("h1", "done"),
    ]


# What does not open


def test_an_id_that_does_not_open_becomes_a_short_one_and_nothing_else_changes() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call(TOKEN, "mine"), call("o2", "mine")]}
    spliced = plain(restore_turns([raw(message), raw(result(TOKEN)), raw(result("o2"))], lambda _: None))
    short = shorten_id(TOKEN)

    assert spliced == [
        {**message, "tool_calls": [call(short, "mine"), call("o2", "mine")]},
        result(short),
        result("o2"),
    ]
    assert len(short) <= 40
    assert not short.startswith(ID_PREFIX)


def test_a_second_id_of_the_gateway_in_one_message_is_somebodys_invention() -> None:
    handing = Handing(reply_of(*MIXED))
    forged = f"{ID_PREFIX}forged"
    message = {**handing.message, "tool_calls": [*handing.calls, call(forged, "mine")]}
    opened: list[str] = []

    def open_turn(call_id: str) -> HiddenTurn | None:
        opened.append(call_id)
        return handing.turns[TOKEN]

    spliced = plain(restore_turns([raw(message)], open_turn))

    assert opened == [TOKEN]
    assert [one["id"] for one in spliced[0]["tool_calls"]] == ["h1", "o1", "h2", "o2", shorten_id(forged)]


def test_messages_without_an_id_of_the_gateway_are_not_touched() -> None:
    sent = [
        msgspec.Raw(b'{"role": "user",  "content": "tgc_"}'),
        raw(result("a")),
        raw([TOKEN]),
        msgspec.Raw(b"tgc_"),
    ]

    def open_turn(_: str) -> HiddenTurn | None:
        raise AssertionError("nothing to open")

    assert [bytes(one) for one in restore_turns(sent, open_turn)] == [bytes(one) for one in sent]
    assert restore_turns(sent[1:2], open_turn) == tuple(sent[1:2])
    assert plain(restore_turns([raw({"tool_calls": [call("tgc-a"), call("a", "tgc_")]})], open_turn)) == [
        {"tool_calls": [call("tgc-a"), call("a", "tgc_")]}
    ]


JUNK = st.recursive(
    st.none() | st.integers() | st.sampled_from([TOKEN, f"{ID_PREFIX}x", "a", "assistant", "tool", "mine"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "id", "type", "function"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(JUNK, max_size=4))
def test_whatever_a_caller_sends_nothing_is_raised(messages: list[Any]) -> None:
    handing = Handing(reply_of(*MIXED))

    assert len(handing.spliced(*messages)) >= len(messages)


# How it travels


def random_text(size: int) -> str:
    return "".join(random.Random(size).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def turn_of(results: Sequence[tuple[str, str]] = (), *, arguments: str = "{}", **more: Any) -> HiddenTurn:
    calls = [call(call_id, arguments=arguments) for call_id, _ in results]
    message = {"role": raw("assistant"), "tool_calls": raw([*calls, call("o1", "mine")])}
    return HiddenTurn(message=message, results=tuple(results), own_ids=("o1", "o2"), **more)


def opened(turn: HiddenTurn, max_bytes: int = MAX_BYTES) -> HiddenTurn:
    sealed = encode_hidden(turn, max_bytes=max_bytes)
    found = decode_hidden(sealed)
    assert len(sealed) <= max_bytes
    assert found is not None
    return found


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=50)), max_size=4), st.booleans())
def test_a_turn_reads_back_as_it_was(results: list[tuple[str, str]], has_earlier: bool) -> None:
    earlier = (HiddenRound(message={"content": raw("x")}, results=tuple(results)),) if has_earlier else ()
    turn = turn_of(results, earlier=earlier)

    assert opened(turn) == turn


def test_a_turn_of_which_the_caller_sees_everything_is_empty() -> None:
    assert turn_of().is_empty
    assert not turn_of([("h1", "x")]).is_empty
    assert not turn_of(earlier=(HiddenRound(message={}, results=()),)).is_empty


def test_long_results_are_cut_and_say_so() -> None:
    turn = turn_of([("h1", random_text(200_000)), ("h2", "short")])
    found = opened(turn)

    assert found.message == turn.message
    assert found.results[1] == ("h2", "short")
    assert found.results[0][1].startswith(random_text(200_000)[:1_000])
    assert found.results[0][1].endswith(" of 200,000 bytes]")


def test_what_compresses_well_is_bounded_too() -> None:
    found = opened(turn_of([(f"h{number}", "x" * 100_000) for number in range(50)]))

    assert len(found.results) == 50
    assert all(text.endswith(" of 100,000 bytes]") for _, text in found.results)


def test_results_of_earlier_rounds_are_cut_as_well() -> None:
    earlier = HiddenRound(message={"role": raw("assistant")}, results=(("e1", random_text(100_000)),))
    found = opened(turn_of([("h1", "short")], earlier=(earlier,)))

    assert found.results == (("h1", "short"),)
    assert found.earlier[0].results[0][1].endswith(" of 100,000 bytes]")


def test_earlier_rounds_that_cannot_be_cut_are_left_out() -> None:
    earlier = HiddenRound(message={"content": raw(random_text(100_000))}, results=())
    found = opened(turn_of([("h1", "short")], earlier=(earlier,)))

    assert (found.results, found.earlier) == ((("h1", "short"),), ())


def test_of_calls_that_cannot_be_cut_the_first_id_is_left() -> None:
    found = opened(turn_of([("h1", "short")], arguments=random_text(100_000)))

    assert found == HiddenTurn(message={}, results=(), own_ids=("o1",))
    message = {"role": "assistant", "content": "x", "tool_calls": [call(TOKEN, "mine")]}
    assert plain(restore_turns([raw(message), raw(result(TOKEN))], {TOKEN: found}.get)) == [
        {**message, "tool_calls": [call("o1", "mine")]},
        result("o1"),
    ]


def test_where_there_is_no_room_at_all_nothing_travels() -> None:
    assert encode_hidden(turn_of([("h1", "short")]), max_bytes=10) == b""


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage", id="garbage"),
        pytest.param(zlib.compress(b"[1]"), id="another shape"),
        pytest.param(zlib.compress(b'[{},[],[],["\xff"]]'), id="no text"),
        pytest.param(zlib.compress(b"[" * 100_000), id="deep"),
        pytest.param(zlib.compress(b'[{},[],["' + b"x" * MAX_RAW_BYTES + b'"],[]]'), id="a bomb"),
    ],
)
def test_what_is_no_turn_is_nothing(data: bytes) -> None:
    assert decode_hidden(data) is None


def test_an_id_that_is_sent_again_and_again_opens_only_so_often() -> None:
    size = MAX_RESTORED_BYTES // 8
    found = decode_hidden(encode_hidden(turn_of([("h1", "x" * (size - 1_000))])))
    message = {"role": "assistant", "content": None, "tool_calls": [call(TOKEN, "mine")]}
    spliced = restore_turns([raw(message), raw(result(TOKEN))] * 100, {TOKEN: found}.get)

    assert sum(map(len, spliced)) < MAX_RESTORED_BYTES + 2 * size
    assert fault_of({"model": "m", "messages": [HI, *plain(spliced)]}) is None


# All of it together

NAMES = st.sampled_from(["mcp__fs__read", "mcp__fs__gone", "mine"])
ARGUMENTS = st.sampled_from(["{}", '{"a":1}', '{"a":', ""])
TEXTS = st.sampled_from([None, "", "Let me see.", " so "])


@st.composite
def handings(draw: st.DrawFn) -> Handing:
    rounds = []
    for number in range(draw(st.integers(0, 2))):
        calls = [
            call(f"e{number}{at}", "mcp__fs__read", draw(ARGUMENTS)) for at in range(draw(st.integers(1, 2)))
        ]
        rounds.append(reply_of(*calls, content=draw(TEXTS)))
    names = draw(st.permutations(["mine", *draw(st.lists(NAMES, max_size=4))]))
    last = [call(f"l{at}", name, draw(ARGUMENTS), vendor=at) for at, name in enumerate(names)]
    return Handing(*rounds, reply_of(*last, content=draw(TEXTS)))


@given(handings(), st.sampled_from(CALLERS))
def test_every_turn_is_put_back_exactly_and_is_taken_by_strict_servers(
    handing: Handing, tell: Callable[[Handing], dict[str, Any]]
) -> None:
    sent = [HI, tell(handing), *handing.results]
    check_messages([raw(one) for one in sent])
    spliced = handing.spliced(*sent)
    body = {"model": "m", "messages": spliced}

    assert fault_of(body) is None
    assert spliced == handing.whole
