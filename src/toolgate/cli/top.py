"""`toolgate top`: what servers are doing, live in a terminal."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import typer
from rich.live import Live
from typer import Option

from toolgate.cli.client.rest import RestClient, open_client
from toolgate.cli.failure import CommandError
from toolgate.cli.frames import make_frame, makes_calls, totals_between, totals_from_audit
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import open_console
from toolgate.cli.readings import MetricsInterval, MetricsReading, parse_reading
from toolgate.cli.render.top import TopFrame, render_frame
from toolgate.errors import NotFound

AUDITED_S: Final = 60
"""The span that is shown where calls are known from the audit: nodes hand theirs over with some delay."""

app = typer.Typer(add_completion=False)


@app.command("top")
@spread_options
def top_command(
    connection: GatewayConnection,
    *,
    interval_s: Annotated[
        float, Option("--interval", min=0.2, max=3600, help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[bool, Option("--once", help="One frame, plain, and end: for pipes and scripts.")] = False,
    nodes: Annotated[
        list[str] | None,
        Option("--node", help="A node to read as well, with the same key; may be repeated. They add up."),
    ] = None,
) -> None:
    """Show calls a second, p95, errors and queues of each server, and what is denied, until Ctrl-C.

    A control makes no calls itself: it shows what its nodes told it of the last minute. Name the nodes to
    see what they do now.

    \b
    toolgate top --interval 10
    toolgate top --once
    toolgate top --url https://control.example --node https://node-1.example
    """
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        client = stack.enter_context(connection.open())
        key = connection.load_key() if nodes else None
        sources = [client, *(stack.enter_context(open_client(url, key)) for url in nodes or ())]
        frames = watch_frames(client, sources, interval_s)
        if once or connection.as_json:
            frame = next(frames)
            connection.output.show(asdict(frame), render_frame(frame))
        else:
            _show_live(frames)


def watch_frames(client: RestClient, sources: Sequence[RestClient], interval_s: float) -> Iterator[TopFrame]:
    """A frame each interval. Once there is one, a gateway that is away for a while is told of."""
    before = _read(sources)
    frame: TopFrame | None = None
    while True:
        time.sleep(interval_s)
        try:
            after = _read(sources)
            frame = _make_frame(client, MetricsInterval(before, after))
            before = after
        except CommandError as failure:
            if frame is None:
                raise
            frame = replace(frame, trouble=str(failure))
        yield frame


def _read(sources: Sequence[RestClient]) -> MetricsReading:
    texts = [b"".join(source.chunks("/metrics", {})).decode() for source in sources]
    return parse_reading(texts, time.monotonic())


def _make_frame(client: RestClient, interval: MetricsInterval) -> TopFrame:
    if makes_calls(interval.after):
        happened = totals_between(interval)
    else:
        since_ms = int((time.time() - AUDITED_S) * 1e3)
        happened = totals_from_audit(
            client.get("/admin/api/activity", {"since": str(since_ms), "buckets": "1"})
        )
    clock = time.strftime("%H:%M:%S")
    return make_frame(interval.after, happened, url=client.url, clock=clock, nodes=_list_nodes(client))


def _list_nodes(client: RestClient) -> Sequence[Mapping[str, Any]]:
    """Those that follow the gateway; none where it is a node itself."""
    try:
        found: Sequence[Mapping[str, Any]] = client.get("/admin/api/nodes")["nodes"]
    except CommandError as failure:
        if failure.code != NotFound.code:
            raise
        return ()
    return found


def _show_live(frames: Iterator[TopFrame]) -> None:
    console = open_console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for frame in frames:
            live.update(render_frame(frame, console.height), refresh=True)
