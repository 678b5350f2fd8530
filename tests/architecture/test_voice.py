"""The product and its tests are written in VOICE: see `voice.py` and the lists in `voice.toml`."""

import pytest

from tests.architecture.source_tree import Module
from tests.architecture.voice import find_all, find_classes, find_words
from tests.architecture.voice_texts import find_in_text, find_in_texts


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param('"""The key of whoever calls."""', ['"whoever"'], id="docstring"),
        pytest.param("# it is sent\n# to nobody", ['"nobody"'], id="comment"),
        pytest.param('x = f"it stands in {place}"', ['"stands"'], id="formatted string"),
        pytest.param('"""A list of\n    ours."""', ['"of ours"'], id="over the end of a line"),
        pytest.param("def keep_errand(): pass", ["keep_errand"], id="identifier"),
        pytest.param("MyPurse = 1", ["MyPurse"], id="word in capitals"),
        pytest.param("if x is None or outstanding: pass", [], id="code and parts of words"),
    ],
)
def test_words_are_found_in_prose_and_in_names(source: str, expected: list[str]) -> None:
    assert [one.word for one in find_words(Module("sample", source))] == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("class Sending: pass", ["class Sending"], id="gerund"),
        pytest.param("class _Kept: pass", ["class _Kept"], id="participle"),
        pytest.param("class CallRecorded(Struct, tag='call'): pass", [], id="event"),
        pytest.param("class Refused(ToolgateError): pass", [], id="error"),
        pytest.param("class Setting: pass\nclass TokenBinding: pass", [], id="noun"),
        pytest.param("class Seat: pass\nclass Seat: pass", ["class Seat", "class Seat"], id="two of a name"),
    ],
)
def test_classes_are_things_with_names_of_their_own(source: str, expected: list[str]) -> None:
    assert [one.word for one in find_classes([Module("sample", source)])] == expected


def test_everything_is_written_in_voice() -> None:
    assert [str(one) for one in find_all()] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("The key of whoever calls.", [(1, '"whoever"')], id="prose"),
        pytest.param(
            "one\nthe budget\n  over time", [(2, '"budget over time"')], id="over the end of a line"
        ),
        pytest.param("an understanding, no era2", [], id="parts of words"),
    ],
)
def test_words_are_found_in_documents(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(one.line, one.word) for one in find_in_text("sample.md", text)] == expected


def test_documents_and_the_console_are_written_in_voice() -> None:
    assert [str(one) for one in find_in_texts()] == []
