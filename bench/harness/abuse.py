"""What callers of a healthy server notice while another misbehaves.  Prints a Markdown table.

One gateway serves a healthy upstream to paced clients, alone and then beside a server that hangs, floods, drones or
crashes (`tests/scenarios/rude_server.py`) and is called all the time, in turns. The figure is the ratio of the two
p99s in the same round, and the gateway's own loop lag. The rude server runs at the lowest priority: what is measured
is how the gateway shares itself, not how the system shares its processors.

    venvs/harness/bin/python harness/abuse.py [--rounds 3] [--seconds 5] [--manners hangs,floods,drones,crashes]
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import procs
import uvloop
from loadgen import Client
from tally import Tally

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
RUDE = PROJECT / "tests" / "scenarios" / "rude_server.py"
UPSTREAM_PORT, PORT = 19501, 19502
BASE = f"http://127.0.0.1:{PORT}"
CLIENTS, PACE_S, CALLERS_OF_RUDE = 8, 0.004, 8
LOW = ["nice", "-n", "19"]


def write(directory: Path, server_id: str, **members) -> None:
    record = {"server_id": server_id, "allowed_tools": ["*"], "budgets": {"max_concurrency": 64}, **members}
    (directory / f"{server_id}.json").write_text(json.dumps(record))


def fetch(path: str) -> str:
    with urllib.request.urlopen(BASE + path, timeout=10) as answer:
        return answer.read().decode()


def loop_lag_ms() -> float:
    for line in fetch("/metrics").splitlines():
        if line.startswith("toolgate_loop_lag_ms "):
            return float(line.split()[1])
    return float("nan")


class Rude:
    """A rude server, registered with the gateway for as long as the block lasts."""

    def __init__(self, servers: Path, gateway: subprocess.Popen, manner: str, transport: str):
        self.servers, self.gateway, self.manner, self.transport = servers, gateway, manner, transport
        self.process = None

    def __enter__(self):
        command = [*LOW, sys.executable, "-I", "-S", str(RUDE), self.manner]
        if self.transport == "stdio":
            write(self.servers, "rude", transport="stdio", prewarm=True,
                  stdio={"command": command[0], "args": command[1:]})
        else:
            self.process = subprocess.Popen([*command, "http"], stdout=subprocess.PIPE, text=True)
            url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/mcp"
            write(self.servers, "rude", transport="streamable_http", prewarm=True, http={"url": url})
        self.reload(present=True)
        return self

    def __exit__(self, *_):
        (self.servers / "rude.json").unlink()
        self.reload(present=False)
        if self.process:
            self.process.kill()
            self.process.wait()

    def reload(self, *, present: bool) -> None:
        os.kill(self.gateway.pid, signal.SIGHUP)
        deadline = time.monotonic() + 10
        while ('"rude"' in fetch("/api/v1/mcp/servers")) is not present:
            if time.monotonic() > deadline:
                raise SystemExit("the gateway did not reload")
            time.sleep(0.1)


async def healthy(seconds: float) -> dict:
    """Paced calls of the healthy server."""
    tally, loop = Tally("hello"), asyncio.get_running_loop()
    clients = [Client({"url": f"{BASE}/api/mcp?servers=small", "era": "handshake"}) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        await client.connect()
        await client.open()
        halves = client.request("tools/call", {"name": "small.echo", "arguments": {"text": "hello"}})

        def ask(client=client, halves=halves):
            begun = time.perf_counter()

            def arrived(head, body):
                if tally.running:
                    tally.add(time.perf_counter() - begun, head, body)
                    loop.call_later(PACE_S, ask)

            if tally.running:
                client.connection.on_message = arrived
                client.connection.transport.write(client.encode(halves, 7))

        loop.call_later(PACE_S * number / CLIENTS, ask)
    await asyncio.sleep(0.5)
    tally.reset()
    await asyncio.sleep(seconds)
    tally.running = False
    for client in clients:
        client.drop()
    return tally.figures(seconds)


async def call_rude() -> None:
    """Call the rude server again and again; whatever comes, or nothing, is fine."""
    client = Client({"url": f"{BASE}/api/mcp?servers=rude", "era": "handshake"})
    await client.connect()
    await client.open()
    halves = client.request("tools/call", {"name": "rude.go", "arguments": {}})
    while True:
        await client.connection.ask(client.encode(halves, 1))
        await asyncio.sleep(0.005)


async def beside_rude(seconds: float) -> dict:
    callers = [asyncio.ensure_future(call_rude()) for _ in range(CALLERS_OF_RUDE)]
    await asyncio.sleep(0.5)
    figures = await healthy(seconds)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return figures


def measure(work: Path, options: argparse.Namespace) -> None:
    servers = work / "servers"
    servers.mkdir(parents=True)
    write(servers, "small", transport="streamable_http", http={"url": f"http://127.0.0.1:{UPSTREAM_PORT}/small/mcp"})
    upstream = procs.start([sys.executable, str(HERE / "upstream_http.py"), str(UPSTREAM_PORT)], log=work / "log")
    command = [str(PROJECT / ".venv" / "bin" / "toolgate"), "up", "--listen", f"127.0.0.1:{PORT}",
               "--data", str(work / "data"), "--mcp-registry-dir", str(servers), "--log-level", "error"]
    environ = {"PYTHONPATH": options.source} if options.source else {}
    gateway = procs.start(command, log=work / "log", env=environ)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                fetch("/healthz")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SystemExit("the gateway does not answer") from None
                time.sleep(0.05)
        uvloop.run(healthy(2))
        print("| another server | p99 alone, ms | p99 beside it, ms | ratio | p50 ratio | errors | loop lag, ms |")
        print("|---|---|---|---|---|---|---|")
        for manner in options.manners.split(","):
            for transport in ("http", "stdio"):
                row(servers, gateway, manner, transport, options)
    finally:
        procs.stop(gateway)
        procs.stop(upstream)


def row(servers: Path, gateway: subprocess.Popen, manner: str, transport: str, options: argparse.Namespace) -> None:
    alone, beside = [], []
    for _ in range(options.rounds):
        alone.append(uvloop.run(healthy(options.seconds)))
        with Rude(servers, gateway, manner, transport):
            beside.append(uvloop.run(beside_rude(options.seconds)))
    lag = loop_lag_ms()
    middle = lambda figures, key: statistics.median(one[key] for one in figures)  # noqa: E731
    ratios = {key: statistics.median(b[key] / a[key] for a, b in zip(alone, beside)) for key in ("p50_ms", "p99_ms")}
    errors = sum(one["errors"] for one in alone + beside)
    print(f"| {manner} ({transport}) | {middle(alone, 'p99_ms'):.2f} | {middle(beside, 'p99_ms'):.2f} "
          f"| {ratios['p99_ms']:.2f} | {ratios['p50_ms']:.2f} | {errors} | {lag:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--manners", default="hangs,floods,drones,crashes")
    parser.add_argument("--source", default="", help="run this source tree in place of the installed one")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-abuse-"))
    try:
        measure(work, options)
    except SystemExit:
        print((work / "log").read_text()[-2000:], file=sys.stderr)
        raise
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
