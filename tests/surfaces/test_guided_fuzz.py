"""FUZ-19: the parsers of what strangers send, under a fuzzer that looks which lines its inputs reach."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.soak import rounds

SCRIPT = Path(__file__).with_name("guided_fuzz.py")
ROOT = Path(__file__).parents[2]
MOST = (f"-runs={rounds(suite=5_000, soak=-1)}", f"-max_total_time={rounds(suite=20, soak=1_800)}")
"""Whichever is reached first."""
WITHIN_S = rounds(suite=60, soak=3_600)
SEEDS = {
    "envelope": [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b","arguments":{"x":[1,2.5e3]}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\\u00e9"}}',
        b'{"jsonrpc":"2.0","id":"x","result":{}}',
        b'[{"jsonrpc":"2.0","id":-1,"method":"ping"}]',
        b'{"id":123456789012345678901234567890,"method":"ping","jsonrpc":"2.0","params":null}',
    ],
    "query": [
        b"?tools=git.log,git.*&servers=git",
        b"/s/git?profile=review&task=x",
        b"/t/review?tools=a%2Cb&tools=c",
        b"?tools=%F0%9F%92%A9&TOOLS=a;b",
    ],
    "events": [
        b'id: 1\nevent: message\ndata: {"a":1}\n\n',
        b": comment\r\nretry: 10\r\ndata: a\r\ndata: b\r\n\r\n",
        b"\xef\xbb\xbfdata:x\r\rdata\n\nid\n",
    ],
}
FITS = (sys.platform, platform.machine(), sys.version_info[:2]) == ("linux", "x86_64", (3, 11))


@pytest.mark.soak
@pytest.mark.skipif(not FITS, reason="the fuzzer comes for CPython 3.11 on x86-64 Linux")
@pytest.mark.parametrize("parser", SEEDS)
def test_fuz_19_no_input_that_reaches_new_lines_breaks_a_parser(parser: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS[parser]):
        (corpus / str(number)).write_bytes(seed)
    command = [sys.executable, "-P", str(SCRIPT), parser, str(corpus), *MOST, "-timeout=5"]

    ran = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )

    assert (ran.returncode, "DONE" in ran.stderr) == (0, True), ran.stdout + ran.stderr
