"""Characters that a server cut in two are put together again."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.model_completion import SurrogateMender

TEXTS = st.text(st.sampled_from('aé😀🇪\\"u\n') | st.characters(codec="utf-8"), max_size=12)


def cut(text: str, places: list[int]) -> list[bytes]:
    """`text` as a server sends it that counts in UTF-16."""
    units = text.encode("utf-16-le")
    edges = [0, *sorted(2 * (place % (len(units) // 2 + 1)) for place in places), len(units)]
    pieces = [units[start:end] for start, end in pairwise(edges)]
    return [json.dumps({"t": one.decode("utf-16-le", "surrogatepass")}).encode() for one in pieces]


def joined(pieces: list[bytes]) -> str:
    halves = SurrogateMender()
    return "".join(json.loads(halves.mend(piece))["t"] for piece in pieces)


@given(TEXTS, st.lists(st.integers(0, 40), max_size=5))
def test_a_text_is_whole_however_it_is_cut(text: str, places: list[int]) -> None:
    # Two cuts in one place make an empty piece between two halves: no server sends that.
    pieces = [piece for piece in cut(text, places) if piece != b'{"t": ""}']

    assert joined(pieces) == text


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([rb'{"t":"a\ud83d"}', rb'{"t":"b"}'], "ab", id="a first half that nothing follows"),
        pytest.param([rb'{"t":"\ude00b"}'], "\ufffdb", id="a second half that follows nothing"),
        pytest.param([rb'{"t":"\ud83db"}'], "\ufffdb", id="a first half within a text"),
        pytest.param([rb'{"t":"\ud83d"}', rb'{"t":"x\ude00"}'], "x\ufffd", id="a second half too late"),
        pytest.param([rb'{"t":"\\ud83d"}', rb'{"t":"\ude00"}'], "\\ud83d\ufffd", id="an escaped backslash"),
        pytest.param([rb'{"t":"\uD83D\uDE00"}'], "😀", id="a whole one"),
    ],
)
def test_halves_that_are_alone(pieces: list[bytes], expected: str) -> None:
    assert joined(pieces) == expected


def test_what_has_no_halves_is_left_alone() -> None:
    data = '{"t":"é \\u00e9"}'.encode()

    assert SurrogateMender().mend(data) is data
