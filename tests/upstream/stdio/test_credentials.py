"""SEC-9 behind a pipe: a child's own credentials are not in what callers and operators are shown."""

import sys

import pytest

from tests.eventually import eventually_async
from tests.upstream.stdio_stage import Listener, command, open_link, tool

pytestmark = pytest.mark.anyio

TOKEN = "canary-4f1c9d2e7b"
# A server that quotes its token wherever it can: in a result, in an error, on standard error, in pieces.
LEAKY = """
import json, os, sys, time
token = os.environ["API_TOKEN"]
def say(id, **answer):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    name = message.get("params", {}).get("name")
    if message.get("method") == "initialize":
        info = {"name": "leaky", "version": "1"}
        say(message["id"], result={"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info})
    elif name == "error":
        say(message["id"], error={"code": -32000, "message": "401 for " + token})
    elif name == "tool_error":
        say(message["id"], result={"isError": True, "content": [{"type": "text", "text": token}]})
    elif name == "stderr":
        for part in (token[:5], token[5:], " was refused\\n", token):
            os.write(2, part.encode()); time.sleep(0.02)
        say(message["id"], result={"content": []})
    elif "id" in message:
        say(message["id"], error={"code": -32601, "message": "no"})
"""


async def test_sec_9_a_childs_own_token_is_masked_in_errors_and_on_stderr() -> None:
    listener = Listener()
    record = command(sys.executable, "-c", LEAKY, env={"API_TOKEN": TOKEN})
    async with open_link(record, listener) as link:
        error = await link.request("tools/call", tool("error"), timeout_s=60)
        tool_error = await link.request("tools/call", tool("tool_error"), timeout_s=60)
        await link.request("tools/call", tool("stderr"), timeout_s=60)
        await eventually_async(lambda: b"was refused\n" in listener.stderr)

    assert error.error == b'{"code": -32000, "message": "401 for [redacted]"}'
    assert tool_error.result == b'{"isError":true,"content":[{"type": "text", "text": "[redacted]"}]}'
    await eventually_async(lambda: listener.stderr.count(b"[redacted]") == 2)
    assert TOKEN.encode() not in listener.stderr


async def test_what_was_referred_to_is_masked_whatever_its_name() -> None:
    record = command(sys.executable, "-c", LEAKY, env={"API_TOKEN": "${ENV:PLAIN}"})
    async with open_link(record, environ={"PLAIN": TOKEN}) as link:
        error = await link.request("tools/call", tool("error"), timeout_s=60)

    assert error.error == b'{"code": -32000, "message": "401 for [redacted]"}'
