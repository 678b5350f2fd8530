"""A program that knows only its C library runs: it has streams, arguments and the time, and no files."""

import shutil
from pathlib import Path

import pytest

from tests.guests.built import build
from tests.wasm.wat import job
from toolgate.wasm.compiling import compile_module
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots
from toolgate.wasm.wasi import WASI_FUNCTIONS

pytestmark = pytest.mark.anyio

STATED = """\
args probe a b
env blue homeless
in one
in two
eof 1
tty 111
open 0 1
create 1
dir 0
stat -1
fstat 0
mkdir -1 unlink -1 rename -1
seek -1
slept 1
now 1
poll 1 1
entropy 0
malloc 1
raw
"""


async def test_a_c_program_has_streams_and_time_and_no_files(tmp_path: Path) -> None:
    source = tmp_path / "libc_probe.c"
    shutil.copy(Path(__file__).parent / source.name, source)
    module = build(source, "-std=gnu11", "--target=wasm32-wasi", "-s", "-Wl,-z,stack-size=131072")
    target = tmp_path / "compiled"
    await compile_module(module, target)
    async with Slots[None](WASI_FUNCTIONS, max_guests=1) as slots:
        ending = await slots.run(
            GuestRun(job(target, None, args=("probe", "a b"), env={"COLOUR": "blue"}, input_=b"one\ntwo"))
        )

    assert ending.stdout.decode() == STATED
    assert (ending.stderr, ending.exit_code, slots.host_faults) == (b"bye\n", 42, 0)
