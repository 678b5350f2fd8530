"""Spans on their way to a collector: bounded, retried, and never in the way of a call."""

import asyncio
import logging

import pytest

from tests.telemetry.traced import open_traced
from toolgate.errors import CallTimedOut
from toolgate.telemetry.spans import ExportRejected
from toolgate.telemetry.tracing import MAX_TRIES, OtelTracer, SpanQueue, make_resource, open_tracing

pytestmark = pytest.mark.anyio

PARENT = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=1"}
UNSAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}


class Refusing:
    """A collector that takes nothing until it is told to."""

    def __init__(self, *, may_retry: bool = True) -> None:
        self.tries = 0
        self.taken = 0
        self.may_retry = may_retry
        self.is_well = False
        self.tried = asyncio.Event()

    async def send(self, body: bytes) -> None:
        self.tries += 1
        self.tried.set()
        if not self.is_well:
            raise ExportRejected("it is gone", may_retry=self.may_retry)
        self.taken += 1


async def test_a_span_is_a_child_of_the_one_around_it_and_of_the_trace_it_continues() -> None:
    async with open_traced() as traced:
        tracing = traced.tracing
        with tracing.continued(PARENT), tracing.span("outer", "server"):
            with tracing.span("inner", "client", {"n": 1}):
                handed_on = tracing.carried()
            inside = tracing.trace_id
        outside = tracing.trace_id
    inner, outer = traced.spans

    assert (inside, outside) == ("a" * 32, "")
    assert (outer.parent_id, inner.parent_id) == ("b" * 16, outer.span_id)
    assert handed_on == {"traceparent": f"00-{'a' * 32}-{inner.span_id}-01", "tracestate": "x=1"}
    assert (inner.kind, inner.notes) == ("CLIENT", {"n": 1})


async def test_tasks_that_run_side_by_side_keep_their_traces_apart() -> None:
    async with open_traced() as traced:

        async def request(number: int) -> str:
            with traced.tracing.span(str(number), "server"):
                await asyncio.sleep(0)
                with traced.tracing.span(f"{number} inner"):
                    await asyncio.sleep(0)
                return traced.tracing.trace_id

        ids = await asyncio.gather(*map(request, range(5)))
    by_trace = {
        span.trace_id: {one.name[0] for one in traced.collector.of(span.trace_id)} for span in traced.spans
    }

    assert by_trace == {trace_id: {str(number)} for number, trace_id in enumerate(ids)}


async def test_a_caller_who_leaves_its_trace_out_is_handed_on_and_not_sent() -> None:
    async with open_traced() as traced:
        with traced.tracing.continued(UNSAMPLED), traced.tracing.span("one") as span:
            span.note("a", 1)
            handed_on = traced.tracing.carried()["traceparent"]

    assert (traced.spans, handed_on[:36], handed_on[-3:]) == ([], f"00-{'a' * 32}-", "-00")


async def test_a_sample_of_none_sends_none_of_our_own() -> None:
    async with open_traced(sample=0.0) as traced:
        with traced.tracing.span("own"):
            pass
        with traced.tracing.continued(PARENT), traced.tracing.span("theirs"):
            pass

    assert [span.name for span in traced.spans] == ["theirs"]


@pytest.mark.parametrize(
    ("raised", "code"),
    [(CallTimedOut("late"), "timeout"), (asyncio.CancelledError(), "cancelled"), (KeyError("x"), "internal")],
)
async def test_what_is_raised_makes_a_failure_of_its_code_alone(raised: BaseException, code: str) -> None:
    async with open_traced() as traced:
        with pytest.raises(type(raised)), traced.tracing.span("one"):
            raise raised
    [span] = traced.spans

    assert (span.is_failed, span.notes) == (True, {"error.type": getattr(raised, "code", code)})


async def test_what_waits_for_a_collector_is_bounded() -> None:
    waiting = SpanQueue(Refusing().send, every_s=60, max_queued=3)
    tracing = OtelTracer(waiting, make_resource("here"))
    for _ in range(5):
        with tracing.span("one"):
            pass

    assert waiting.dropped == 2


async def test_a_collector_that_is_gone_is_tried_a_few_times_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Refusing()
    quick = {"every_s": 0.001, "retry_s": 0.001}
    async with open_tracing(collector.send, make_resource("here"), sample=1, **quick) as tracing:
        with caplog.at_level(logging.INFO), tracing.span("lost"):
            pass
        async with asyncio.timeout(60):
            while collector.tries < MAX_TRIES:
                await asyncio.sleep(0.001)
        collector.is_well = True
        with tracing.span("found"):
            pass
        async with asyncio.timeout(60):
            while not collector.taken:
                await asyncio.sleep(0.001)

    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "cannot send traces to the collector: it is gone"
    ]
    assert collector.tries == MAX_TRIES + 1


async def test_what_a_collector_refuses_is_not_sent_again() -> None:
    collector = Refusing(may_retry=False)
    async with open_tracing(collector.send, make_resource("here"), sample=1, every_s=0.001) as tracing:
        with tracing.span("one"):
            pass
        async with asyncio.timeout(60):
            await collector.tried.wait()

    assert collector.tries == 1


async def test_what_ended_last_is_sent_when_the_process_ends() -> None:
    collector = Refusing()
    collector.is_well = True
    async with open_tracing(collector.send, make_resource("here"), sample=1, every_s=600) as tracing:
        with tracing.span("one"):
            pass

    assert collector.taken == 1


async def test_an_unexpected_error_costs_spans_and_not_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send(_: bytes) -> None:
        raise RuntimeError("who would have thought")

    waiting = SpanQueue(send, every_s=600)
    with OtelTracer(waiting, make_resource("here")).span("one"):
        pass
    await waiting.finish()

    assert waiting.dropped == 1
    assert [record.message for record in caplog.records] == ["cannot send spans; dropping them"]


def test_the_standard_variables_say_who_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
    found = make_resource("node-1").attributes

    assert (found["service.name"], found["service.instance.id"]) == ("edge", "node-1")
    assert found["deployment.environment.name"] == "prod"
