"""CHT-12: what a model's server is shown, no one else is."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.upstream.model_stage import ANY, BODY, KEY, PATH, asking, at, in_s, read
from tests.upstream.scripted_model import Reply, cut, hang, status, stream, text, whole
from toolgate.errors import ModelUnavailable, ToolgateError
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.models.client import ModelRequest, Models

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "completion",
    [
        pytest.param(status(401, {"error": {"message": f"bad key {KEY}"}}), id="in an error"),
        pytest.param(status(500, f"<p>Authorization: Bearer {KEY}".encode()), id="in a page"),
        pytest.param(status(400, {"error": KEY}, {"X-Echo": KEY}), id="in a header"),
        pytest.param(cut(whole(KEY), 10), id="cut"),
        pytest.param(hang(), id="silence"),
        pytest.param(status(302, b"", {"Location": f"http://x/?key={KEY}"}), id="in a redirect"),
    ],
)
async def test_the_key_is_in_no_error_and_in_no_log(
    completion: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asking(completion) as (models, model):
        upstream = at(f"{model.url}?sig={KEY}", auth_ref="model_key", answer_timeout_ms=1_000)
        with pytest.raises(ToolgateError) as failed:
            await models.request(ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=True))

    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{failed.value} {failed.value.detail} {failed.value!r} {caplog.text}"


async def test_the_key_is_in_no_response() -> None:
    async with asking(text(f"it is {KEY}"), text(f"it is {KEY}", step=99)) as (models, model):
        upstream = at(model.url, auth_ref="model_key")
        response = await models.request(
            ModelRequest(upstream, PATH, BODY, deadline_s=in_s(60), may_retry=False)
        )
        events = await read(models, model, auth_ref="model_key")

    assert json.loads(response.body)["choices"][0]["message"]["content"] == "it is [redacted]"
    assert b'"it is [redacted]"' in b"".join(event.raw for event in events)
    assert KEY.encode() not in b"".join(event.raw + (event.data or b"") for event in events)


async def test_a_word_that_is_also_a_placeholder_for_a_key_stays_a_word() -> None:
    content = b'data: "I like lm-studio"\n\n'
    async with asking(stream(content)) as (models, model):
        events = await read(models, model, headers={"Authorization": "Bearer lm-studio"})

    assert [event.raw for event in events] == [content]


async def test_a_missing_secret_is_logged_once_and_hidden_from_callers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(60), Models(Secrets({}, tmp_path), ANY) as models:
        for _ in range(3):
            with pytest.raises(ModelUnavailable, match="chat upstream `local` cannot be used") as failed:
                await models.request(
                    ModelRequest(
                        at("http://127.0.0.1:9/v1", auth_ref="not_there"),
                        PATH,
                        BODY,
                        deadline_s=in_s(60),
                        may_retry=True,
                    )
                )

    assert "not_there" not in f"{failed.value.detail}"
    assert "not_there" in str(failed.value.__cause__)
    assert [record.getMessage().count("not_there") for record in caplog.records] == [1]


async def test_a_secret_that_would_end_a_header_is_rejected_and_not_shown() -> None:
    async with Models(Secrets({"bad": f"{KEY}\r\nX-Evil: 1"}), ANY) as models:
        with pytest.raises(ModelUnavailable) as failed:
            await models.request(
                ModelRequest(
                    at("http://127.0.0.1:9/v1", auth_ref="bad"),
                    PATH,
                    BODY,
                    deadline_s=in_s(60),
                    may_retry=True,
                )
            )

    assert KEY not in f"{failed.value.detail} {failed.value.__cause__}"
