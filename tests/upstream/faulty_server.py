"""An MCP server on stdio that misbehaves as told: how it starts and ends by argv, the rest by tool name.

Standard library only, so that it is up at once. Words it knows on its command line:

    modern            speaks 2026-07-28 and refuses `initialize` (it is legacy otherwise)
    silent            never answers anything
    mute-discover     never answers `server/discover`
    wordy=N           describes a tool in N bytes
    dies=N            exits with status N at once
    slow=S            reads nothing for S seconds
    only-initialize   exits when its first message is another one, as some SDKs do
    deaf              ignores end of input and SIGTERM
    helper=KIND       starts a helper process first: `group`, `daemon` (see `start_helper`)
    pids=PATH         appends its pid, and those of its helpers, to a file
    log=PATH          appends every message it reads to a file
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

Message = dict[str, Any]
WORDS = dict(word.partition("=")[::2] for word in sys.argv[1:])
SERVER_INFO = {"name": "faulty", "version": "1"}
seen: list[Message] = []


def send(data: bytes) -> None:
    """Write all of it past any buffering of the gateway."""
    while data:
        data = data[os.write(1, data) :]


def send_message(**members: Any) -> None:
    send(json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False).encode() + b"\n")


def append(path: str, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def read_line() -> bytes:
    line = sys.stdin.buffer.readline()
    if line and "log" in WORDS:
        append(WORDS["log"], line.decode().rstrip("\n"))
    return line


def start_helper(kind: str) -> int:
    """A process that outlives any polite request. `daemon`: orphaned, in a session of its own."""
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        if kind == "daemon":
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write_fd, str(os.getpid()).encode())
        os.close(write_fd)
        while True:
            time.sleep(60)
    os.close(write_fd)
    pid = int(os.read(read_fd, 20))
    if kind == "daemon":
        os.wait()
    return pid


def text(value: Any) -> Message:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def ask_client(method: str) -> Message:
    send_message(id="from-server", method=method, params={})
    response: Message = json.loads(read_line())
    return response


def misanswer(number: int) -> None:
    for wrong in (number + 1000, str(number), None, 1.5, [number], -number):
        send_message(id=wrong, result=text("not for you"))
    send_message(id=number)
    send_message(id=number, result=text("right"))
    send_message(id=number, result=text("again"))


def write_noise(count: int, size: int) -> None:
    line = b"noise".ljust(size - 1, b".") + b"\n"
    block = line * max(1, 65536 // size)
    for _ in range(max(1, count * size // len(block))):
        send(block)


def helper(arguments: Message) -> Message:
    return text(start_helper(arguments["kind"]))


def noise(arguments: Message) -> Message:
    write_noise(arguments["lines"], arguments["bytes"])
    return text("after the noise")


def stderr(arguments: Message) -> Message:
    for _ in range(arguments["bytes"] // 65536):
        os.write(2, b"e" * 65536)
    os.write(2, b"\nlast words\n")
    return text("after stderr")


def die(arguments: Message) -> Message:
    os.write(2, b"first words\nlast words\n")
    os._exit(arguments["status"])


def close(arguments: Message) -> Message:
    os.close(arguments["fd"])
    time.sleep(60)
    return {}


def notify(arguments: Message) -> Message:
    send_message(method="notifications/tools/list_changed", params=arguments)
    return text("notified")


def bad_utf8(number: int) -> None:
    send(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"\xff"}}\n')
    send(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":"\xff"}}\n' % number)


def half_character(number: int) -> None:
    send(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud83d"}]}}\n' % number)


def bottomless(number: int) -> None:
    depth = 100_000
    send(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (number, b"[" * depth + b"]" * depth))


def log_json(number: int) -> None:
    send(b'{"level":"info","id":%d,"message":"this is a log line"}\n' % number)
    send_message(id=number, result=text("after the log line"))


def stop_reading(number: int) -> None:
    send_message(id=number, result=text("I read no more"))
    time.sleep(60)


TOOLS = {
    "echo": lambda arguments: text(arguments["text"]),
    "pid": lambda _: text(os.getpid()),
    "argv": lambda _: text(sys.argv[1:]),
    "cwd": lambda _: text(str(Path.cwd())),
    "env": lambda _: text(dict(os.environ)),
    "fds": lambda _: text(sorted(entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists())),
    "leads": lambda _: text([os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()]),
    "status": lambda _: text(Path("/proc/self/status").read_text()),
    "seen": lambda _: text(seen),
    "ask": lambda arguments: text(ask_client(arguments["method"])),
    "long_line": lambda arguments: text("x" * arguments["bytes"]),
    "helper": helper,
    "noise": noise,
    "stderr": stderr,
    "die": die,
    "close": close,
    "notify": notify,
}
# These answer for themselves, or never.
FAULTS = {
    "hang": lambda _: None,
    "misanswer": misanswer,
    "bad_utf8": bad_utf8,
    "half_character": half_character,
    "bottomless": bottomless,
    "log_json": log_json,
    "stop_reading": stop_reading,
}


def respond(message: Message) -> Message | None:
    """The members of the answer; None for none."""
    method, params = message["method"], message.get("params", {})
    if method == "tools/call" and params["name"] in FAULTS:
        FAULTS[params["name"]](message["id"])
        return None
    if method == "tools/call":
        return {"result": TOOLS[params["name"]](params.get("arguments", {}))}
    if "modern" in WORDS and method == "server/discover":
        meta = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta}}
    if "modern" in WORDS and method == "initialize":
        data = {"supported": ["2026-07-28"], "requested": params["protocolVersion"]}
        return {"error": {"code": -32022, "message": "unsupported protocol version", "data": data}}
    if method == "server/discover" and "mute-discover" in WORDS:
        return None
    if method == "tools/list":
        words = "x" * int(WORDS.get("wordy", 0))
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"result": {"tools": [*tools, {**tools[0], "name": "wordy", "description": words}]}}
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        version = {"protocolVersion": "2025-11-25", "serverInfo": SERVER_INFO, "instructions": "be kind"}
        return {"result": {**version, "capabilities": capabilities}}
    return {"error": {"code": -32601, "message": "method not found"}}


def serve() -> None:
    while line := read_line():
        message = json.loads(line)
        if "only-initialize" in WORDS and not seen and message["method"] != "initialize":
            os.write(2, b"expected initialize\n")
            os._exit(1)
        seen.append(message)
        if "id" in message and "silent" not in WORDS:
            members = respond(message)
            if members is not None:
                send_message(id=message["id"], **members)


def main() -> None:
    if "dies" in WORDS:
        os._exit(int(WORDS["dies"]))
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()] + ([start_helper(WORDS["helper"])] if "helper" in WORDS else [])
    if "pids" in WORDS:
        append(WORDS["pids"], " ".join(map(str, pids)))
    time.sleep(float(WORDS.get("slow", 0)))
    serve()
    while "deaf" in WORDS:
        time.sleep(60)


if __name__ == "__main__":
    main()
