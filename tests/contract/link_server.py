"""The server behind every link of the contract suite: what it answers, apart from how messages travel.

On stdio it is this file, run with the standard library alone; over HTTP `links.py` carries its messages.
Words on its command line: `modern` (else legacy), `silent` (answers nothing); any other is only a mark.
"""

import json
import os
import sys
import threading
import time
from typing import Any, Protocol

Message = dict[str, Any]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": 1, "progress": 1},
}
REFUSAL = {"code": -32602, "message": "no such thing", "data": {"vendor": [1, 2.50, None]}}


class Carrier(Protocol):
    """How messages travel from the server."""

    def announce(self, message: Message) -> None:
        """Say it to the one that listens."""

    def say(self, message: Message, request: object) -> None:
        """Say it about a request that is not answered yet, or answer it."""

    def die(self) -> None:
        """End without a word."""


class ContractServer:
    """Takes one message at a time. What it does at length, or never, is left to its carrier."""

    def __init__(self, era: str, carrier: Carrier) -> None:
        self._era = era
        self._carrier = carrier
        self._stopped: set[str] = set()
        self._level = ""
        self._handshake: Message = {}
        self._subscribed: set[str] = set()
        self._filters: dict[str, Message] = {}
        """What each open `subscriptions/listen` asked for."""
        self._asked: dict[str, tuple[object, int]] = {}
        """our Questions: the request they are about, and which of its questions they are."""
        self._answers: dict[object, list[Message | None]] = {}
        """To the questions about a request; None is still to come."""
        self._late: list[Message] = []
        """Answers to questions we no longer ask."""

    def stop(self, number: object) -> None:
        """Someone no longer waits for the answer to request `number`."""
        self._stopped.add(str(number))
        self._answers.pop(number, None)
        self._filters.pop(str(number), None)

    def respond(self, message: Message) -> Message | None:
        """The members that answer a request; None for what is answered later or never."""
        if "method" not in message:
            self._take_answer(message)
            return None
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            self.stop(params["requestId"])
        if "id" not in message:
            return None
        if method == "tools/call":
            return self._call(message["id"], params)
        return self._answer_other(message["id"], method, params)

    def _answer_other(self, number: object, method: str, params: Message) -> Message | None:
        match self._era, method:
            case "modern", "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}}
            case "modern", "subscriptions/listen":
                self._filters[str(number)] = params["notifications"]
                return None
            case "legacy", "initialize":
                self._handshake = params["capabilities"]
                info = {"name": "contract", "version": "1"}
                return {
                    "result": {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": info}
                }
            case "legacy", "logging/setLevel":
                self._level = params["level"]
            case "legacy", "resources/subscribe":
                self._subscribed.add(params["uri"])
            case "legacy", "resources/unsubscribe":
                self._subscribed.discard(params["uri"])
            case _:
                return {"error": {"code": -32601, "message": "method not found"}}
        return {"result": {}}

    def _call(self, number: object, params: Message) -> Message | None:
        arguments: Any = params["arguments"]
        match params["name"]:
            case "announce":
                self._carrier.announce({**LIST_CHANGED, **arguments})
            case "tell":
                for rpc in arguments["messages"]:
                    token = params.get("_meta", {}).get("progressToken")
                    self._carrier.say(_with_token({"jsonrpc": "2.0", **rpc}, token), number)
            case "ask" | "half_ask" as name:
                self._ask(number, arguments["questions"], is_half=name == "half_ask")
                return None
            case "die":
                self._carrier.die()
                return None
            case "refuse":
                return {"error": REFUSAL}
            case "hang" | "progress":
                return None
        return {"result": {"content": [], "echo": self._echo(params["name"], params)}}

    def _echo(self, name: str, params: Message) -> Any:
        """What a tool tells of the server."""
        filters = list(self._filters.values())
        watched = {uri for one in filters for uri in one.get("resourceSubscriptions", [])}
        known = {
            "echo": params["arguments"],
            "meta": params.get("_meta", {}),
            "stopped": len(self._stopped),
            "level": self._level,
            "handshake": self._handshake,
            "late": self._late,
            "filters": filters,
            "asked": list(self._asked),
            "watched": sorted(watched | self._subscribed),
        }
        return known.get(name)

    def _ask(self, number: object, questions: list[Message], *, is_half: bool) -> None:
        """Half an ask is one that is never content with the answers it gets."""
        self._answers[number] = [None] * (len(questions) + is_half)
        for place, question in enumerate(questions):
            ask_id = f"{number}-{place}"
            self._asked[ask_id] = (number, place)
            self._carrier.say({"jsonrpc": "2.0", "id": ask_id, **question}, number)

    def _take_answer(self, message: Message) -> None:
        number, place = self._asked.pop(message["id"], (None, 0))  # not ours: asked by `tell`
        responses = self._answers.get(number)
        if responses is None:
            self._late.append(message)
            return
        responses[place] = {name: message[name] for name in ("result", "error") if name in message}
        if None not in responses:
            del self._answers[number]
            result = {"content": [], "echo": responses}
            self._carrier.say({"jsonrpc": "2.0", "id": number, "result": result}, number)


def _with_token(message: Message, token: object) -> Message:
    """The progress token of the request in place of `$token`."""
    params = message.get("params")
    if isinstance(params, dict) and params.get("progressToken") == "$token":
        return {**message, "params": {**params, "progressToken": token}}
    return message


class _Pipe:
    """The carrier of stdio: one stream for all."""

    def announce(self, message: Message) -> None:
        send(message)

    def say(self, message: Message, request: object) -> None:
        del request
        send(message)

    def die(self) -> None:
        os._exit(3)


def send(message: Message) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def report_progress() -> None:
    while True:
        send(PROGRESS)
        time.sleep(0.01)


def main() -> None:
    era = "modern" if "modern" in sys.argv else "legacy"
    server = ContractServer(era, _Pipe())
    for line in sys.stdin.buffer:
        message: Message = json.loads(line)
        members = None if "silent" in sys.argv else server.respond(message)
        if members is not None:
            send({"jsonrpc": "2.0", "id": message["id"], **members})
        if message.get("params", {}).get("name") == "progress":
            threading.Thread(target=report_progress, daemon=True).start()


if __name__ == "__main__":
    main()
