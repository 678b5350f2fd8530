"""How a node at `max_calls` shares its slots between 64 principals. Prints a Markdown table.

One gateway with 64 slots, and one stdio server whose tool takes as long as it is told.

- Starvation: 64 principals call all the time, four clients each and one of them forty. The figure is the
  largest number of calls of a principal over the smallest.
- Flood: 32 principals call at a steady pace, alone and then while another holds as many slow calls as it gets
  and has more waiting, in turns. The figure is the ratio of the two p99s over all turns: what else the machine
  does meanwhile falls on both. With `--slots 100000` the same flood meets no cap: that ratio is what its
  processor time costs the others.

    .venv/bin/python bench/fairness/measure.py [--rounds 20] [--seconds 3] [--slots 64]
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

SLOTS, PRINCIPALS, STEADY = 64, 64, 32
QUICK_MS, SLOW_MS, PACE_S = 100, 1_000, 0.5
FLOOD = 4 * SLOTS
TOOL = {"name": "take", "inputSchema": {"type": "object", "properties": {"ms": {"type": "integer"}}}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "fairness", "version": "1"},
}


async def serve() -> None:
    """The server: MCP of 2025-11-25 over stdio."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def reply(request: Any, result: Any) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        os.write(1, json.dumps(message).encode() + b"\n")

    while line := await reader.readline():
        request = json.loads(line)
        method, params = request.get("method"), request.get("params", {})
        if method == "initialize":
            info = {"name": "fairness", "version": "1"}
            reply(
                request,
                {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
            )
        elif method == "tools/list":
            reply(request, {"tools": [TOOL]})
        elif method == "tools/call":
            done = {"content": [{"type": "text", "text": "done"}]}
            loop.call_later(params["arguments"]["ms"] / 1e3, reply, request, done)
        elif "id" in request:
            reply(request, {})


class Client:
    """One client of a principal on a connection of its own."""

    def __init__(self, address: str, key: str) -> None:
        self._host, port = address.split(":")
        self._port = int(port)
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, ms: int) -> str:
        """How a call ended: `ok`, or the error's code."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        params = {"name": "slow.take", "arguments": {"ms": ms}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST /api/mcp HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Authorization: Bearer {self._key}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: slow.take\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.split("content-length:")[1].split("\r\n")[0])
        result = json.loads(await reader.readexactly(length)).get("result", {})
        return str(result.get("_meta", {}).get("toolgate/error", {}).get("code", "ok"))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def starvation(address: str, keys: list[str], seconds: float) -> tuple[float, Counter[str]]:
    """Calls of the best served principal over those of the worst."""
    served: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    until_s = time.monotonic() + seconds

    async def work(key: str) -> None:
        client = Client(address, key)
        while time.monotonic() < until_s:
            code = await client.call(QUICK_MS)
            ended[code] += 1
            served[key] += code == "ok"
            if code != "ok":
                await asyncio.sleep(QUICK_MS / 1e3)
        client.close()

    crowd = [key for key in keys for _ in range(4)] + [keys[0]] * 36
    await asyncio.gather(*map(work, crowd))
    return max(served.values()) / min(served[key] for key in keys), ended


async def latencies_ms(address: str, keys: list[str], seconds: float) -> list[float]:
    """Of principals that call at a steady pace."""
    took: list[float] = []
    until_s = time.monotonic() + seconds

    async def work(number: int, key: str) -> None:
        client = Client(address, key)
        due_s = time.monotonic() + PACE_S * number / len(keys)
        while due_s < until_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            began_s = time.monotonic()
            assert await client.call(QUICK_MS) == "ok"
            took.append((time.monotonic() - began_s) * 1e3)
            due_s += PACE_S
        client.close()

    await asyncio.gather(*(work(number, key) for number, key in enumerate(keys)))
    return took


def p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


async def flood(address: str, key: str, ended: Counter[str]) -> None:
    """Hold as many slow calls as there are slots for, and have the queue full, until cancelled.

    Its calls are spread over time: in bursts they would cost the others processor time, with or without a cap.
    """

    async def work() -> None:
        client = Client(address, key)
        try:
            while True:
                await asyncio.sleep(random.random() * 2 * SLOW_MS / 1e3)
                ended[await client.call(SLOW_MS)] += 1
        finally:
            client.close()

    await asyncio.gather(*(work() for _ in range(FLOOD)))


async def measure(address: str, keys: list[str], rounds: int, seconds: float) -> None:
    ratio, ended = await starvation(address, keys, 10 * seconds)
    print(f"| {PRINCIPALS} principals, one with ten times the clients | calls | {dict(ended)} |")
    print(f"| | most / fewest calls of a principal | {ratio:.2f} |")
    steady, flooder = keys[1 : 1 + STEADY], keys[0]
    alone: list[float] = []
    during: list[float] = []
    flooded: Counter[str] = Counter()
    for _ in range(rounds):
        alone += await latencies_ms(address, steady, seconds)
        task = asyncio.create_task(flood(address, flooder, flooded))
        await asyncio.sleep(2 * SLOW_MS / 1e3)
        during += await latencies_ms(address, steady, seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(SLOW_MS / 1e3)
    print(f"| calls of the others, alone / during a flood | | {len(alone)} / {len(during)} |")
    for name, of in (("p50", statistics.median), ("p99", p99)):
        calm, wild = of(alone), of(during)
        print(f"| | {name}, ms | {calm:.1f} / {wild:.1f}: {wild / calm:.2f} |")
    print(f"| the flood's own calls | | {dict(flooded)} |")


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--slots", type=int, default=SLOTS, help="`max_calls`; many: the flood meets no cap")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        registry = Path(data) / "registry"
        registry.mkdir()
        stdio = {"command": sys.executable, "args": [__file__, "serve"]}
        record = {"server_id": "slow", "transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]}
        (registry / "slow.json").write_text(json.dumps({**record, "budgets": {"max_concurrency": 1024}}))
        program = str(Path(sys.executable).with_name("toolgate"))
        places = ["--listen", "127.0.0.1:0", "--data", f"{data}/d", "--mcp-registry-dir", str(registry)]
        gateway = subprocess.Popen(
            [program, "up", "--json", *places],
            stdout=subprocess.PIPE,
            env={**os.environ, "TOOLGATE_MAX_CALLS": str(chosen.slots)},
        )
        assert gateway.stdout is not None
        try:
            url = json.loads(gateway.stdout.readline())["url"]
            keys = [
                ask(url, "POST", "/admin/api/keys", {"key_id": f"p{number}", "role": "agent"})["secret"]
                for number in range(PRINCIPALS)
            ]
            print("| what | figure | |\n| --- | --- | --- |")
            asyncio.run(measure(url.removeprefix("http://"), keys, chosen.rounds, chosen.seconds))
        finally:
            gateway.terminate()
            gateway.wait(60)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        main()
