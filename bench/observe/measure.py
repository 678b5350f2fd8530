"""What audit and metrics cost a call: a gateway that observes and does not, in short turns, in one run.

    venvs/harness/bin/python observe/measure.py [--seconds 30] [--clients 16]      (in bench/)

`log` has the audit log and metrics, as a node does, and is compared with itself observing nothing: the same process,
under the same load, a moment earlier and later. `whole` is `toolgate up`, in whose process the index that can be asked
takes in each event, too; what that costs is spent whenever there is time for it. The figure is the processor time of
the gateway's process for each call; the median over the turns, and how far apart the quartiles are. What is more is
that of each turn against the one after it, so that a machine whose speed changes meanwhile says the same.
"""

import argparse
import itertools
import json
import os
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

UPSTREAM_PORT, FIRST_PORT = 21510, 21511
GOAL = 0.15
DRAIN_S = 5.0
"""What the index takes at most to take in what is left."""


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


def load(port: int, pid: int, options: argparse.Namespace) -> dict:
    job = {
        "endpoint": {"url": f"http://127.0.0.1:{port}/api/mcp?servers=small", "era": "handshake", "transport": "http"},
        "op": "call", "concurrency": options.clients, "warmup": 0.5, "duration": options.seconds,
        "tool": "small.echo", "arguments": {"text": "hello"}, "expect": "hello", "watch": [pid],
    }
    ran = subprocess.run([sys.executable, str(HARNESS / "loadgen.py")], input=json.dumps(job), text=True,
                         capture_output=True, check=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
    figures = json.loads(ran.stdout)
    assert not figures.get("errors"), figures
    return figures


def measure(options: argparse.Namespace, work: Path) -> dict[str, list[tuple[bool, int, float]]]:
    """Turns of each gateway: whether it observed, how many calls it had, and their processor time in seconds."""
    running = [procs.start([sys.executable, str(HARNESS / "upstream_http.py"), str(UPSTREAM_PORT)],
                           log=work / "upstream.log", cpus={max(os.sched_getaffinity(0))})]
    found = {}
    try:
        wait(UPSTREAM_PORT, "/small/mcp")
        for number, kind in enumerate(("turns", "whole")):
            gateway = start_gateway(kind, FIRST_PORT + number, work)
            running.append(gateway)
            wait(FIRST_PORT + number, "/healthz")
            load(FIRST_PORT + number, gateway.pid, options)
            time.sleep(DRAIN_S if kind == "whole" else 1)
            found[kind] = json.loads((work / f"{kind}.json").read_text())
            procs.stop(gateway)
    finally:
        for process in running:
            procs.stop(process)
    return found


def figures_of(turns: list[tuple[bool, int, float]], *, is_on: bool) -> list[float]:
    """Processor time of a call in µs, turn by turn, without those in which load began or ended."""
    busy = statistics.median(calls for _, calls, _ in turns if calls)
    return [spent / calls * 1e6 for on, calls, spent in turns if on is is_on and calls > busy / 2]


def more_of(turns: list[tuple[bool, int, float]]) -> list[float]:
    """What each turn that observed took more than the next, which did not."""
    busy = statistics.median(calls for _, calls, _ in turns if calls)
    costs = [(on, spent / calls if calls > busy / 2 else None) for on, calls, spent in turns]
    return [one / next_one - 1 for (on, one), (_, next_one) in itertools.pairwise(costs) if on and one and next_one]


def shown(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="toolgate-observe-"))
    try:
        found = measure(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    bare, log = (figures_of(found["turns"], is_on=is_on) for is_on in (False, True))
    calls, spent = (sum(turn[at] for turn in found["whole"]) for at in (1, 2))
    low, more, high = statistics.quantiles(more_of(found["turns"]), n=4)
    print("| gateway | CPU µs per call | more |\n| --- | --- | --- |")
    print(f"| observes nothing | {shown(bare)} | |")
    print(f"| `log`: audit log and metrics | {shown(log)} | {more:+.1%} ({low:+.1%} to {high:+.1%}; goal: {GOAL:.0%}) |")
    whole = spent / calls * 1e6
    print(f"| `whole`: with the index, until it has all | {whole:.1f} | {whole / statistics.median(bare) - 1:+.1%} |")


if __name__ == "__main__":
    main()
