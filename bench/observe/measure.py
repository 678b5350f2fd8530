"""What audit and metrics cost a call: a gateway that observes and does not, in short turns, in one run.

    venvs/harness/bin/python observe/measure.py [--seconds 30] [--clients 16 1]      (in bench/)

`log` has the audit log, metrics and the tokens of results, as a node does, and is compared with itself observing
nothing: the same process, under the same load, a moment earlier and later. `whole` is `toolgate up`, in whose process
the index that can be asked takes in each event, too; what that costs is spent whenever there is time for it, and is
counted until it has all.

The figure is the processor time of the gateway's process for each call: the mean over the turns, without the cheapest
tenth and the dearest three, in which something else had the processor. What is more comes with the range that holds it
in 19 of 20 draws of as many turns out of these.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
HARNESS = BENCH / "harness"
PYTHON = BENCH.parent / ".venv/bin/python"
sys.path.insert(0, str(HARNESS))

import procs  # noqa: E402

UPSTREAM_PORT, GATEWAY_PORT = 21510, 21511
GOAL = 0.15
DRAIN_S = 10.0
"""What the index takes at most to take in what is left."""
DRAWS = 400
FEWEST_CALLS = 5
"""A turn with fewer says nothing."""


def start_gateway(kind: str, port: int, work: Path) -> subprocess.Popen:
    servers = work / kind / "servers"
    servers.mkdir(parents=True)
    record = {"server_id": "small", "transport": "streamable_http", "allowed_tools": ["*"],
              "http": {"url": f"http://127.0.0.1:{UPSTREAM_PORT}/small/mcp"}, "budgets": {"max_concurrency": 256}}
    (servers / "small.json").write_text(json.dumps(record))
    return procs.start(
        [str(PYTHON), str(BENCH / "observe/gateway.py"), kind, str(work / f"{kind}.json"),
         "up", "--listen", f"127.0.0.1:{port}",
         "--data", str(work / kind / "data"), "--mcp-registry-dir", str(servers), "--log-level", "warning"],
        log=work / f"{kind}.log", cpus={0})


def wait(port: int, path: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).close()
            return
        except OSError as exc:
            if getattr(exc, "code", 0) in (404, 405):
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def load(port: int, pid: int, *, clients: int, seconds: float) -> dict:
    job = {
        "endpoint": {"url": f"http://127.0.0.1:{port}/api/mcp?servers=small", "era": "handshake", "transport": "http"},
        "op": "call", "concurrency": clients, "warmup": 0.5, "duration": seconds,
        "tool": "small.echo", "arguments": {"text": "hello"}, "expect": "hello", "watch": [pid],
    }
    ran = subprocess.run([sys.executable, str(HARNESS / "loadgen.py")], input=json.dumps(job), text=True,
                         capture_output=True, check=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
    figures = json.loads(ran.stdout)
    assert not figures.get("errors"), figures
    return figures


Turn = tuple[bool, int, float]
"""Whether it observed, how many calls it had, and their processor time in seconds."""


def measure(kind: str, work: Path, *, clients: int, seconds: float) -> list[Turn]:
    """The turns of one gateway."""
    gateway = start_gateway(kind, GATEWAY_PORT, work)
    try:
        wait(GATEWAY_PORT, "/healthz")
        load(GATEWAY_PORT, gateway.pid, clients=clients, seconds=seconds)
        time.sleep(DRAIN_S if kind == "whole" else 2)
        turns = json.loads((work / f"{kind}.json").read_text())
    finally:
        procs.stop(gateway)
    shutil.rmtree(work / kind)
    return turns


def figures_of(turns: list[Turn], *, is_on: bool) -> list[float]:
    """Processor time of a call in µs, turn by turn."""
    return [spent / calls * 1e6 for on, calls, spent in turns if on is is_on and calls >= FEWEST_CALLS]


def mean(figures: list[float]) -> float:
    tenth = len(figures) // 10
    return statistics.mean(sorted(figures)[tenth : len(figures) - 3 * tenth])


def compare(on: list[float], off: list[float]) -> tuple[float, float, float]:
    """What `on` is more than `off`: the figure, and the range of it."""
    draws = sorted(mean(random.choices(on, k=len(on))) / mean(random.choices(off, k=len(off))) - 1
                   for _ in range(DRAWS))
    return mean(on) / mean(off) - 1, draws[DRAWS // 40], draws[-DRAWS // 40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, nargs="+", default=[16, 1])
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="toolgate-observe-"))
    upstream = procs.start([sys.executable, str(HARNESS / "upstream_http.py"), str(UPSTREAM_PORT)],
                           log=work / "upstream.log", cpus={max(os.sched_getaffinity(0))})
    try:
        wait(UPSTREAM_PORT, "/small/mcp")
        print("| clients | gateway | CPU µs per call | more |\n| --- | --- | --- | --- |")
        for clients in options.clients:
            report(work, clients=clients, seconds=options.seconds)
    finally:
        procs.stop(upstream)
        shutil.rmtree(work, ignore_errors=True)


def report(work: Path, *, clients: int, seconds: float) -> None:
    turns = measure("turns", work, clients=clients, seconds=seconds)
    off, on = (figures_of(turns, is_on=is_on) for is_on in (False, True))
    more, low, high = compare(on, off)
    whole = measure("whole", work, clients=clients, seconds=seconds)
    first = next(at for at, (_, calls, _) in enumerate(whole) if calls)
    spent = sum(turn[2] for turn in whole[first:]) / sum(turn[1] for turn in whole) * 1e6
    print(f"| {clients} | observes nothing | {mean(off):.1f} | |")
    print(f"| {clients} | `log`: audit log, metrics, tokens | {mean(on):.1f} |"
          f" {more:+.1%} ({low:+.1%} to {high:+.1%}; goal: {GOAL:.0%}) |")
    print(f"| {clients} | `whole`: with the index, until it has all | {spent:.1f} | {spent / mean(off) - 1:+.1%} |",
          flush=True)


if __name__ == "__main__":
    main()
