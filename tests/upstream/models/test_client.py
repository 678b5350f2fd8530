"""Requests to models: what is sent, what comes back, and the state of the connection."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.upstream.model_stage import ANY, BODY, KEY, PATH, STREAM, asking, at, in_s, read
from tests.upstream.scripted_model import (
    Reply,
    cut,
    fail_after,
    hang,
    hold,
    in_bytes,
    scripted_model,
    status,
    stream,
    text,
    whole,
    without_done,
)
from toolgate.errors import ModelBusy, ModelUnavailable
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.models.client import ModelRequest, ModelResponse, Models
from toolgate.upstream.models.endpoint import MAX_WAITING_BYTES

pytestmark = pytest.mark.anyio

_DONE = b"data: [DONE]\n\n"


async def test_a_whole_response_comes_back_as_it_was_sent() -> None:
    async with asking(text("héllo")) as (models, model):
        response = await models.request(
            ModelRequest(at(model.url), PATH, BODY, deadline_s=in_s(60), may_retry=False)
        )

    assert response.status == 200
    assert json.loads(response.body)["choices"][0]["message"]["content"] == "héllo"
    assert (model.requests[0].path, model.requests[0].raw) == ("/v1/chat/completions", BODY)


@pytest.mark.parametrize(
    "completion",
    [
        pytest.param(text("héllo", step=1), id="one character a delta"),
        pytest.param(in_bytes(text("héllo")), id="one byte at a time, characters split"),
        pytest.param(in_bytes(text("héllo"), 7), id="events split anywhere"),
        pytest.param(without_done(text("héllo")), id="without DONE"),
        pytest.param(
            stream(b": ping\n\n", b"data: {}\r\n\r\n", b"data: a\ndata: b\n\n", _DONE), id="odd ones"
        ),
        pytest.param(stream(b'data: {"a": 1}\n\n', b'data: {"b": 2}'), id="no last blank line"),
        pytest.param(fail_after(text("héllo"), 2), id="an error in the stream"),
    ],
)
async def test_a_stream_comes_back_as_it_was_sent(completion: Reply) -> None:
    """CHT-6"""
    async with asking(completion) as (models, model):
        events = await read(models, model)
        sent = b"".join(completion(model.requests[0]).pieces)

    assert b"".join(event.raw for event in events) == sent
    assert b"\n".join(event.data for event in events if event.data)


async def test_a_stream_is_over_when_it_says_so_though_the_connection_stays() -> None:
    content = b"data: {}\n\n" + _DONE + b"data: more\n\ndata: ha"
    async with asking(hang(stream(content + b"lf"), after=len(content))) as (models, model):
        events = await read(models, model)

    assert [event.data for event in events] == [b"{}", b"[DONE]"]


async def test_a_stream_that_breaks_off_gives_what_came_and_then_an_error() -> None:
    """CHT-6"""
    async with (
        asking(cut(stream(b"data: a\n\n", b"data: b\n\n"), 12)) as (models, model),
        models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(60), may_retry=True)
        ) as events,
    ):
        assert not isinstance(events, ModelResponse)
        first = await anext(events)
        with pytest.raises(ModelUnavailable, match=r"`local` at `127\.0\.0\.1:\d+`.* closed the connection"):
            await anext(events)

    assert first.data == b"a"
    assert len(model.requests) == 1  # the caller got something, so there is no retry


async def test_a_server_that_does_not_stream_may_send_a_whole_response() -> None:
    async with (
        asking(whole({"id": "x"})) as (models, model),
        models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(60), may_retry=False)
        ) as response,
    ):
        pass

    assert isinstance(response, ModelResponse)
    assert response.body == b'{"id":"x"}'


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        pytest.param(stream(b"data: {}\n\n"), "an event stream, which was not requested", id="a stream"),
        pytest.param(
            status(307, headers={"Location": "http://x/"}),
            r"status 307 \(a redirect, which the gateway does not follow\)",
            id="a redirect",
        ),
        pytest.param(whole(b" " * 9_000_000), "longer than 8388608 bytes", id="too long"),
        pytest.param(cut(whole(b"{}"), 1), "closed the connection", id="cut"),
    ],
)
async def test_an_invalid_response_is_an_error_with_the_reason(completion: Reply, reason: str) -> None:
    async with asking(completion) as (models, model):
        with pytest.raises(ModelUnavailable, match=reason):
            await models.request(ModelRequest(at(model.url), PATH, BODY, deadline_s=in_s(60), may_retry=True))

    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "completion",
    [pytest.param(text("a"), id="with DONE"), pytest.param(without_done(text("a")), id="without")],
)
async def test_streams_follow_each_other_on_one_connection(completion: Reply) -> None:
    async with asking(completion, completion, completion) as (models, model):
        lengths = [len(await read(models, model)) for _ in range(3)]

    assert len(set(lengths)) == 1
    assert model.connections < 3  # the end of a stream may come a moment after its DONE


async def test_an_event_without_end_is_rejected() -> None:
    async with asking(stream(*[b"data: " + b"a" * 1_000_000] * 40)) as (models, model):
        with pytest.raises(ModelUnavailable, match="an event on the stream is longer than 8388608 bytes"):
            await read(models, model)

        await model.requests[0].hung_up.wait()


@pytest.mark.parametrize("body", [pytest.param(BODY, id="whole"), pytest.param(STREAM, id="stream")])
async def test_a_caller_that_is_cancelled_before_the_response_begins_closes_the_connection(
    body: bytes,
) -> None:
    async with asking(hang(), text("next")) as (models, model):
        task = asyncio.create_task(
            models.request(ModelRequest(at(model.url), PATH, body, deadline_s=in_s(99), may_retry=True))
        )
        request = await model.asked(1)
        task.cancel()

        await request.hung_up.wait()
        await read(models, model)
    assert model.connections == 2


async def test_a_caller_that_is_cancelled_in_a_stream_closes_the_connection() -> None:
    """CHT-6"""
    content = stream(b"data: a\n\n", b"data: b\n\n")
    async with asking(hang(content, after=9)) as (models, model):
        task = asyncio.create_task(read(models, model))
        request = await model.asked(1)
        task.cancel()

        await request.hung_up.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_caller_that_leaves_a_stream_closes_the_connection() -> None:
    content = stream(b"data: a\n\n", b"data: b\n\n")
    async with asking(hang(content, after=9)) as (models, model):
        async with models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(99), may_retry=False)
        ) as events:
            assert not isinstance(events, ModelResponse)
            first = await anext(events)

        await model.requests[0].hung_up.wait()
    assert first.data == b"a"


async def test_a_stream_is_read_no_faster_than_it_is_taken() -> None:
    event = b"data: " + b"a" * 20_000 + b"\n\n"
    most, count = 0, 0
    async with asking(stream(*[event] * 400), text("next")) as (models, model):
        async with models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(60), may_retry=False)
        ) as events:
            assert not isinstance(events, ModelResponse)
            async for _ in events:
                most = max(most, events.waiting_bytes)
                count += 1
                for _ in range(10):
                    await asyncio.sleep(0)
        await read(models, model)

    assert count == 400
    assert MAX_WAITING_BYTES / 2 < most < MAX_WAITING_BYTES + 300_000  # what one read may bring
    assert model.connections == 1  # and it is read on afterwards


async def test_a_stream_that_ends_while_it_is_paused_leaves_a_connection_that_can_be_used() -> None:
    event = b"data: " + b"a" * 1_016 + b"\n\n"
    count = MAX_WAITING_BYTES // len(event) + 1  # the last of them is one too many
    async with asking(stream(event * count), text("next")) as (models, model):
        async with models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(99), may_retry=False)
        ) as events:
            assert not isinstance(events, ModelResponse)
            while events.waiting_bytes <= MAX_WAITING_BYTES:
                await asyncio.sleep(0)
            taken = [event async for event in events]
        await read(models, model)

    assert len(taken) == count
    assert model.connections == 1


async def test_a_caller_that_takes_a_long_response_lets_others_run_meanwhile() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with (
        asking(stream(b"data: a\n\n" * 1_000)) as (models, model),
        models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(99), may_retry=False)
        ) as events,
    ):
        assert not isinstance(events, ModelResponse)
        while events.waiting_bytes < 9_000:
            await asyncio.sleep(0)
        other = asyncio.create_task(count_turns())
        taken = [event async for event in events]
        other.cancel()

    assert len(taken) == 1_000
    assert turns >= 50


async def test_more_requests_than_an_upstream_allows_fail_at_once() -> None:
    gate_keeper = hang(stream(b"data: a\n\n", b"data: b\n\n"), after=9)
    async with asking(gate_keeper, text("next")) as (models, model):
        upstream = at(model.url, max_concurrency=1)
        async with models.stream(ModelRequest(upstream, PATH, STREAM, deadline_s=in_s(60), may_retry=False)):
            with pytest.raises(ModelBusy, match="`local` has 1 requests in flight, and allows no more"):
                await models.request(ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=True))
        await models.request(ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=False))

    assert len(model.requests) == 2


async def test_a_request_goes_where_the_record_says_with_what_it_says() -> None:
    headers = {"X-Org": "${ENV:ORG:-acme}", "User-Agent": "mine"}
    async with asking(text("a")) as (models, model):
        upstream = at(f"{model.url}/?api-version=7", headers=headers, auth_ref="model_key")
        with pytest.raises(Exception, match="404"):
            await models.request(
                ModelRequest(upstream, "/no/such", BODY, deadline_s=in_s(60), may_retry=False)
            )

    request = model.requests[0]
    sent = {
        name: request.headers[name] for name in ("x-org", "user-agent", "authorization", "accept-encoding")
    }
    assert request.path == "/v1/no/such?api-version=7"
    assert sent == {
        "x-org": "acme",
        "user-agent": "mine",
        "authorization": f"Bearer {KEY}",
        "accept-encoding": "identity",
    }


async def test_a_new_key_is_used_from_the_next_request_on(tmp_path: Path) -> None:
    secret = tmp_path / "model_key"
    secret.write_text("the first key")
    async with (
        asyncio.timeout(60),
        scripted_model(text("a"), text("b"), text("c")) as model,
        Models(Secrets({}, tmp_path), ANY) as models,
    ):
        upstream = at(model.url, auth_ref="model_key")
        for key in ("the first key", "the first key", "the second key"):
            secret.write_text(key)
            await models.request(ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=False))

    shown = [request.headers["authorization"] for request in model.requests]
    assert shown == ["Bearer the first key", "Bearer the first key", "Bearer the second key"]
    assert model.connections == 2


async def test_an_upstream_that_is_gone_is_parted_with_when_its_streams_have_ended() -> None:
    content = stream(b"data: a\n\n", b"data: b\n\n", _DONE)
    gate = asyncio.Event()
    async with asking(hold(content, gate, after=9)) as (models, model):
        async with models.stream(
            ModelRequest(at(model.url), PATH, STREAM, deadline_s=in_s(60), may_retry=False)
        ) as events:
            assert not isinstance(events, ModelResponse)
            models.apply({})
            gate.set()
            received = [event.data async for event in events]

        await model.idle()
    assert received == [b"a", b"b", b"[DONE]"]


async def test_what_is_off_is_parted_with_and_what_stays_is_kept() -> None:
    async with asking(text("a"), text("b"), text("c")) as (models, model):
        on = at(model.url)
        await models.request(ModelRequest(on, PATH, BODY, deadline_s=in_s(60), may_retry=False))
        models.apply({"local": on})
        await models.request(ModelRequest(on, PATH, BODY, deadline_s=in_s(60), may_retry=False))
        kept = model.connections
        models.apply({"local": at(model.url, enabled=False)})
        await model.idle()

    assert kept == 1
