"""Connections to children: responses reach their callers, faults stay local, and memory stays bounded."""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.eventually import eventually_async
from tests.scenarios.soak import rounds
from tests.upstream.stdio_stage import (
    BIN,
    Listener,
    call,
    command,
    content,
    faulty,
    is_alive,
    open_link,
    resident_bytes,
    tool,
)
from toolgate import __version__
from toolgate.errors import CallTimedOut, InvalidParams, ServerUnavailable
from toolgate.upstream.connection.contract import MAX_MESSAGE_BYTES, RpcResponse
from toolgate.upstream.connection.messages import guess_response_id
from toolgate.upstream.connection.stream import MAX_NOISE_BYTES
from toolgate.upstream.stdio.connector import MAX_NOISE_LINES, StdioConnection
from toolgate.upstream.stdio.pipes import MAX_PENDING_BYTES

pytestmark = pytest.mark.anyio
# For what takes seconds and does not depend on the loop.
on_one_loop = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def sent_by(link: Any) -> list[dict[str, Any]]:
    """Everything the server has read from us so far, but not this question."""
    seen: list[dict[str, Any]] = await call(link, "seen")
    return seen[:-1]


async def test_every_caller_gets_its_own_response() -> None:
    async with open_link(faulty()) as link:
        responses = await asyncio.gather(*(call(link, "echo", text=f"n{number}") for number in range(200)))

    assert responses == [f"n{number}" for number in range(200)]


async def test_a_response_is_relayed_as_it_came() -> None:
    async with open_link(faulty()) as link:
        rpc = await link.request("tools/call", tool("echo", text="é\u2028\n"), timeout_s=60)
        unknown = await link.request("no/such", {}, timeout_s=60)

    assert rpc == RpcResponse(result='{"content": [{"type": "text", "text": "é\u2028\\n"}]}'.encode())
    assert unknown == RpcResponse(error=b'{"code": -32601, "message": "method not found"}')


async def test_line_ends_between_the_tokens_of_a_call_do_not_cut_its_line() -> None:
    arguments = msgspec.Raw(b'{\r\n  "text":\r"a\\nb"\n}')
    async with open_link(faulty()) as link:
        rpc = await link.request(
            "tools/call", {"name": msgspec.Raw(b'"echo"'), "arguments": arguments}, timeout_s=60
        )

    assert content(rpc) == "a\nb"


async def test_a_response_of_many_chunks_arrives_whole() -> None:
    async with open_link(faulty()) as link:
        text = await call(link, "long_line", bytes=3_000_000)

    assert text == "x" * 3_000_000


async def test_a_request_larger_than_the_pipe_is_sent_whole() -> None:
    text = "y" * 2_000_000
    async with open_link(faulty()) as link:
        assert await call(link, "echo", text=text) == text


async def test_a_legacy_server_sees_no_envelope_and_the_rest_of_a_callers_meta() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": 7, "trace": "t"}
    async with open_link(faulty()) as link:
        for sent in ({"_meta": meta}, {"_meta": {"progressToken": 7}}, {}):
            params = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in sent.items()}
            await link.request("some/method", params, timeout_s=60)
        seen = await sent_by(link)

    assert [message["params"] for message in seen[-3:]] == [{"_meta": {"trace": "t"}}, {}, {}]


async def test_a_modern_server_always_sees_an_envelope_with_the_caller_s_own_name() -> None:
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}clientInfo": {"name": "theirs"}, "trace": "t"}
    async with open_link(faulty("modern")) as link:
        await link.request("some/method", {}, timeout_s=60)
        await link.request("some/method", {"_meta": msgspec.Raw(json.dumps(meta).encode())}, timeout_s=60)
        seen = await sent_by(link)

    own = {
        f"{prefix}protocolVersion": "2026-07-28",
        f"{prefix}clientCapabilities": {},
        f"{prefix}clientInfo": {"name": "toolgate", "version": __version__},
    }
    assert [message["params"]["_meta"] for message in seen[-2:]] == [own, own | meta]


async def test_a_meta_that_is_not_an_object_is_rejected_and_not_sent() -> None:
    async with open_link(faulty()) as link:
        with pytest.raises(InvalidParams):
            await link.request("some/method", {"_meta": msgspec.Raw(b"5")}, timeout_s=60)
        seen = await sent_by(link)

    assert "some/method" not in [message["method"] for message in seen]


async def test_notifications_of_the_server_reach_the_listener() -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        await call(link, "notify", why="x")

    assert listener.notifications == [("notifications/tools/list_changed", b'{"why": "x"}')]


