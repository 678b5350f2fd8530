"""The server behind every link of the contract suite: what it answers, apart from how messages travel.

On stdio it is this file, run with the standard library alone; over HTTP `links.py` carries its messages.
Words on its command line: `modern` (else legacy), `silent` (answers nothing); any other is only a mark.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CAPABILITIES = {"tools": {"listChanged": True}}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": 1, "progress": 1},
}
REFUSAL = {"code": -32602, "message": "no such thing", "data": {"vendor": [1, 2.50, None]}}


class ContractServer:
    """Answers one message at a time. What it does at length, or never, is left to its transport."""

    def __init__(self, era: str, *, announce: Callable[[], None], die: Callable[[], None]) -> None:
        self._era = era
        self._announce = announce
        self._die = die
        self._stopped: set[str] = set()

    def stop(self, number: object) -> None:
        """Somebody no longer waits for the answer to request `number`."""
        self._stopped.add(str(number))

    def answer(self, message: Message) -> Message | None:
        """The members that answer a request; None for what is never answered."""
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            self.stop(params["requestId"])
        if "id" not in message:
            return None
        if method == "tools/call":
            return self._call(params)
        if method == "server/discover" and self._era == "modern":
            return {"result": {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}}
        if method == "initialize" and self._era == "legacy":
            info = {"name": "contract", "version": "1"}
            return {"result": {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": info}}
        return {"error": {"code": -32601, "message": "method not found"}}

    def _call(self, params: Message) -> Message | None:
        match params["name"]:
            case "echo":
                return {"result": {"content": [], "echo": params["arguments"]}}
            case "meta":
                return {"result": {"content": [], "echo": params.get("_meta", {})}}
            case "stopped":
                return {"result": {"content": [], "echo": len(self._stopped)}}
            case "announce":
                self._announce()
                return {"result": {"content": []}}
            case "die":
                self._die()
            case "refuse":
                return {"error": REFUSAL}
        return None


def send(message: Message) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def report_progress() -> None:
    while True:
        send(PROGRESS)
        time.sleep(0.01)


def main() -> None:
    era = "modern" if "modern" in sys.argv else "legacy"
    server = ContractServer(era, announce=lambda: send(LIST_CHANGED), die=lambda: os._exit(3))
    for line in sys.stdin.buffer:
        message: Message = json.loads(line)
        members = None if "silent" in sys.argv else server.answer(message)
        if members is not None:
            send({"jsonrpc": "2.0", "id": message["id"], **members})
        if message.get("params", {}).get("name") == "progress":
            threading.Thread(target=report_progress, daemon=True).start()


if __name__ == "__main__":
    main()
