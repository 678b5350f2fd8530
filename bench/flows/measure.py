"""How many modules, functions and frames three flows pass, in one checkout or several.

    ../.venv/bin/python flows/measure.py [CHECKOUT …]        (default: this one)

The flows: a call to a stdio server from a stateless client, a change through REST until a client lists by it, and a
chat with one round of tools. Each runs on a warm `toolgate up`, is counted `--rounds` times, and the median is shown.
A resumed coroutine counts as a frame, so `frames` says how often the interpreter enters our code.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
UPSTREAM_PORT, PORT = 21953, 21954
URL = f"http://127.0.0.1:{PORT}"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
TASK = {"mcp.enabled": "true", "mcp.default_server_ids": '["echo"]'}


def send(method: str, path: str, body: dict, **headers: str) -> dict:
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), method=method, headers={
        "content-type": "application/json", "accept": "application/json, text/event-stream", **headers})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def call_mcp(method: str, task: str = "bench", **params: object) -> dict:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = str(params["name"])
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    return send("POST", f"/api/mcp/t/{task}", body, **headers)["result"]


def call_tool() -> None:
    assert not call_mcp("tools/call", name="echo.echo", arguments={"text": "x"}).get("isError")


def change_task() -> None:
    """A change, and the first list that shows it."""
    number = time.monotonic_ns()
    tools = ["echo"] if number % 2 else ["none"]
    config = {**TASK, "mcp.tool_allowlist": json.dumps([*tools, f"x{number}"])}
    send("PUT", "/admin/api/tasks/changed", {"task_id": "changed", "config": config})
    expected = 1 if number % 2 else 0
    while len(call_mcp("tools/list", task="changed")["tools"]) != expected:
        time.sleep(0.05)


def chat() -> None:
    body = {"model": "rounds-1", "messages": [{"role": "user", "content": "Say it all."}]}
    assert "All of it was said." in json.dumps(send("POST", "/t/chat/v1/chat/completions", body))


FLOWS: dict[str, Callable[[], None]] = {
    "call to a stdio server": call_tool,
    "REST change until it is listed": change_task,
    "chat with one round of tools": chat,
}


@contextmanager
def open_gateway(python: Path, directory: Path):
    """A gateway of that checkout, with a stdio server, a server behind a URL and a model."""
    registry = directory / "registry"
    registry.mkdir()
    stdio = {"command": sys.executable, "args": [str(PROJECT / "bench/harness/upstream_stdio.py")]}
    servers = [
        {"server_id": "echo", "transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]},
        {"server_id": "bench", "transport": "streamable_http", "allowed_tools": ["*"],
         "http": {"url": f"http://127.0.0.1:{UPSTREAM_PORT}/mcp"}},
    ]
    for server in servers:
        (registry / f"{server['server_id']}.json").write_text(json.dumps(server))
    counts = directory / "counts"
    upstream = subprocess.Popen([sys.executable, PROJECT / "bench/chat/upstreams.py", str(UPSTREAM_PORT)])
    gateway = subprocess.Popen(
        [python, HERE / "traced.py", counts, "up", "--listen", f"127.0.0.1:{PORT}",
         "--data", directory / "data", "--mcp-registry-dir", registry],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TOOLGATE_ALLOWED_COMMANDS": "*"})
    try:
        yield gateway.pid, counts
    finally:
        for process in (gateway, upstream):
            process.terminate()
            process.wait()


def prepare() -> None:
    """Wait for the gateway, make its tasks, and warm all flows up."""
    deadline_s = time.monotonic() + 60
    while True:
        with suppress(OSError):
            urllib.request.urlopen(f"{URL}/healthz", timeout=1)
            break
        if time.monotonic() > deadline_s:
            sys.exit("the gateway did not start")
        time.sleep(0.1)
    send("PUT", "/admin/api/chat-upstreams/model",
         {"upstream_id": "model", "base_url": f"http://127.0.0.1:{UPSTREAM_PORT}/v1", "models": ["rounds-1"]})
    for task, server in (("bench", "echo"), ("changed", "echo"), ("chat", "bench")):
        config = {**TASK, "mcp.default_server_ids": json.dumps([server])}
        send("PUT", f"/admin/api/tasks/{task}", {"task_id": task, "config": config})
    for task in ("bench", "chat"):
        while not call_mcp("tools/list", task=task)["tools"]:
            time.sleep(0.1)
    for flow in FLOWS.values():
        for _ in range(20):
            flow()


def count(pid: int, counts: Path, flow: Callable[[], None]) -> dict[str, int]:
    counts.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    time.sleep(0.05)
    flow()
    os.kill(pid, signal.SIGUSR2)
    while not counts.exists():
        time.sleep(0.01)
    return json.loads(counts.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[PROJECT])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print("| checkout | flow | modules | functions | frames |\n| --- | --- | --- | --- | --- |")
    for checkout in options.checkouts:
        with tempfile.TemporaryDirectory() as directory, open_gateway(
            checkout.resolve() / ".venv/bin/python", Path(directory)
        ) as (pid, counts):
            prepare()
            for name, flow in FLOWS.items():
                found = [count(pid, counts, flow) for _ in range(options.rounds)]
                medians = (round(statistics.median(one[key] for one in found)) for key in found[0])
                print(f"| {checkout} | {name} | " + " | ".join(map(str, medians)) + " |")


if __name__ == "__main__":
    main()