async def test_chd_3_a_call_that_hangs_ends_at_its_budget_and_others_go_on() -> None:
    async with open_link(faulty()) as link:
        hanging = asyncio.ensure_future(call(link, "hang", timeout_s=0.5))
        responses = await asyncio.gather(*(call(link, "echo", text=f"n{number}") for number in range(20)))
        with pytest.raises(CallTimedOut, match=r"did not respond to `tools/call` within 0\.5 s"):
            await hanging
        cancelled = [
            message for message in await sent_by(link) if message["method"] == "notifications/cancelled"
        ]
        asked = [m["id"] for m in await sent_by(link) if m.get("params", {}).get("name") == "hang"]

    assert responses == [f"n{number}" for number in range(20)]
    assert [message["params"]["requestId"] for message in cancelled] == asked


async def test_a_cancelled_caller_cancels_at_the_server() -> None:
    async with open_link(faulty()) as link:
        hanging = asyncio.ensure_future(call(link, "hang"))
        await call(link, "echo", text="the server has read both")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        seen = await sent_by(link)

    hang_id = next(message["id"] for message in seen if message.get("params", {}).get("name") == "hang")
    assert seen[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": hang_id},
    }


async def test_chd_4_a_child_that_dies_fails_all_its_calls_at_once_and_runs_none_twice(
    tmp_path: Path,
) -> None:
    listener = Listener()
    async with open_link(faulty(f"log={tmp_path / 'log'}"), listener) as link:
        pid = await call(link, "pid")
        calls = [asyncio.ensure_future(call(link, "hang", n=number)) for number in range(50)]
        await call(link, "echo", text="all are in flight")
        calls.append(asyncio.ensure_future(call(link, "die", status=3)))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await eventually_async(lambda: not is_alive(pid))
        with pytest.raises(ServerUnavailable, match="exited with status 3; nothing was sent"):
            await call(link, "echo", text="too late")

    assert {str(outcome) for outcome in outcomes if isinstance(outcome, ServerUnavailable)} == {
        "server `faulty` exited with status 3; the outcome of the call is unknown"
    }
    assert len(outcomes) == 51
    assert listener.closed == ["exited with status 3: last words"]
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    hung = [
        message["params"]["arguments"]["n"]
        for message in log
        if message.get("params", {}).get("name") == "hang"
    ]
    assert hung == list(range(50))


async def test_a_child_killed_from_outside_is_noticed_and_named() -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        os.kill(await call(link, "pid"), signal.SIGKILL)
        async with asyncio.timeout(60):
            await listener.has_closed.wait()

    assert listener.closed == ["was killed by SIGKILL"]


async def call_until_it_fails(link: StdioConnection) -> None:
    while True:
        with suppress(CallTimedOut):  # what the call needs may still be open
            await call(link, "echo", text="x", timeout_s=0.2)


@on_one_loop
@pytest.mark.parametrize(
    ("fd", "reason"), [(1, "closed its standard output"), (0, "closed its standard input")]
)
async def test_a_child_that_closes_a_pipe_is_ended(fd: int, reason: str) -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        pid = await call(link, "pid")
        with pytest.raises(CallTimedOut):
            await call(link, "close", fd=fd, timeout_s=0.2)
        with pytest.raises(ServerUnavailable):
            await call_until_it_fails(link)
        async with asyncio.timeout(60):
            await listener.has_closed.wait()
        await eventually_async(lambda: not is_alive(pid))

    assert listener.closed == [reason]


@pytest.mark.requirement("002-046")
async def test_chd_5_answers_are_right_between_noise() -> None:
    async with open_link(faulty()) as link:
        for _ in range(3):
            assert await call(link, "noise", lines=5000, bytes=100) == "after the noise"
        assert await call(link, "log_json") == "after the log line"
        assert await call(link, "echo", text="still here") == "still here"

        assert link.dropped_items > 3 * 4000


