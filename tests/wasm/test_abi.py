"""Descriptors: numbered from 1000, never twice, bounded, and gone when they are closed."""

from collections.abc import Callable
from functools import partial

import pytest

from toolgate.wasm.abi import FIRST_FD, Errno, FdEntry, FdTable, HostcallFault


class Lamp(FdEntry):
    kind = "Lamp"

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Door(FdEntry):
    kind = "Door"


def errno_of(call: Callable[[], object]) -> Errno:
    with pytest.raises(HostcallFault) as caught:
        call()
    return caught.value.errno


def test_numbers_begin_at_1000_and_are_never_used_again() -> None:
    """WAS-4"""
    table = FdTable(2)
    lamp = Lamp()

    assert table.open(lamp) == 1_000
    assert table.open(Door()) == 1_001
    table.close(1_000)
    assert table.open(Door()) == 1_002
    assert lamp.closed == 1
    assert errno_of(lambda: table.close(1_000)) == Errno.EBADF


def test_what_is_for_nothing_or_for_another_kind_is_bad() -> None:
    """WAS-4"""
    table = FdTable(2)
    fd = table.open(Lamp())

    assert table.get(fd, Lamp) is table.get(fd, FdEntry)
    for bad in (-1, 0, 3, 999, 1_001, 2**31 - 1, -(2**31)):
        assert errno_of(partial(table.get, bad, FdEntry)) == Errno.EBADF
    assert errno_of(lambda: table.get(fd, Door)) == Errno.EBADF
    assert errno_of(lambda: table.close(fd, Door)) == Errno.EBADF


def test_there_are_not_more_than_may_be_and_all_are_let_go_at_the_end() -> None:
    """WAS-5"""
    table = FdTable(3)
    lamps = [Lamp() for _ in range(3)]
    for lamp in lamps:
        table.open(lamp)

    assert errno_of(lambda: table.open(Lamp())) == Errno.EMFILE
    table.close_all()
    assert [lamp.closed for lamp in lamps] == [1, 1, 1]
    assert len(table) == 0


def test_numbers_run_out_before_they_would_be_negative() -> None:
    table = FdTable(3, last=FIRST_FD)
    table.close(table.open(Lamp()))

    assert errno_of(lambda: table.open(Lamp())) == Errno.EMFILE
