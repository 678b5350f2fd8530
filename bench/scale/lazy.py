"""Many stdio servers, few children: what a start costs, a first call, and calls that evict idle servers.

    .venv/bin/python bench/scale/lazy.py [--servers 1000] [--used 300] [--calls 10000] [--children 32] [--packaged]

Starts a real gateway twice on one data directory. The first run learns every server; the second is measured.
With `--packaged` the servers are installed packages, known by their manifests: no run has to learn them.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

import psutil  # noqa: E402
from tests.eventually import eventually_equal  # noqa: E402
from tests.package_kit import manifest, pack, sha256  # noqa: E402
from tests.scenarios.gateway import Gateway, Site, running  # noqa: E402

THREADS = 16
Json = dict[str, Any]


def shown(gateway: Gateway) -> int:
    """How many tools a client sees, over all pages."""
    client, found, cursor = gateway.modern(), 0, ""
    while True:
        page = client.ask("tools/list", {"cursor": cursor} if cursor else {})["result"]
        found += len(page["tools"])
        cursor = page.get("nextCursor", "")
        if not cursor:
            return found


def learned(gateway: Gateway) -> int:
    servers = gateway.get("/admin/api/mcp/servers?limit=1000")["servers"]
    return sum(one["health"]["verified_ms"] > 0 for one in servers)


def children(gateway: Gateway) -> int:
    return len({one.pid for one in gateway.site.processes()} - {gateway.pid})


def message(method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n"


CLIENT = {"name": "bench", "version": "1"}
HELLO = message("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=CLIENT)


def run_alone(site: Site, *requests: str) -> tuple[float, Json]:
    """Start one server without a gateway: seconds to its last answer, and that answer."""
    stdio = site.stage("own", "tools=echo")["stdio"]
    began_s = time.perf_counter()
    with subprocess.Popen(
        [stdio["command"], *stdio["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        for request in requests:
            process.stdin.write(request)
            process.stdin.flush()
            answer = process.stdout.readline()
        took_s = time.perf_counter() - began_s
        process.kill()
    return took_s, json.loads(answer)


def install(gateway: Gateway, names: list[str]) -> None:
    """Upload and install a package for each name, whose manifest defines its tools in full."""
    _, listed = run_alone(gateway.site, HELLO, message("tools/list"))
    stdio = gateway.site.stage("own", "tools=echo")["stdio"]
    run = {"transport": "stdio", **{name: stdio[name] for name in ("command", "args", "env")}}
    for name in names:
        archive = pack(manifest(name, run=run, tools=listed["result"]["tools"]))
        path = f"/api/uploads/{sha256(archive)}"
        as_bytes = {"content-type": "application/octet-stream"}
        gateway.http.put(f"{path}/1", content=archive, headers=as_bytes).raise_for_status()
        gateway.http.post(path, json={"parts": 1}).raise_for_status()
        answer = gateway.http.post(f"/api/packages/{name}/install", json={}).raise_for_status().json()
        assert answer["pinned"], answer


def measure(site: Site, options: argparse.Namespace) -> None:
    names = [f"s{number:04}" for number in range(options.servers)]
    environ = {"TOOLGATE_MAX_CHILDREN": str(options.children), "TOOLGATE_MAX_TOOLS": "10000"}
    environ["TOOLGATE_ALLOWED_COMMANDS"] = "*"
    if not options.packaged:
        site.place(*(site.stage(name, "tools=echo") for name in names))
    began_s = time.perf_counter()
    with running(site, environ=environ) as gateway:
        if options.packaged:
            install(gateway, names)
            print(f"child processes after installing: {children(gateway)}", flush=True)
        else:
            eventually_equal(lambda: learned(gateway), options.servers, 1_800)
        print(f"learned {options.servers} servers: {time.perf_counter() - began_s:.1f} s", flush=True)
    began_s = time.perf_counter()
    with running(site, environ=environ) as gateway:
        ready_s = time.perf_counter() - began_s
        cpu = psutil.Process(gateway.pid).cpu_times()
        used_s = cpu.user + cpu.system
        print(f"start to ready: {ready_s:.2f} s, {used_s:.2f} s of a processor", flush=True)
        print(f"listed at once: {shown(gateway)}, child processes: {children(gateway)}", flush=True)
        measure_first_calls(gateway, names[-20:])
        measure_calls(gateway, random.Random(1).sample(names, options.used), options.calls)
    print("after the end: no process left (checked)", flush=True)


def measure_first_calls(gateway: Gateway, names: list[str]) -> None:
    client = gateway.modern()
    client.tools()
    own_ms = [run_alone(gateway.site, HELLO)[0] * 1e3 for _ in range(10)]
    took_ms = []
    for name in names:
        began_s = time.perf_counter()
        client.text(f"{name}.echo", text="x")
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    own, first = statistics.median(own_ms), statistics.median(took_ms)
    print(f"first call: median {first:.0f} ms; its own start: median {own:.0f} ms", flush=True)


def measure_calls(gateway: Gateway, names: list[str], calls: int) -> None:
    chance = random.Random(2)
    chosen = [chance.choice(names) for _ in range(calls)]
    clients = [gateway.modern() for _ in range(THREADS)]
    most = 0

    def call(number: int) -> bool:
        nonlocal most
        if number % 100 == 0:
            most = max(most, children(gateway))
        answer = clients[number % THREADS].call(f"{chosen[number]}.echo", text=str(number))
        return str(number) in str(answer.get("result"))

    began_s = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        good = sum(threads.map(call, range(calls)))
    took_s = time.perf_counter() - began_s
    print(
        f"{calls} calls over {len(names)} servers: {calls - good} failed, {took_s:.0f} s, most children {most}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument("--used", type=int, default=300)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--children", type=int, default=32)
    parser.add_argument("--packaged", action="store_true")
    with tempfile.TemporaryDirectory() as root:
        measure(Site(Path(root)), parser.parse_args())
