"""Which models there are: all upstreams at once, each model by the name that reaches it."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.upstream.model_stage import asking, at, in_s
from tests.upstream.scripted_model import Reply, hang, hold, scripted_model, status, stream, text, whole
from toolgate.upstream.models.client import find_upstream

pytestmark = pytest.mark.anyio


def _ids(listed: list[Any]) -> list[str]:
    return [msgspec.json.decode(one["id"]) for one in listed]


async def test_a_model_goes_by_the_name_that_reaches_it() -> None:
    async with (
        asking(text("x"), models=["same", "own-a", "hidden", "b/odd"]) as (models, first),
        scripted_model(text("x"), models=["same", "own-b", "odd"]) as second,
    ):
        upstreams = [
            at(second.url, "b"),
            at(first.url, "a", models=("same", "own-*", "b/*")),
            at(first.url, "off", enabled=False),
        ]
        listed = _ids(await models.models(upstreams, deadline_s=in_s(60)))

    table = {one.upstream_id: one for one in upstreams}
    reached = [find_upstream(table, name) for name in listed]
    assert listed == ["same", "own-a", "a/b/odd", "b/same", "b/own-b", "odd"]
    assert [(one[0].upstream_id, one[1]) for one in reached if one] == [
        ("a", "same"),
        ("a", "own-a"),
        ("a", "b/odd"),
        ("b", "same"),
        ("b", "own-b"),
        ("b", "odd"),
    ]


async def test_what_is_not_known_of_a_model_is_kept() -> None:
    content = {"id": "m", "object": "model", "created": 1, "owned_by": "x", "pricing": {"in": 1}}
    async with asking(text("x"), models=[content, {"object": "model"}, {"id": 7}]) as (models, model):
        listed = await models.models([at(model.url)], deadline_s=in_s(60))

    assert [{name: msgspec.json.decode(raw) for name, raw in one.items()} for one in listed] == [content]


@pytest.mark.parametrize(
    "completion",
    [
        pytest.param(status(404), id="404"),
        pytest.param(whole(b"<html>"), id="not JSON"),
        pytest.param(whole({"data": 1}), id="no list"),
        pytest.param(whole({"data": [1]}), id="no objects"),
        pytest.param(whole([]), id="no object"),
        pytest.param(stream(b"data: {}\n\n"), id="a stream"),
        pytest.param(hang(), id="silence"),
    ],
)
async def test_one_that_does_not_answer_costs_no_one_else(completion: Reply) -> None:
    async with (
        asking(text("x"), models=["m"]) as (models, good),
        scripted_model(text("x"), models=completion) as bad,
    ):
        upstreams = [
            at(good.url, "good"),
            at(bad.url, "bad", answer_timeout_ms=1_500),
            at("http://127.0.0.1:9/v1", "dead"),
        ]
        listed = await models.models(upstreams, deadline_s=in_s(60))
        again = await models.models(upstreams, deadline_s=in_s(60))
        with pytest.raises(Exception, match="bad"):
            await models.models_of(upstreams[1], deadline_s=in_s(60))

    # `bad` and `dead` come first by their ids and would be asked for everything.
    assert _ids(listed) == _ids(again) == ["good/m"]
    assert (len(good.lists), len(bad.lists)) == (1, 2)


async def test_many_who_want_the_list_at_once_ask_once() -> None:
    gate = asyncio.Event()
    async with asking(text("x"), models=hold(whole({"data": [{"id": "m"}]}), gate)) as (models, model):
        many = [asyncio.create_task(models.models([at(model.url)], deadline_s=in_s(60))) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        responses = [_ids(await one) for one in many]
        models.apply({})
        await models.models([at(model.url)], deadline_s=in_s(60))

    assert responses == [["m"]] * 5
    assert len(model.lists) == 2  # what is gone is not remembered


async def test_a_changed_record_is_asked_again() -> None:
    async with asking(text("x"), models=["m"]) as (models, model):
        await models.models([at(model.url)], deadline_s=in_s(60))
        await models.models([at(model.url, headers={"X-Org": "other"})], deadline_s=in_s(60))

    assert [request.headers.get("x-org") for request in model.lists] == [None, "other"]


async def test_the_haste_of_one_is_not_the_failure_of_an_upstream() -> None:
    gate = asyncio.Event()
    async with asking(text("x"), models=hold(whole({"data": [{"id": "m"}]}), gate)) as (models, model):
        hasty = await models.models([at(model.url)], deadline_s=in_s(0.05))
        gate.set()
        patient = await models.models([at(model.url)], deadline_s=in_s(60))

    assert (hasty, _ids(patient)) == ([], ["m"])
