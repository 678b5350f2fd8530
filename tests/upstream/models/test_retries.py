"""Retries of model requests, their timeouts, and their errors."""

import asyncio
from typing import Any

import pytest

from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from tests.upstream.model_stage import BODY, PATH, STREAM, asking, at, in_s
from tests.upstream.scripted_model import Reply, cut, hang, scripted_model, status, stream, text, whole
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import ModelRefused, ModelTimedOut, ModelUnavailable, ToolgateError
from toolgate.model.servers import HttpEndpoint
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.models.client import ModelRequest, ModelResponse, Models
from toolgate.upstream.models.endpoint import ModelEndpoint, ModelEventStream

pytestmark = pytest.mark.anyio

_COMPLETION = text("hello")


def _rejection(seconds: int) -> Reply:
    return status(429, headers={"Retry-After": str(seconds)})


@pytest.mark.parametrize("body", [pytest.param(BODY, id="whole"), pytest.param(STREAM, id="stream")])
@pytest.mark.parametrize(
    ("script", "may_retry", "requests", "outcome"),
    [
        pytest.param([status(429), _COMPLETION], True, 2, 200, id="429"),
        pytest.param([status(502), _COMPLETION], True, 2, 200, id="502"),
        pytest.param([status(503), _COMPLETION], True, 2, 200, id="503"),
        pytest.param([status(504), _COMPLETION], True, 2, 200, id="504"),
        pytest.param([status(503), status(429), _COMPLETION], True, 3, 200, id="two failures"),
        pytest.param([status(503)] * 4, True, 3, 503, id="three failures are enough"),
        pytest.param([_rejection(0), _COMPLETION], True, 2, 200, id="delay of 0 s"),
        pytest.param([_rejection(6), _COMPLETION], True, 1, 429, id="delay too long"),
        pytest.param([status(500), _COMPLETION], True, 1, 500, id="500"),
        pytest.param([status(400), _COMPLETION], True, 1, 400, id="400"),
        pytest.param([status(401), _COMPLETION], True, 1, 401, id="401"),
        pytest.param([status(404), _COMPLETION], True, 1, 404, id="404"),
        pytest.param([cut(whole(b"{}"), 1), _COMPLETION], True, 1, "model_unavailable", id="it may have run"),
        pytest.param([status(503), _COMPLETION], False, 1, 503, id="not allowed: 503"),
        pytest.param([status(429), _COMPLETION], False, 1, 429, id="not allowed: 429"),
    ],
)
async def test_a_request_to_a_model_is_retried_only_if_that_may_help(
    script: list[Any], may_retry: bool, requests: int, outcome: int | str, body: bytes
) -> None:
    async with asking(*script) as (models, model):
        try:
            async with models.stream(
                ModelRequest(at(model.url), PATH, body, deadline_s=in_s(60), may_retry=may_retry)
            ) as response:
                came: int | str = response.status if isinstance(response, ModelResponse) else 200
        except ToolgateError as exc:
            came = exc.data.get("status", exc.code)

    assert (came, len(model.requests)) == (outcome, requests)


@pytest.mark.parametrize(("script", "requests", "is_served"), [("+-+", 3, True), ("-+", 2, False)])
async def test_a_kept_connection_that_ends_before_a_response_begins_is_replaced_by_a_new_one(
    script: str, requests: int, is_served: bool
) -> None:
    """Servers close idle connections, perhaps with a request in flight. A new connection has failed."""
    fate = iter(script)
    seen = []

    async def serve(request: Request, peer: Peer) -> None:
        seen.append(request.body)
        if next(fate) == "-":
            peer.reset()
        else:
            await peer.respond(b"{}")

    async with (
        asyncio.timeout(60),
        FaultyHttp(serve) as server,
        Models(Secrets({}), Egress(allow_private=True)) as models,
    ):
        served = [await _is_served(models, server.url, deadline_s=in_s(60)) for _ in range(2)]

    assert (served, len(seen)) == ([is_served, True], requests)


async def _is_served(models: Models, url: str, *, deadline_s: float) -> bool:
    try:
        await models.request(ModelRequest(at(url), PATH, BODY, deadline_s=deadline_s, may_retry=False))
    except ModelUnavailable as exc:
        assert "closed the connection" in str(exc)
        return False
    return True


async def test_a_retry_past_the_deadline_is_not_awaited() -> None:
    async with asking(_rejection(5), _COMPLETION) as (models, model):
        with pytest.raises(ModelRefused):
            await models.request(ModelRequest(at(model.url), PATH, BODY, deadline_s=in_s(4), may_retry=True))

    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("may_retry", "failures", "is_served"), [(True, 2, True), (True, 3, False), (False, 1, False)]
)
async def test_a_connection_that_fails_is_tried_again(
    may_retry: bool, failures: int, is_served: bool
) -> None:
    left = failures

    async def resolver(host: str, port: int) -> list[str]:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError("no such host")
        return ["127.0.0.1"]

    egress = Egress(allow_private=True, resolver=resolver)
    async with (
        asyncio.timeout(60),
        scripted_model(_COMPLETION) as model,
        Models(Secrets({}), egress, pauses_s=(0.0, 0.0)) as models,
    ):
        upstream = at(f"http://models.test:{model.port}/v1")
        try:
            await models.request(ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=may_retry))
        except ModelUnavailable as exc:
            assert not is_served
            assert "chat upstream `local` cannot be reached: cannot connect to `models.test:" in str(exc)

    assert len(model.requests) == is_served
    assert left == (-1 if is_served else 0)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9/v1", "http://models.test/v1", "http://169.254.169.254/v1"],
)
async def test_what_may_not_be_connected_to_is_not_and_is_not_tried_again(url: str) -> None:
    attempts = 0

    async def resolver(host: str, port: int) -> list[str]:
        nonlocal attempts
        attempts += 1
        return ["10.0.0.1"]

    egress = Egress(allow_private=False, resolver=resolver)
    async with Models(Secrets({}), egress) as models:
        with pytest.raises(ModelUnavailable):
            await models.request(ModelRequest(at(url), PATH, BODY, deadline_s=in_s(60), may_retry=True))

    assert attempts == ("models.test" in url)


