"""Log lines of a request say the trace they belong to, while requests are traced."""

import logging

import pytest

from tests.telemetry.traced import open_traced
from toolgate.telemetry import setup_logging
from toolgate.telemetry.logs import append_trace_ids

pytestmark = pytest.mark.anyio

_log = logging.getLogger("toolgate.test")


@pytest.fixture(autouse=True)
def _own_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)


async def test_a_line_within_a_span_ends_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info")
    async with open_traced() as traced:
        tracing = traced.tracing
        with append_trace_ids(lambda: tracing.trace_id if tracing.is_recording else ""):
            _log.info("outside")
            with tracing.span("one"):
                _log.info("in\nside")
                trace_id = tracing.trace_id
        with tracing.span("two"):
            _log.info("no more")
    lines = [line.partition("toolgate.test ")[2] for line in capsys.readouterr().err.splitlines()]

    assert lines == ["outside", f"in\\nside trace_id={trace_id}", "no more"]
