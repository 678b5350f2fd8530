"""Trials of a chat upstream report every error with a hint, and never raise."""

from typing import Any

import pytest

from tests.upstream.scripted_model import scripted_model, status, whole
from toolgate.model.chat import ChatUpstream
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import ModelTrial, try_models

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0123456789abcdef"
HERE = Egress(allow_private=True)


def upstream(url: str, **fields: Any) -> ChatUpstream:
    return ChatUpstream(upstream_id="local", base_url=url, models=("*",), **fields)


async def tried(models: Any, **fields: Any) -> ModelTrial:
    async with scripted_model(models=models) as model:
        return await try_models(Secrets({"KEY": KEY}), HERE, upstream(model.url, **fields))


async def test_the_models_that_are_listed_are_found_with_the_secret_of_the_record() -> None:
    async with scripted_model(models=["a", "b"]) as model:
        trial = await try_models(Secrets({"KEY": KEY}), HERE, upstream(model.url, auth_ref="KEY"))

    assert (trial.models, trial.error, trial.hint) == (("a", "b"), "", "")
    assert model.lists[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("completion", "error", "hint"),
    [
        pytest.param(
            status(401, body={"error": {"message": f"wrong key {KEY}"}}),
            "responded with status 401: wrong key [redacted]",
            "check the secret",
            id="a wrong key",
        ),
        pytest.param(status(404), "responded with status 404", "check `base_url`", id="another path"),
        pytest.param(
            status(500), "responded with status 500", "see the message of its server", id="its own failure"
        ),
        pytest.param(
            whole({"models": []}), "did not send a list of models", "check `base_url`", id="another API"
        ),
        pytest.param(whole(b"<html>"), "did not send a list of models", "check `base_url`", id="a page"),
    ],
)
async def test_an_error_instead_of_models_is_shown_without_the_key(
    completion: Any, error: str, hint: str
) -> None:
    """CHT-12"""
    trial = await tried(completion, auth_ref="KEY")

    assert trial.models == ()
    assert error in trial.error
    assert KEY not in trial.error
    assert hint in trial.hint


async def test_an_unreachable_server_is_reported() -> None:
    trial = await try_models(Secrets({}), HERE, upstream("http://127.0.0.1:9/v1"))

    assert "chat upstream `local` cannot be reached" in trial.error
    assert "the gateway must be able to reach it" in trial.hint


@pytest.mark.parametrize(
    ("fields", "egress", "error"),
    [
        pytest.param({"auth_ref": "NONE"}, HERE, "secret `NONE` is not in the environment", id="a secret"),
        pytest.param(
            {"headers": {"api-key": "${ENV:NONE}"}},
            HERE,
            "environment variable `NONE` is not set",
            id="a variable",
        ),
        pytest.param({}, Egress(allow_private=False), "127.0.0.1", id="leave to connect there"),
    ],
)
async def test_a_trial_names_what_this_process_lacks(
    fields: dict[str, Any], egress: Egress, error: str
) -> None:
    trial = await try_models(Secrets({}), egress, upstream("http://127.0.0.1:9/v1", **fields))

    assert error in trial.error
    assert trial.hint == "correct the record, or the environment of the gateway and of every node"