@pytest.mark.parametrize("size", [1, 100, 60_000, 100_000_000])
async def test_chd_5_a_hundred_megabytes_of_noise_end_the_server_in_little_memory(size: int) -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        before = resident_bytes()
        with pytest.raises(ServerUnavailable):
            await call(link, "noise", lines=100_000_000 // size, bytes=size, timeout_s=60)
        grown = resident_bytes() - before

    assert listener.closed[0] in {
        "writes too much data that is not MCP to its standard output",
        f"sent a line of more than {MAX_MESSAGE_BYTES} bytes",
    }
    assert grown <= 32 * 1024 * 1024
    assert link.dropped_items <= max(MAX_NOISE_LINES, MAX_NOISE_BYTES // size) + 1


async def test_a_line_beyond_the_bound_ends_the_server() -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        with pytest.raises(ServerUnavailable):
            await call(link, "long_line", bytes=MAX_MESSAGE_BYTES)

    assert listener.closed == [f"sent a line of more than {MAX_MESSAGE_BYTES} bytes"]


@pytest.mark.requirement("002-046")
@pytest.mark.soak
async def test_chd_6_a_flood_on_stderr_blocks_nothing_and_its_end_is_kept() -> None:
    listener = Listener()
    size = rounds(suite=64, soak=1024) * 1024 * 1024
    async with open_link(faulty(), listener) as link:
        before = resident_bytes()
        response = await call(link, "stderr", bytes=size, timeout_s=60)
        await eventually_async(lambda: listener.stderr_bytes == size + len("\nlast words\n"))
        grown = resident_bytes() - before

    assert response == "after stderr"
    assert listener.stderr[-12:] == b"\nlast words\n"
    assert grown <= 16 * 1024 * 1024


@on_one_loop
async def test_chd_7_a_child_that_reads_no_more_costs_its_callers_their_time_and_the_loop_nothing() -> None:
    async with open_link(faulty()) as link:
        assert await call(link, "stop_reading") == "I read no more"
        params = tool("echo", text="z" * 400_000)
        before = resident_bytes()
        laggard = asyncio.ensure_future(measure_lag(1.0))
        outcomes = await asyncio.gather(
            *(link.request("tools/call", params, timeout_s=1.0) for _ in range(100)), return_exceptions=True
        )
        grown = resident_bytes() - before
        lag_s = await laggard

    assert {type(outcome) for outcome in outcomes} == {CallTimedOut}
    unsent = "server `faulty` does not read its input: `tools/call` was not sent"
    assert (
        len([outcome for outcome in outcomes if str(outcome) != unsent]) <= MAX_PENDING_BYTES // 400_000 + 2
    )
    assert grown <= 16 * 1024 * 1024
    assert lag_s < 0.3


async def test_calls_that_waited_for_a_child_to_read_are_sent_once_it_does() -> None:
    async with open_link(faulty()) as link:
        pid = await call(link, "pid")
        os.kill(pid, signal.SIGSTOP)
        texts = [f"{number}" + "w" * 400_000 for number in range(12)]
        calls = asyncio.gather(*(call(link, "echo", text=text) for text in texts))
        await asyncio.sleep(0)
        with pytest.raises(CallTimedOut, match="does not read its input"):
            await call(link, "echo", text="at the end of the queue", timeout_s=0.1)
        os.kill(pid, signal.SIGCONT)

        assert await calls == texts


async def test_a_call_that_waits_for_a_child_to_read_ends_with_it() -> None:
    async with open_link(faulty()) as link:
        pid = await call(link, "pid")
        os.kill(pid, signal.SIGSTOP)
        calls = [asyncio.ensure_future(call(link, "echo", text="w" * 400_000)) for _ in range(6)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    # What waits may hear of the broken pipe before anyone hears of the exit.
    notified = [str(outcome).replace("takes no input", "was killed by SIGKILL") for outcome in outcomes]
    sent = "server `faulty` was killed by SIGKILL; the outcome of the call is unknown"
    assert notified == [sent] * 3 + ["server `faulty` was killed by SIGKILL; nothing was sent"] * 3


async def test_chd_17_a_child_that_was_stopped_goes_on_where_it_was() -> None:
    async with open_link(faulty()) as link:
        pid = await call(link, "pid")
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(CallTimedOut):
            await call(link, "echo", text="asleep", timeout_s=0.2)
        os.kill(pid, signal.SIGCONT)

        assert await call(link, "pid") == pid
        assert link.dropped_responses == 1


async def measure_lag(for_s: float) -> float:
    """The longest that one turn of the loop worked, by the time that the machine gave it."""
    loop = asyncio.get_running_loop()
    ends_at, worst = loop.time() + for_s, 0.0
    while loop.time() < ends_at:
        began_s = time.thread_time()
        await asyncio.sleep(0.005)
        worst = max(worst, time.thread_time() - began_s)
    return worst


async def test_chd_10_wrong_repeated_and_null_ids_are_dropped_and_counted() -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        other = asyncio.ensure_future(call(link, "hang", timeout_s=0.3))
        assert await call(link, "misanswer") == "right"
        assert await call(link, "echo", text="mine") == "mine"
        with pytest.raises(CallTimedOut):
            await other

        assert link.dropped_responses == 7
        assert link.dropped_items == 1
    assert listener.closed == []


async def test_chd_10_a_late_response_is_dropped() -> None:
    async with open_link(faulty()) as link:
        with pytest.raises(CallTimedOut):
            await call(link, "stderr", bytes=64 * 1024 * 1024, timeout_s=0.001)
        assert await call(link, "echo", text="mine") == "mine"

        assert link.dropped_responses == 1


@pytest.mark.parametrize(
    "method", ["sampling/createMessage", "roots/list", "elicitation/create", "tools/call"]
)
async def test_chd_11_a_request_for_an_unsupported_method_is_rejected(method: str) -> None:
    async with open_link(faulty()) as link:
        response = await call(link, "ask", method=method)

        assert (response["id"], response["error"]["code"]) == ("from-server", -32601)


async def test_a_servers_ping_gets_a_response() -> None:
    async with open_link(faulty()) as link:
        assert await call(link, "ask", method="ping") == {"jsonrpc": "2.0", "id": "from-server", "result": {}}


async def test_chd_12_a_response_that_is_not_utf8_fails_alone() -> None:
    listener = Listener()
    async with open_link(faulty(), listener) as link:
        rpc = await link.request("tools/call", tool("bad_utf8"), timeout_s=60)

        assert rpc == RpcResponse(
            error=b'{"code":-32603,"message":"the server\'s response is not valid UTF-8"}'
        )
        assert await call(link, "echo", text="still here") == "still here"
        assert (link.dropped_items, listener.notifications) == (1, [])


@pytest.mark.parametrize("name", ["half_character", "bottomless"])
async def test_chd_12_a_response_that_cannot_be_relayed_fails_at_once_and_alone(name: str) -> None:
    async with open_link(faulty()) as link:
        async with asyncio.timeout(60):
            rpc = await link.request("tools/call", tool(name), timeout_s=60)

        problem = b"the server's response is not JSON that the gateway can relay"
        assert rpc == RpcResponse(error=b'{"code":-32603,"message":"%b"}' % problem)
        assert await call(link, "echo", text="still here") == "still here"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"id":7,"result":NaN}', b"7"),
        (b'{"id":7,"error":{"message":"\\ud800"}}', b"7"),
        (b'{"id":7,"method":"x","params":NaN}', b""),
        (b'{"id":"7","result":NaN}', b""),
        (b'{"id":true,"result":NaN}', b""),
        (b'{"result":NaN}', b""),
        (b'["id",7,"result"]', b""),
        (b'{"id":7,"result":', b""),
        (b'{"id":7,"result":' + b"[" * 100_000, b"7"),
        (b'{ "jsonrpc": "2.0", "id": 7, "error": ' + b"[" * 100_000, b"7"),
        (b'{"id":7,"method":"x","params":' + b"[" * 100_000, b""),
        (b'{"id":"7","result":' + b"[" * 100_000, b""),
        (b'{"a":' + b"[" * 100_000 + b',"id":7,"result":0', b""),
        (b'{"id":7,"result":"\xff"}', b""),
    ],
)
def test_the_request_of_an_unreadable_response_is_guessed(line: bytes, number: bytes) -> None:
    assert guess_response_id(line) == number


@pytest.mark.requirement("002-006")
@on_one_loop
async def test_real_modern_servers_are_spoken_to_in_their_era(tmp_path: Path) -> None:
    async with open_link(command(str(BIN / "mcp-server-time"), "--local-timezone", "UTC")) as link:
        zone = {"timezone": msgspec.Raw(b'"UTC"')}
        params = {
            "name": msgspec.Raw(b'"get_current_time"'),
            "arguments": msgspec.Raw(msgspec.json.encode(zone)),
        }
        notified = content(await link.request("tools/call", params, timeout_s=60))
        assert (link.server_info.revision, notified["timezone"]) == ("modern", "UTC")

    async with open_link(command(str(BIN / "mcp-server-git"), cwd=str(tmp_path))) as link:
        listed = await link.request("tools/list", {}, timeout_s=60)
        assert listed.result is not None
        names = [one["name"] for one in json.loads(listed.result)["tools"]]
        assert (link.server_info.revision, link.server_info.version) == ("modern", "2026-07-28")
        assert "git_status" in names
