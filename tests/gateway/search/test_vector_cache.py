"""Vectors kept between runs."""

import sqlite3
from pathlib import Path

import pytest

from toolgate.gateway.search.semantic import VectorCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


def reopened(cache: VectorCache, path: Path, model_id: str = "m") -> VectorCache:
    cache.close()
    return VectorCache(path, model_id)


def test_what_was_put_is_there_in_the_next_run(path: Path) -> None:
    first = VectorCache(path, "m")
    first.put({"one": b"1", "two": b"2"})
    second = reopened(first, path)

    assert path.stat().st_mode & 0o077 == 0
    assert second.get(["two", "one", "three"]) == {"one": b"1", "two": b"2"}
    second.close()


def test_another_model_has_other_vectors(path: Path) -> None:
    one, other = VectorCache(path, "m"), VectorCache(path, "n")
    one.put({"text": b"m"})
    other.put({"text": b"n"})

    assert (one.get(["text"]), other.get(["text"])) == ({"text": b"m"}, {"text": b"n"})
    one.close()
    other.close()


def test_the_oldest_make_room(path: Path) -> None:
    cache = VectorCache(path, "m", max_vectors=3)
    for number in range(5):
        cache.put({str(number): b"v"})
    cache.put({"2": b"again"})

    assert cache.get([str(number) for number in range(5)]) == {"2": b"again", "3": b"v", "4": b"v"}
    cache.close()


def test_half_a_character_is_a_text_like_any(path: Path) -> None:
    cache = VectorCache(path, "m")
    cache.put({"\ud800": b"v"})

    assert cache.get(["\ud800"]) == {"\ud800": b"v"}
    cache.close()


def test_a_damaged_file_is_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"no database " * 1_000)
    cache = VectorCache(path, "m")
    first = cache.get(["text"])
    cache.put({"text": b"v"})

    assert (first, cache.get(["text"])) == ({}, {"text": b"v"})
    assert "replacing the damaged file" in caplog.text
    cache.close()


def test_a_file_that_is_damaged_inside_is_replaced(path: Path) -> None:
    cache = VectorCache(path, "m")
    texts = [f"text {number}" for number in range(500)]
    cache.put(dict.fromkeys(texts, b"v" * 200))
    cache.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    first = cache.get(texts)
    cache.put({"text": b"v"})

    assert (first, cache.get(["text"])) == ({}, {"text": b"v"})
    cache.close()


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = VectorCache(tmp_path / "no such directory" / "vectors", "m")
    cache.put({"text": b"v"})

    assert cache.get(["text"]) == {}
    assert caplog.text.count("cannot save vectors") == 1


def test_a_file_that_another_process_holds_is_not_taken_for_damaged(path: Path) -> None:
    cache = VectorCache(path, "m", wait_s=0.01)
    cache.put({"text": b"v"})
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    held = cache.get(["text"])
    holder.execute("COMMIT")
    holder.close()

    assert (held, cache.get(["text"])) == ({}, {"text": b"v"})
    cache.close()
