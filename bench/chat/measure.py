"""What the chat door costs: each round of tools without the model's time, and many streams at once on one node.

    ../.venv/bin/python chat/measure.py [--seconds 4] [--rounds 3] [--streams 200]

The model and the MCP server answer at once (`upstreams.py`). A client that runs the loop by itself, one request to the
model and one call to the server a round, is measured in turns with one that asks the gateway. What is left between the
two, divided by the rounds, is what the gateway adds. The gateway has processor 0; the others share processor 1.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import uvloop

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))

import procs
import wire

PROJECT = HERE.parents[1]
TOOLGATE = str(PROJECT / ".venv/bin/toolgate")
UPSTREAM_PORT, PORT = 21951, 21952
UPSTREAM, GATEWAY = f"127.0.0.1:{UPSTREAM_PORT}", f"127.0.0.1:{PORT}"
QUESTION = [{"role": "user", "content": "Say it all."}]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
TOOLS = [{"type": "function", "function": {"name": "mcp__bench__echo", "parameters": {"type": "object"}}}]


class Connection(asyncio.Protocol):
    """One kept-alive connection: a message out, a message or a stream of pieces in."""

    def __init__(self) -> None:
        self.buffer = b""
        self.waiting: asyncio.Future[bytes] | None = None
        self.on_data: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.on_data is not None:
            self.on_data(data)
            return
        self.buffer += data
        found = wire.split(self.buffer)
        if found is not None and self.waiting is not None:
            head, body, used = found
            self.buffer = self.buffer[used:]
            assert head.startswith(b"HTTP/1.1 2"), (head, body)
            self.waiting.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(exc or ConnectionError("closed"))

    async def ask(self, request: bytes) -> bytes:
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiting


async def connect(address: str) -> Connection:
    host, port = address.split(":")
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
    return connection


def post(address: str, path: str, body: dict, *more: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", f"host: {address}", "content-type: application/json",
             "accept: application/json, text/event-stream", f"content-length: {len(data)}", *more, "", ""]
    return "\r\n".join(lines).encode() + data


class Direct:
    """A client that knows MCP and runs the loop by itself, against model and server."""

    def __init__(self, rounds: int) -> None:
        # Every request is made beforehand: what is measured is model and server, not this client's JSON.
        self.asks, self.calls = [], []
        messages: list[dict] = list(QUESTION)
        for number in range(rounds + 1):
            self.asks.append(post(UPSTREAM, "/v1/chat/completions",
                                  {"model": f"rounds-{rounds}", "messages": messages, "tools": TOOLS}))
            call = {"id": f"call_{number}", "type": "function",
                    "function": {"name": "mcp__bench__echo", "arguments": json.dumps({"text": f"round {number}"})}}
            messages = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": call["id"], "content": "said"}]
            params = {"name": "echo", "arguments": {"text": f"round {number}"}, "_meta": META}
            self.calls.append(post(UPSTREAM, "/mcp",
                                   {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
                                   "mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: echo"))

    async def open(self) -> "Direct":
        self.model, self.server = await connect(UPSTREAM), await connect(UPSTREAM)
        return self

    async def once(self) -> None:
        for ask, call in zip(self.asks[:-1], self.calls, strict=False):
            await self.model.ask(ask)
            await self.server.ask(call)
        assert b"All of it was said." in await self.model.ask(self.asks[-1])


class Through:
    """A client that knows nothing but the chat door."""

    def __init__(self, rounds: int) -> None:
        self.request = post(GATEWAY, "/t/bench/v1/chat/completions",
                            {"model": f"rounds-{rounds}", "messages": QUESTION})

    async def open(self) -> "Through":
        self.door = await connect(GATEWAY)
        return self

    async def once(self) -> None:
        assert b"All of it was said." in await self.door.ask(self.request)


async def closed_loop(clients: list, seconds: float) -> list[float]:
    """The durations of all requests that these clients make one after the other, in milliseconds."""
    took: list[float] = []
    ends = time.perf_counter() + seconds

    async def run(client) -> None:
        while (begun := time.perf_counter()) < ends:
            await client.once()
            took.append((time.perf_counter() - begun) * 1000)

    await asyncio.gather(*map(run, clients))
    return took


async def overhead(pids: list[int], *, tool_rounds: int, clients: int, seconds: float, turns: int) -> dict:
    """One row: medians over the turns."""
    rows = []
    for _ in range(turns):
        direct = await closed_loop([await Direct(tool_rounds).open() for _ in range(clients)], seconds)
        begun = procs.cpu(pids)
        through = await closed_loop([await Through(tool_rounds).open() for _ in range(clients)], seconds)
        used = procs.cpu(pids) - begun
        rows.append((statistics.median(direct), statistics.median(through),
                     used / len(through) / max(tool_rounds, 1) * 1000, len(through) / seconds))
    direct_ms, through_ms, cpu_ms, rate = (statistics.median(column) for column in zip(*rows, strict=True))
    return {"rounds": tool_rounds, "clients": clients, "direct_ms": direct_ms, "through_ms": through_ms,
            "added_ms": (through_ms - direct_ms) / max(tool_rounds, 1), "cpu_ms": cpu_ms, "rate": rate}


async def one_stream(address: str, path: str, model: str, gate: asyncio.Event) -> tuple[float, float, bytes]:
    """Milliseconds to the first word and to the end, and all that came."""
    connection = await connect(address)
    ended = asyncio.get_running_loop().create_future()
    parts: list[bytes] = []
    first_ms = 0.0

    def arrived(data: bytes) -> None:
        nonlocal first_ms
        parts.append(data)
        if not first_ms and b"word0 " in data:
            first_ms = (time.perf_counter() - begun) * 1000
        if data.endswith(b"0\r\n\r\n") and not ended.done():
            ended.set_result(None)

    connection.on_data = arrived
    await gate.wait()
    begun = time.perf_counter()
    body = {"model": model, "messages": QUESTION, "stream": True}
    connection.transport.write(post(address, path, body))
    await asyncio.wait_for(ended, 120)
    connection.transport.close()
    return first_ms, (time.perf_counter() - begun) * 1000, b"".join(parts)


async def streams(pids: list[int], *, number: int, address: str, path: str, model: str) -> dict:
    """All at once. Each is checked to the last word."""
    gate = asyncio.Event()
    tasks = [asyncio.create_task(one_stream(address, path, model, gate)) for _ in range(number)]
    await asyncio.sleep(0.5)
    lags: list[float] = []
    watching = asyncio.create_task(watch_lag(lags)) if address == GATEWAY else None
    begun_cpu, begun = procs.cpu(pids), time.perf_counter()
    gate.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    took, used = time.perf_counter() - begun, procs.cpu(pids) - begun_cpu
    if watching is not None:
        watching.cancel()
    pieces = int(model.rsplit("-", 1)[1])
    whole = [one for one in done if not isinstance(one, BaseException)
             and b"data: [DONE]" in one[2] and all(b"word%d " % at in one[2] for at in range(pieces))]
    firsts = sorted(one[0] for one in whole)
    ends = sorted(one[1] for one in whole)
    return {"complete": len(whole), "of": number, "first_p50_ms": quantile(firsts, 0.5),
            "first_p99_ms": quantile(firsts, 0.99), "end_p50_ms": quantile(ends, 0.5),
            "end_p99_ms": quantile(ends, 0.99), "chunks_per_s": number * pieces / took,
            "cpu_s": used, "took_s": took, "pss_mb": procs.memory(pids), "lag_ms": max(lags, default=0.0)}


def quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


async def watch_lag(lags: list[float]) -> None:
    while True:
        text = await asyncio.to_thread(fetch, "/metrics")
        lags += [float(line.split()[1]) for line in text.splitlines() if line.startswith("toolgate_loop_lag_ms ")]
        await asyncio.sleep(0.5)


def fetch(path: str) -> str:
    with urllib.request.urlopen(f"http://{GATEWAY}{path}", timeout=10) as answer:
        return answer.read().decode()


def put(path: str, body: dict) -> None:
    request = urllib.request.Request(f"http://{GATEWAY}{path}", json.dumps(body).encode(), method="PUT",
                                     headers={"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def until(look: Callable[[], bool], within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while True:
        try:
            if look():
                return
        except OSError:
            pass
        if time.monotonic() > ends:
            raise SystemExit("it did not start")
        time.sleep(0.1)


def register() -> None:
    server = {"server_id": "bench", "transport": "streamable_http", "allowed_tools": ["*"], "prewarm": True,
              "http": {"url": f"http://{UPSTREAM}/mcp"}, "budgets": {"max_concurrency": 256}}
    put("/admin/api/mcp/servers/bench", server)
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["bench"]'}
    put("/admin/api/tasks/bench", {"task_id": "bench", "config": config})
    upstream = {"upstream_id": "bench", "base_url": f"http://{UPSTREAM}/v1", "models": ["*"], "max_concurrency": 1024,
                "budgets": {"max_iterations": 32}}
    put("/admin/api/chat-upstreams/bench", upstream)
    until(lambda: "bench.echo" in fetch("/api/v1/mcp/tools?task=bench"))


async def measure(pids: list[int], options: argparse.Namespace) -> None:
    print("| rounds | clients | by oneself, ms | through Toolgate, ms | added a round, ms | processor a round, ms | chats/s |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for tool_rounds, clients in ((0, 1), (1, 1), (3, 1), (8, 1), (3, 16)):
        row = await overhead(pids, tool_rounds=tool_rounds, clients=clients, seconds=options.seconds,
                             turns=options.rounds)
        print("| {rounds} | {clients} | {direct_ms:.2f} | {through_ms:.2f} | {added_ms:.2f} | {cpu_ms:.2f} | {rate:.0f} |"
              .format(**row), flush=True)
        rows.append(row)
    none, many = rows[0], rows[3]
    further = (many["through_ms"] - many["direct_ms"] - none["added_ms"]) / many["rounds"]
    print(f"\nA chat without tools costs {none['added_ms']:.2f} ms more, each round of tools another {further:.2f} ms. "
          "With 16 clients the gateway's processor is full: look at its time, not at the clock.")
    model = "paced-1-20-100"
    print(f"\n{options.streams} streams at once, `{model}`:\n")
    for name, address, path in (("by oneself", UPSTREAM, "/v1/chat/completions"),
                                ("through Toolgate", GATEWAY, "/t/bench/v1/chat/completions")):
        # The model by itself begins with the words: it is not the client's to run the tool in between.
        asked = model if address == GATEWAY else model.replace("-1-", "-0-", 1)
        row = await streams(pids, number=options.streams, address=address, path=path, model=asked)
        print(f"- {name}: " + ", ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}"
                                         for key, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each measurement")
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        log = Path(work) / "log"
        upstream = procs.start([sys.executable, str(HERE / "upstreams.py"), str(UPSTREAM_PORT)], log=log, cpus={1})
        gateway = procs.start([TOOLGATE, "up", "--listen", GATEWAY, "--data", f"{work}/data", "--log-level", "warning"],
                              log=log, cpus={0})
        try:
            until(lambda: bool(fetch("/healthz")))
            register()
            os.sched_setaffinity(0, {1})
            uvloop.run(measure([gateway.pid, *procs.tree(gateway.pid)[1:]], options))
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            procs.stop(gateway)
            procs.stop(upstream)


if __name__ == "__main__":
    main()
