"""What every link promises the pool, whatever carries its messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.contract.link_server import REFUSAL
from tests.contract.links import SUBJECTS, Ears, Subject
from tests.eventually import eventually_async
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LEGACY_VERSIONS,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
)
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import Params, RpcResponse, ServerConnection, StartFailed

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture(params=SUBJECTS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    opens, era = SUBJECTS[request.param]
    async with opens(era) as subject:
        yield subject


def params(name: str, arguments: Any = None, **members: Any) -> Params:
    sent = {"name": name, "arguments": arguments or {}, **members}
    return {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in sent.items()}


async def call_tool(link: ServerConnection, name: str, *, timeout_s: float = 60.0, **members: Any) -> Any:
    """The `echo` in the result of a tool."""
    rpc = await link.request(CALL, params(name, **members), timeout_s=timeout_s)
    assert rpc.result is not None, rpc
    return msgspec.json.decode(rpc.result).get("echo")


async def until_stopped(link: ServerConnection, *, times: int) -> None:
    async with asyncio.timeout(60):
        while await call_tool(link, "stopped") < times:
            await asyncio.sleep(0.01)


async def hanging(link: ServerConnection) -> asyncio.Task[RpcResponse]:
    """A request that has reached the server, which will never answer it."""
    task = asyncio.create_task(link.request(CALL, params("hang"), timeout_s=60))
    await asyncio.sleep(0)
    await call_tool(link, "echo")
    return task


async def test_an_opener_gives_a_link_that_knows_its_server(
    subject: Subject, link: ServerConnection, ears: Ears
) -> None:
    versions = {"legacy": LEGACY_VERSIONS[0], "modern": MODERN_VERSION}

    assert link.server_info.version == versions[link.server_info.revision]
    assert link.server_info.announces("tools", "listChanged")
    assert (link.pid is not None) == (subject.record.transport == "stdio")
    assert ears.closings == []


@pytest.mark.parametrize("known", ["right", "wrong"])
async def test_an_opener_takes_a_known_revision_as_a_hint_only(
    subject: Subject, link: ServerConnection, ears: Ears, known: str
) -> None:
    other: Revision = "modern" if link.server_info.revision == "legacy" else "legacy"
    era = link.server_info.revision if known == "right" else other
    again = await subject.opener(subject.record, ears, known_revision=era)
    try:
        assert again.server_info.revision == link.server_info.revision
        assert await call_tool(again, "echo", arguments={"a": 1}) == {"a": 1}
    finally:
        await again.aclose()


async def test_a_result_comes_back_as_it_was_sent(link: ServerConnection) -> None:
    arguments = {
        "text": 'line\n"quoted" \\ \u2028 漢字 😀 \x00',
        "number": 12345678901234567890,
        "none": None,
    }

    assert await call_tool(link, "echo", arguments=arguments) == arguments


async def test_an_error_of_the_server_is_a_reply(link: ServerConnection) -> None:
    rpc = await link.request(CALL, params("refuse"), timeout_s=60)

    assert rpc.result is None
    assert msgspec.json.decode(rpc.error or b"") == REFUSAL


async def test_answers_find_their_requests(link: ServerConnection) -> None:
    responses = await asyncio.gather(*(call_tool(link, "echo", arguments={"n": n}) for n in range(100)))

    assert responses == [{"n": n} for n in range(100)]


async def test_the_envelope_is_the_one_of_the_era(link: ServerConnection) -> None:
    sent = {"vendor": 1, "progressToken": "mine", PROTOCOL_VERSION_KEY: MODERN_VERSION}

    meta = await call_tool(link, "meta", _meta=sent)
    bare = await call_tool(link, "meta")

    if link.server_info.revision == "legacy":
        assert (meta, bare) == ({"vendor": 1}, {})
    else:
        envelope = {PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY}
        assert (meta["vendor"], meta.keys(), bare.keys()) == (1, envelope | {"vendor"}, envelope)


async def test_chd_3_a_request_times_out_alone_and_the_server_is_notified(
    link: ServerConnection, ears: Ears
) -> None:
    waiting = asyncio.create_task(call_tool(link, "hang", timeout_s=0.3))
    echoed = await call_tool(link, "echo", arguments={"a": 1})
    with pytest.raises(CallTimedOut):
        await waiting
    await until_stopped(link, times=1)

    assert (echoed, ears.closings) == ({"a": 1}, [])


async def test_bud_8_a_caller_that_goes_away_stops_the_server(link: ServerConnection) -> None:
    waiting = await hanging(link)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until_stopped(link, times=1)

    assert waiting.cancelled()


async def test_bud_2_progress_does_not_prolong_a_request(link: ServerConnection) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    with pytest.raises(CallTimedOut):
        await call_tool(link, "progress", timeout_s=0.3)

    assert 0.2 < loop.time() - began_s < 30


async def test_what_the_server_says_unasked_reaches_the_listener(link: ServerConnection, ears: Ears) -> None:
    async with asyncio.timeout(60):
        while not ears.notifications:
            await call_tool(link, "announce")
            await asyncio.sleep(0.02)

    assert set(ears.notifications) == {"notifications/tools/list_changed"}


async def test_chd_4_when_the_server_dies_every_request_fails_and_the_listener_is_notified_once(
    link: ServerConnection, ears: Ears
) -> None:
    waiting = [await hanging(link) for _ in range(10)]

    with pytest.raises(ServerUnavailable):
        await call_tool(link, "die")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(2):
        with pytest.raises(ServerUnavailable):
            await call_tool(link, "echo")
    await eventually_async(lambda: ears.closings)
    await link.aclose()

    assert {type(outcome) for outcome in outcomes} == {ServerUnavailable}
    assert len(ears.closings) == 1


async def test_a_link_that_was_closed_fails_its_requests_and_tells_no_one(
    subject: Subject, link: ServerConnection, ears: Ears
) -> None:
    waiting = await hanging(link)

    await link.aclose()
    await link.aclose()
    outcome = await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(ServerUnavailable):
        await call_tool(link, "echo")
    await eventually_async(lambda: subject.count_open() == 0)

    assert isinstance(outcome[0], ServerUnavailable)
    assert ears.closings == []


async def test_a_server_that_cannot_be_reached_is_a_failed_start(subject: Subject, ears: Ears) -> None:
    with pytest.raises(StartFailed):
        await subject.opener(subject.missing, ears, known_revision=None)

    assert ears == Ears()


async def test_shu_6_a_start_that_is_given_up_leaves_nothing(subject: Subject, ears: Ears) -> None:
    opening = asyncio.ensure_future(subject.opener(subject.silent, ears, known_revision=None))
    await eventually_async(subject.count_open)

    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await eventually_async(lambda: subject.count_open() == 0)

    assert (opening.cancelled(), ears) == (True, Ears())
