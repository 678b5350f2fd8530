"""A stream cut into lines is the same however it was cut into chunks."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.upstream.stdio.pipes import LineSplitter, LineTooLong


@given(st.lists(st.binary(max_size=20) | st.just(b"\n"), max_size=30))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    splitter = LineSplitter(1000)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]

    assert lines == b"".join(chunks).split(b"\n")[:-1]


def test_a_line_of_exactly_the_bound_passes_and_one_byte_more_does_not() -> None:
    splitter = LineSplitter(10)

    assert splitter.feed(b"12345") + splitter.feed(b"67890") + splitter.feed(b"\nab") == [b"1234567890"]
    with pytest.raises(LineTooLong):
        splitter.feed(b"123456789")


def test_a_long_line_within_one_chunk_is_refused() -> None:
    with pytest.raises(LineTooLong):
        LineSplitter(10).feed(b"short\n12345678901\n")


def test_the_end_of_a_long_line_counts_too() -> None:
    splitter = LineSplitter(10)
    splitter.feed(b"12345")
    with pytest.raises(LineTooLong):
        splitter.feed(b"678901\n")

    assert splitter.feed(b"after\n") == [b"after"]


def test_try_6_a_line_that_comes_byte_by_byte_costs_little_more_than_its_length() -> None:
    size = 256 * 1024
    splitter = LineSplitter(size)
    tracemalloc.start()
    try:
        for _ in range(size):
            splitter.feed(b"x")
        (line,) = splitter.feed(b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(line) == size
    assert peak < 2.5 * size
