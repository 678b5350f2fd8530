"""`toolgate run` and `toolgate invocations`: what they ask, what they print, how they end."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.screen import shown
from toolgate.cli.commands.runs import render_invocation, render_invocations
from toolgate.cli.root import main

SUM = "/api/v1/tasks/sum/invocations"


def ending(**fields: Any) -> dict[str, Any]:
    usage = {"fuel": 12_345, "wall_ms": 7, "memory_bytes": 65_536, "hostcalls": 2, "model_asks": 0}
    return {
        "ended_by": "exit",
        "exit_code": 0,
        "message": "",
        "stdout": "42\n",
        "stdout_base64": None,
        "stderr": "",
        "stderr_base64": None,
        "is_truncated": False,
        "usage": {**usage, "tool_calls": 1},
        "calls": [{"server_id": "git", "tool": "log", "code": "mcp_timeout", "ms": 30}],
        **fields,
    }


def invocation(*, ended: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "invocation_id": "018bcfe56800" + "0" * 16,
        "task_id": "sum",
        "principal": "key:ada",
        "state": "queued" if ended is None else "succeeded",
        "revision": 3,
        "created_ms": 1_700_000_000_000,
        "started_ms": None if ended is None else 1_700_000_001_000,
        "ended_ms": None if ended is None else 1_700_000_003_500,
        "attempt": 1,
        "retries": 0,
        "is_cancel_asked": False,
        "ended_by": None if ended is None else ended["ended_by"],
        "exit_code": None if ended is None else ended["exit_code"],
        "ending": ended,
        **fields,
    }


ONE = f"{SUM}/{invocation()['invocation_id']}"


def line(seq: int, text: str, stream: str = "stdout", level: str = "info") -> dict[str, Any]:
    return {"seq": seq, "at_ms": 0, "stream": stream, "level": level, "text": text}


def stage(gateway: FakeGateway, *lines: dict[str, Any], **ended: Any) -> None:
    """A run that writes these lines, and ends so."""
    events = [("state", {"state": "queued", "attempt": 0}), *(("line", one) for one in lines)]
    events.append(("end", invocation(ended=ending(**ended))))
    stream = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
    gateway.respond(f"POST {SUM}", invocation(), 202)
    gateway.respond(f"GET {ONE}/events", b": keep-alive\n\n" + stream.encode())


def test_a_run_looks_like_a_program_of_ones_own(gateway: FakeGateway, run: Run) -> None:
    log = line(1, "begins", "log", "warn")
    stage(
        gateway, log, line(2, "42"), line(3, "broken", "stderr"), exit_code=3, stdout="42\n", stderr="broken"
    )

    ran = run("run", "sum", "--input", "6*7")

    assert gateway.asked[0].body == {"mode": "async", "input": "6*7"}
    assert (ran.code, ran.out, ran.err) == (3, "42\n", "warn  begins\nbroken\n")


@pytest.mark.parametrize(
    ("lines", "stdout"),
    [
        pytest.param(["a", "b"], b"a\nb", id="without an end of line at the end"),
        pytest.param(["a", "", "b"], b"a\n\nb\n", id="with empty lines"),
        pytest.param([], b"", id="nothing"),
        pytest.param(["x" * 16_384, "x"], b"x" * 16_385, id="a line that is two in the log"),
        pytest.param(["\ufffd"], b"\xff\x00", id="what is no text"),
    ],
)
def test_standard_output_is_passed_on_exactly(
    gateway: FakeGateway, capsysbinary: pytest.CaptureFixture[bytes], lines: list[str], stdout: bytes
) -> None:
    encoded = {"stdout": None, "stdout_base64": base64.b64encode(stdout).decode()}
    stage(gateway, *(line(seq, text) for seq, text in enumerate(lines, 1)), **encoded)

    assert main(("run", "sum")) == 0
    assert capsysbinary.readouterr().out == stdout


def test_a_terminal_shows_output_line_by_line_and_harmless(
    gateway: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(gateway, line(1, "a\x1b[2J"), line(2, "b" * 100), stdout="a\x1b[2J\n" + "b" * 100)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert run("run", "sum").out == f"a\\x1b[2J\n{'b' * 100}\n"


def test_input_comes_from_a_file_and_may_be_anything(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    stage(gateway)
    (tmp_path / "in").write_bytes(b"\xff\x00")

    assert run("run", "sum", "--input-file", str(tmp_path / "in"), "--idempotency-key", "once").code == 0
    assert gateway.asked[0].body == {"mode": "async", "input_base64": "/wA="}
    assert gateway.asked[0].headers["idempotency-key"] == "once"
    assert run("run", "sum", "--input-file", str(tmp_path / "none")).code == 2
    assert run("run", "sum", "--input-file", "x", "--input", "y").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--idempotency-key", "é"),
        ("--idempotency-key", "a\nb"),
        ("--idempotency-key", ""),
        ("--input", "\udcff"),
        ("--input", "a", "--input-file", "b"),
    ],
)
def test_what_cannot_be_sent_is_refused(gateway: FakeGateway, run: Run, words: tuple[str, ...]) -> None:
    ran = run("run", "sum", *words)

    assert (ran.code, ran.err.partition(": ")[0], gateway.asked) == (2, "error", [])


def test_what_ends_a_run_from_outside_is_reported_with_a_hint(gateway: FakeGateway, run: Run) -> None:
    message = "it used up its fuel: raise `limits.fuel` of its workload, or do less"
    stage(gateway, ended_by="out_of_fuel", exit_code=None, message=message, stdout="")

    ran = run("run", "sum")

    assert (ran.code, ran.out) == (1, "")
    assert f"(out_of_fuel): {message}\n" in ran.err
    assert f"toolgate invocations get sum {invocation()['invocation_id']}" in ran.err


def test_exit_codes_stay_failures(gateway: FakeGateway, run: Run) -> None:
    stage(gateway, exit_code=256)

    assert run("run", "sum").code == 1


def test_an_asynchronous_run_is_named(gateway: FakeGateway, run: Run) -> None:
    stage(gateway)

    ran, as_json = run("run", "sum", "--async"), run("run", "sum", "--async", "--json")

    assert ran.lines == [
        "018bcfe568000000000000000000 is queued. To see its result, run:",
        "  toolgate invocations get sum 018bcfe568000000000000000000",
    ]
    assert as_json.json["state"] == "queued"


def test_with_json_the_whole_run_is_one_object(gateway: FakeGateway, run: Run) -> None:
    stage(gateway, line(1, "42"), line(2, "x", "log"))

    ran = run("run", "sum", "--json")

    assert ran.json["ending"]["stdout"] == "42\n"
    assert ran.err == "info  x\n"


def test_a_stream_that_breaks_off_says_that_the_run_goes_on(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"POST {SUM}", invocation(), 202)
    gateway.respond(f"GET {ONE}/events", b'event: state\ndata: {"state": "running", "attempt": 1}\n\n')

    ran = run("run", "sum")

    assert ran.code == 1
    assert "the run continues" in ran.err


def test_ctrl_c_cancels_the_run(gateway: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(gateway, line(1, "42"))
    gateway.respond(f"POST {ONE}/cancel", invocation())

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolgate.cli.commands.runs.show_line", interrupt)
    ran = run("run", "sum")

    assert ran.code == 130
    assert gateway.last.path == f"{ONE}/cancel"


def test_a_run_that_takes_too_long_is_cancelled(
    gateway: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(gateway, line(1, "42"))
    gateway.respond(f"POST {ONE}/cancel", invocation())
    times = iter([0.0, 0.2, 9.0])
    monkeypatch.setattr("toolgate.cli.commands.runs.time.monotonic", lambda: next(times))

    ran = run("run", "sum", "--timeout", "1s")

    assert ran.code == 1
    assert ran.err.startswith("error: the run took longer than `1s` and was cancelled\n  try: ")
    assert gateway.last.path == f"{ONE}/cancel"


def test_logs_are_printed_page_by_page_or_followed(gateway: FakeGateway, run: Run) -> None:
    stage(gateway, line(1, "42"), line(2, "x", "log"))
    gateway.respond(f"GET {ONE}", invocation())
    one = invocation()["invocation_id"]
    followed = run("invocations", "logs", "sum", one, "--follow")
    as_json = run("invocations", "logs", "sum", one, "--follow", "--json")
    gateway.respond(f"GET {ONE}/logs", {"state": "running", "lines": []})
    nothing = run("invocations", "logs", "sum", one)

    assert (followed.out, followed.err) == ("42\ninfo  x\n", "")
    assert [json.loads(text)["text"] for text in as_json.lines] == ["42", "x"]
    assert nothing.out == ""


def test_runs_are_listed_and_cancelled(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"GET {SUM}", {"invocations": [invocation()], "next_cursor": None})
    gateway.respond(f"POST {ONE}/cancel", invocation(state="cancelled"))

    assert run("invocations", "list", "sum", "--limit", "7").code == 0
    assert gateway.last.query == {"limit": "7"}
    assert run("invocations", "cancel", "sum", invocation()["invocation_id"]).code == 0


def test_a_list_of_runs_fits_80_columns() -> None:
    found = [
        invocation(),
        invocation(ended=ending()),
        invocation(ended=ending(ended_by="stack_overflow", exit_code=None), state="failed"),
        invocation(state="running", is_cancel_asked=True),
    ]

    assert shown(render_invocations(found)) == [
        "INVOCATION                    STATE      ENDED BY        DURATION  CREATED",
        "018bcfe568000000000000000000  queued                               11-14 22:13",
        "018bcfe568000000000000000000  succeeded  exit 0             2.5 s  11-14 22:13",
        "018bcfe568000000000000000000  failed     stack_overflow     2.5 s  11-14 22:13",
        "018bcfe568000000000000000000  ending                               11-14 22:13",
    ]
    assert shown(render_invocations([])) == ["no runs: start one with `toolgate run TASK`"]


def test_a_run_is_shown_with_all_that_came_of_it() -> None:
    ended = ending(stdout="a\x1b[0m\n", stderr=None, message="it is so", is_truncated=True)

    assert shown(render_invocation(invocation(ended=ended, attempt=2, retries=3))) == [
        "invocation  018bcfe568000000000000000000",
        "task        sum",
        "by          key:ada",
        "state       succeeded",
        "created     2023-11-14 22:13:20 UTC",
        "attempt     2",
        "ended by    exit",
        "exit code   0",
        "message     it is so",
        "duration    2.5 s",
        "fuel        12,345",
        "memory      65,536 bytes",
        "calls       1 to tools, 0 to models",
        "output      truncated: raise `limits.max_output_bytes`",
        "",
        "CALL     MS  FAILED",
        "git.log  30  mcp_timeout",
        "",
        "stdout",
        "a\\x1b[0m",
        "",
        "stderr: not text; see `--json`",
    ]
