"""An MCP server on stdio for the scenarios. Standard library only, so that it is up at once.

Each call runs in a thread of its own, so one that hangs holds up no other. Words on its command line:

    modern        speaks 2026-07-28 alone (2025-11-25 alone otherwise)
    silent        never answers anything
    once=PATH     answers only in the process that creates PATH; in every later one it is silent
    deaf          ignores end of input and SIGTERM
    helper=KIND   starts a helper first: `group`, or `daemon`, orphaned and in a session of its own
    pids=PATH     appends its pid, and that of its helper, to a file
    ended=PATH    creates PATH when its input has ended
    drips         writes long messages in one-byte writes
    tools=A,B     offers only these of its tools; `meta`, `fail` and `long` only so

Any other word only marks its process, and those of its helpers, in the process table.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

Message = dict[str, Any]
WORDS = dict(word.partition("=")[::2] for word in sys.argv[1:])
IS_MODERN = "modern" in WORDS
SERVER_INFO = {"name": "stage", "version": "1"}
writing = threading.Lock()


def send(**members: Any) -> None:
    line = json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"
    with writing:
        if "drips" in WORDS and len(line) > 65536:
            for at in range(len(line)):
                os.write(1, line[at : at + 1])
        else:
            os.write(1, line)


def echo(arguments: Message) -> str:
    """Say the same."""
    return str(arguments["text"])


def pid(arguments: Message) -> str:
    """Say which process this is."""
    return str(os.getpid())


def environment(arguments: Message) -> str:
    """Say what the environment is."""
    return json.dumps(dict(os.environ))


def wait(arguments: Message) -> str:
    """Say the same once a file is there: the one at `path`, or the one that is said."""
    while not Path(str(arguments.get("path", arguments["text"]))).exists():
        time.sleep(0.05)
    return str(arguments["text"])


def hang(arguments: Message) -> str:
    """Never answer."""
    threading.Event().wait()
    return ""


def complain(arguments: Message) -> str:
    """Say the same on standard error."""
    os.write(2, str(arguments["text"]).encode() + b"\n")
    return "said"


def meta(params: Message) -> str:
    """Say the `_meta` of the call."""
    return json.dumps(params.get("_meta"))


def fail(params: Message) -> str:
    """Say that it has failed."""
    raise RuntimeError(str(params.get("_meta")))


def long(params: Message) -> str:
    """Say something of so many bytes."""
    return "x" * int(params["arguments"]["bytes"])


TOOLS = {tool.__name__: tool for tool in (echo, pid, environment, wait, hang, complain)}
OF_THE_CALL = {tool.__name__: tool for tool in (meta, fail, long)}
"""Those that are given all params, and are offered only by name."""
OFFERED = WORDS["tools"].split(",") if "tools" in WORDS else list(TOOLS)


def definitions() -> list[Message]:
    return [
        {"name": name, "description": (TOOLS | OF_THE_CALL)[name].__doc__, "inputSchema": {"type": "object"}}
        for name in OFFERED
    ]


def call(number: int, params: Message) -> None:
    name, is_error = params["name"], False
    try:
        text = OF_THE_CALL[name](params) if name in OF_THE_CALL else TOOLS[name](params.get("arguments", {}))
    except RuntimeError as exc:
        text, is_error = str(exc), True
    content = [{"type": "text", "text": text}]
    failed = {"isError": True} if is_error else {}
    send(id=number, result={"content": content, "resultType": "complete", **failed})


def respond(message: Message) -> Message:
    """The members of the answer to anything but a call."""
    method = message["method"]
    if method == "tools/list":
        return {
            "result": {
                "tools": definitions(),
                "resultType": "complete",
                "ttlMs": 60_000,
                "cacheScope": "public",
            }
        }
    if IS_MODERN and method == "server/discover":
        meta = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta}}
    if not IS_MODERN and method == "initialize":
        version = {"protocolVersion": "2025-11-25", "serverInfo": SERVER_INFO}
        return {"result": {**version, "capabilities": {"tools": {}}}}
    return {"error": {"code": -32601, "message": "method not found"}}


def start_helper(kind: str) -> int:
    """A process that heeds no polite request."""
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        if kind == "daemon":
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write_fd, str(os.getpid()).encode())
        while True:
            signal.pause()
    pid_of_helper = int(os.read(read_fd, 20))
    if kind == "daemon":
        os.wait()
    return pid_of_helper


def is_first(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def serve(*, is_silent: bool) -> None:
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        if is_silent or "id" not in message:
            continue
        if message["method"] == "tools/call":
            threading.Thread(target=call, args=(message["id"], message["params"]), daemon=True).start()
        else:
            send(id=message["id"], **respond(message))


def main() -> None:
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()] + ([start_helper(WORDS["helper"])] if "helper" in WORDS else [])
    if "pids" in WORDS:
        with Path(WORDS["pids"]).open("a", encoding="ascii") as file:
            file.write(" ".join(map(str, pids)) + "\n")
    serve(is_silent="silent" in WORDS or ("once" in WORDS and not is_first(Path(WORDS["once"]))))
    if "ended" in WORDS:
        Path(WORDS["ended"]).touch()
    while "deaf" in WORDS:
        signal.pause()


if __name__ == "__main__":
    main()