async def test_the_message_of_a_rejection_is_passed_on() -> None:
    content = {"error": {"message": "slow down", "type": "rate_limit"}}
    async with asking(status(429, content, {"Retry-After": "7"})) as (models, model):
        with pytest.raises(ModelRefused) as refused:
            await models.request(
                ModelRequest(at(model.url), PATH, BODY, deadline_s=in_s(60), may_retry=False)
            )

    assert str(refused.value).endswith("responded with status 429: slow down")
    assert refused.value.data == {
        "status": 429,
        "body": '{"error":{"message":"slow down","type":"rate_limit"}}',
        "retry_after": 7,
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff\xfe", b'{"error": null}', b'{"error": {"message": 1}}', b'{"error": {}}', b"[1]"],
)
async def test_a_rejection_may_have_any_body(body: bytes) -> None:
    async with asking(status(500, body)) as (models, model):
        with pytest.raises(ModelRefused, match=r"responded with status 500$") as refused:
            await models.request(
                ModelRequest(at(model.url), PATH, BODY, deadline_s=in_s(60), may_retry=False)
            )

    assert refused.value.data["body"] == body.decode(errors="replace")


@pytest.mark.parametrize("body", [pytest.param(BODY, id="whole"), pytest.param(STREAM, id="stream")])
async def test_a_model_that_does_not_begin_is_given_up(body: bytes) -> None:
    async with asking(hang()) as (models, model):
        upstream = at(model.url, answer_timeout_ms=1_000)
        with pytest.raises(ModelTimedOut, match=r"at `127\.0\.0\.1:\d+` sent nothing for 1 s"):
            await models.request(ModelRequest(upstream, PATH, body, deadline_s=in_s(60), may_retry=True))

        await model.requests[0].hung_up.wait()
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("answer_ms", "deadline_s", "why"),
    [(1_000, 60.0, "sent nothing for 1 s"), (60_000, 1.0, "did not finish within the time of the request")],
)
async def test_a_stream_that_stalls_times_out(answer_ms: int, deadline_s: float, why: str) -> None:
    async with asking(hang(stream(b"data: a\n\n", b"data: b\n\n"), after=9)) as (models, model):
        upstream = at(model.url, answer_timeout_ms=answer_ms)
        async with models.stream(
            ModelRequest(upstream, PATH, STREAM, deadline_s=in_s(deadline_s), may_retry=True)
        ) as events:
            assert not isinstance(events, ModelResponse)
            first = await anext(events)
            with pytest.raises(ModelTimedOut, match=why):
                await anext(events)

        await model.requests[0].hung_up.wait()
    assert first.data == b"a"


class TestTime:
    """The exact time that a response may take."""

    @pytest.fixture
    def anyio_backend(self) -> Any:
        return VIRTUAL

    async def test_silence_is_counted_from_the_last_part(self) -> None:
        inflow = ModelEventStream(_endpoint(), silence_s=60, deadline_s=150)
        times = [inflow.deadline(0)]
        await pass_time(50)
        inflow.begin()
        times.append(inflow.deadline(0))
        await pass_time(30)
        inflow.feed(b"data")
        times.append(inflow.deadline(0))
        await pass_time(30)
        inflow.feed(b": a\n\n")
        times.append(inflow.deadline(0))

        assert times == [60, 110, 140, 150]
        assert not inflow.is_over

    async def test_silence_is_not_counted_while_no_one_listens(self) -> None:
        inflow = ModelEventStream(_endpoint(), silence_s=60, deadline_s=500)
        connection = _Paused()
        inflow.attach(connection, asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
        inflow.feed((b"data: " + b"a" * 200_000 + b"\n\n") * 2)
        await pass_time(100)
        while_paused = inflow.deadline(0)
        await anext(inflow)
        await anext(inflow)

        assert (while_paused, inflow.deadline(0)) == (160, 160)
        assert connection.notified == ["pause", "resume"]


def _endpoint() -> ModelEndpoint:
    records = EndpointResolver(Secrets({}), Egress(allow_private=True))
    return ModelEndpoint("up", records.resolve(HttpEndpoint(url="http://127.0.0.1:1/v1")))


class _Paused:
    def __init__(self) -> None:
        self.notified: list[str] = []

    def pause(self) -> None:
        self.notified.append("pause")

    def resume(self) -> None:
        self.notified.append("resume")
