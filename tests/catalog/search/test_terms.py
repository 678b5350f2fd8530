"""Text to terms: identifiers, English, and scripts without spaces."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.word_search import (
    MAX_TERM_CHARS,
    MAX_TEXT_CHARS,
    SYNONYMS,
    split_name,
    split_terms,
    stem,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("--- !?", [], id="signs alone"),
        pytest.param("list_open-issues.now", ["list", "open", "issu", "now"], id="snake, kebab and dots"),
        pytest.param("createDocument", ["creat", "document", "createdocument"], id="camel, also as a whole"),
        pytest.param("HTTPServer2", ["http", "server", "2", "httpserver2"], id="capitals and digits"),
        pytest.param("PDFs IDs", ["pdf", "id"], id="the plural of an abbreviation is one word"),
        pytest.param("URLsToPDF", ["url", "pdf", "urlstopdf"], id="also inside of a name"),
        pytest.param("to_S3", ["s", "3", "s3"], id="letters and digits"),
        pytest.param("the user's files", ["user", "fil"], id="a genitive"),
        pytest.param("it wasn\u2019t there", ["wasn"], id="a typographic apostrophe"),
        pytest.param("do it", ["do", "it"], id="stop words where there is nothing else"),
        pytest.param("GRÖẞER ＡＢＣ", ["grösser", "abc"], id="case and width do not matter"),
        pytest.param("表", ["表"], id="one character"),
        pytest.param("工作簿", ["工", "作", "簿", "工作", "作簿"], id="Chinese, in pairs and one by one"),
        pytest.param("ﾌｧｲﾙ", ["フ", "ァ", "イ", "ル", "ファ", "ァイ", "イル"], id="kana of half width"),
        pytest.param("파일", ["파", "일", "파일"], id="Hangul"),
        pytest.param(
            "Excel表格v2", ["excel", "表", "格", "表格", "v", "2", "v2"], id="mixed, without a space"
        ),
        pytest.param("हिन्दी में", ["हिन्दी", "में"], id="vowel signs belong to their word"),
        pytest.param("a" * 60, ["a" * MAX_TERM_CHARS], id="a word without end"),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert split_terms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("工作簿", ["工作", "作簿"], id="pairs alone where there are"),
        pytest.param("表 工作", ["表", "工作"], id="a single character"),
        pytest.param("please help me find issues", ["find", "issu"], id="without what is said around it"),
        pytest.param("get help", ["get", "help"], id="unless that is all"),
    ],
)
def test_query_terms(text: str, expected: list[str]) -> None:
    assert split_terms(text, is_query=True) == expected


@pytest.mark.parametrize(
    "words",
    [
        "create creates created creating creation",
        "convert converts converted converting",
        "plan plans planned planning",
        "query queries querying",
        "search searches searching searched",
        "address addresses addressed",
        "fill filled filling",
        "box boxes",
    ],
)
def test_forms_of_one_word_are_one_term(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize(
    "words", ["status stat", "string str", "class clay", "need ne", "analysis analyse", "bring br"]
)
def test_other_words_stay_other_terms(words: str) -> None:
    one, other = words.split()

    assert stem(one) != stem(other)


@pytest.mark.parametrize("name", ["readFile", "read_file", "read-file", "read.file", "Read File"])
def test_a_name_is_split_into_words(name: str) -> None:
    assert split_name(name) == "read file"


def test_synonyms_go_both_ways_and_are_terms_as_queries_have_them() -> None:
    assert all(term in SYNONYMS[other] for term, others in SYNONYMS.items() for other in others)
    assert all(term not in others for term, others in SYNONYMS.items())
    assert [
        term for term in SYNONYMS if not term.isascii() and split_terms(term, is_query=True) != [term]
    ] == []


@given(st.text(max_size=200))
def test_terms_are_short_and_do_not_depend_on_how_a_text_is_composed(text: str) -> None:
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in split_terms(text))
    assert split_terms(unicodedata.normalize("NFKC", text)) == split_terms(text)


@given(st.text(max_size=200))
def test_a_text_is_found_by_itself(text: str) -> None:
    found = set(split_terms(text))

    assert bool(found & set(split_terms(text, is_query=True))) is bool(found)


@given(st.text(max_size=50), st.text(max_size=50))
def test_two_texts_have_the_terms_of_each(one: str, other: str) -> None:
    apart = [term for text in (one, other) for term in split_terms(text)]

    assert set(split_terms(f"{one} \n {other}")) <= set(apart)


def test_a_text_without_end_is_cut() -> None:
    assert len(split_terms("ab " * MAX_TEXT_CHARS)) == MAX_TEXT_CHARS // 3
    assert (
        len(split_terms("\ufdfa" * MAX_TEXT_CHARS)) <= MAX_TEXT_CHARS
    )  # one character that normalises to eighteen


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=200))
def test_a_text_of_ascii_alone_has_the_terms_that_it_has_among_other_characters(text: str) -> None:
    among = text + "\u00a0"  # a space, and not ASCII

    assert split_terms(text) == split_terms(among)
    assert split_terms(text, is_query=True) == split_terms(among, is_query=True)
