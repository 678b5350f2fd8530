"""An installation in which every text that a stranger may write is hostile."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wasmtime import wat2wasm

from tests.console.payloads import PAYLOADS, URLS, joined
from tests.eventually import eventually
from tests.package_kit import manifest, pack, sha256
from tests.scenarios.gateway import Gateway, Json, Site, running
from tests.scenarios.test_invocations import add_task

SERVER: Final = Path(__file__).with_name("hostile_server.py")
TITLES: Final = [
    "".join(char for char in text if char >= " " and not "\x7f" <= char <= "\x9f") for text in joined(200)
]
LABELS: Final = [
    text.strip() for text in (payload[:64] for payload in PAYLOADS) if text.strip().isprintable()
]


@contextmanager
def hostile_gateway(root: Path) -> Iterator[Gateway]:
    """All of its records are there, and all that strangers do has been done."""
    site = Site(root)
    site.place(*records(site))
    with running(site) as gateway:
        eventually(lambda: all(gateway.health(one)["tools"] for one in ("hostile", "turning")))
        _write_records(gateway)
        _publish(gateway)
        _call(gateway)
        yield gateway


def guest() -> bytes:
    """A program that logs every text, and writes it out."""
    texts = [text.encode() for text in joined(1_000)]
    places = [sum(map(len, texts[:number])) + 16 for number in range(len(texts))]
    data = "".join(f"\\{one:02x}" for one in b"".join(texts))
    logs = "".join(
        f"(drop (call $log (i32.const 2) (i32.const {place}) (i32.const {len(text)})))"
        for place, text in zip(places, texts, strict=True)
    )
    size = places[-1] + len(texts[-1]) - 16
    vector = "".join(f"\\{one:02x}" for one in (16).to_bytes(4, "little") + size.to_bytes(4, "little"))
    return bytes(
        wat2wasm(f"""(module
          (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 2) (data (i32.const 0) "{vector}") (data (i32.const 16) "{data}")
          (func (export "_start") {logs}
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))""")
    )


def records(site: Site) -> Iterator[Json]:
    """The hostile server, one that cannot be started, and as many that are off as all names need."""
    texts = site.root / "texts.json"
    texts.write_text(json.dumps({"texts": joined(1_000), "payloads": PAYLOADS, "urls": URLS}), "utf-8")
    args = ["-I", "-S", str(SERVER), f"texts={texts}", f"site={site.root}"]
    launch = {"command": sys.executable, "args": args, "env": {"NOTE": TITLES[0]}}
    named = {"display_name": TITLES[0], "category": LABELS[0], "tags": LABELS[:40]}
    asked = {"per_tool": {"t1": "always"}}
    allowed = ["*", "prompt:*", "resource:*"]
    yield site.server("turning", stdio=launch, **named)
    yield site.server("hostile", stdio=launch, approval_policy=asked, **{**named, "allowed_tools": allowed})
    yield site.server("broken", stdio={"command": f"/nowhere/{TITLES[1]}", "args": TITLES})
    for number, text in enumerate(TITLES):
        labels = LABELS[number * 5 : number * 5 + 5]
        words = {"display_name": text, "category": LABELS[number], "tags": labels, "enabled": False}
        yield site.server(f"named-{number}", stdio={"command": "true"}, **words)


def _write_records(gateway: Gateway) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["hostile"], "x.note": TITLES}
    for number, text in enumerate(TITLES[:20]):
        gateway.put(f"/admin/api/tasks/task-{number}", {"display_name": text, "config": config})
    gateway.put("/admin/api/profiles/p", {"servers": ["hostile"], "tags": LABELS[:20]})
    upstream = {"base_url": "http://127.0.0.1:9/v1", "models": LABELS[:20], "display_name": TITLES[0]}
    gateway.put("/admin/api/chat-upstreams/asked", upstream)
    add_task(gateway.http, "runs", guest())
    run = {"input": " ".join(TITLES)}
    gateway.http.post("/api/v1/tasks/runs/invocations", json=run).raise_for_status()
    assert gateway.cli("pins", "approve", "turning").code == 0


def _publish(gateway: Gateway) -> None:
    """A package that is hostile in all that its manifest says to people."""
    reply = {
        "name": TITLES[0],
        "description": " ".join(TITLES)[:4_000],
        "category": LABELS[0],
        "license": LABELS[1],
    }
    listed = [{"name": "echo", "description": text, "inputSchema": {"type": "object"}} for text in TITLES[:1]]
    archive = pack(manifest("packed", **reply, tags=LABELS[:20], tools=listed))
    path = f"/api/uploads/{sha256(archive)}"
    octets = {"content-type": "application/octet-stream"}
    gateway.http.put(f"{path}/1", content=archive, headers=octets).raise_for_status()
    gateway.http.post(path, json={"parts": 1}).raise_for_status()


def _call(gateway: Gateway) -> None:
    """What strangers do: calls by every name, one that fails, one that waits, and tools that change."""
    for name in (*PAYLOADS, "hostile.fails", "hostile.links", "turning.turn"):
        gateway.http.post("/api/v1/mcp/call", json={"name": name})
    # A name with a NUL is refused: some servers would read only what is before it.
    arguments = {f"{number} {text}".replace("\0", ""): text for number, text in enumerate(joined(1_000))}
    waits = gateway.http.post("/api/v1/mcp/call", json={"name": "hostile.t1", "arguments": arguments}).json()
    assert waits["error"]["code"] == "mcp_approval_required"
