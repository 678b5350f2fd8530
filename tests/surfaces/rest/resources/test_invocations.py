"""Running tasks over REST: a run is begun, waited for, followed and ended. The node is played by hand."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.surfaces.rest_events import open_events
from tests.surfaces.rest_world import Json, RestWorld, error_of, open_rest, secret_of, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.invocations import (
    MAX_INPUT_BYTES,
    Invocation,
    InvocationCall,
    InvocationResult,
    LogLine,
    RunUsage,
)
from toolgate.registry.invocations import DEFAULT_QUEUE_LIMITS

pytestmark = pytest.mark.anyio

SUM: Final = "/api/v1/tasks/sum/invocations"
AGENT, OTHER, BOUND, WATCHER = secret_of("agent"), "tg_other" * 8, "tg_bound" * 8, "tg_watcher" * 8
WELL: Final = InvocationResult(
    state="succeeded",
    ended_by="exit",
    exit_code=0,
    stdout=b"42\n",
    stderr=b"\xff",
    usage=RunUsage(fuel=7, wall_ms=3, tool_calls=1),
    calls=(InvocationCall(server_id="git", tool="log", code="", ms=2),),
)


@asynccontextmanager
async def open_mcp_world() -> AsyncIterator[RestWorld]:
    """A world with a task that can be run, one that cannot, and two more agents."""
    async with open_rest(trusts_local=False) as world:
        await world.seed(
            task=[{**task("sum"), "workload": {"module": "0" * 64, "retries": 2}}, task("review")],
            key=[
                {"key_id": "other", "role": "agent", "sha256": hash_key(OTHER)},
                {
                    "key_id": "bound",
                    "role": "agent",
                    "sha256": hash_key(BOUND),
                    "ceiling": {"tasks": ["review"]},
                },
                {
                    "key_id": "watcher",
                    "role": "viewer",
                    "sha256": hash_key(WATCHER),
                    "ceiling": {"tasks": ["review"]},
                },
            ],
        )
        yield world


async def claim(world: RestWorld) -> Invocation:
    """Take the one that is queued, as a node would."""
    async with asyncio.timeout(60):
        (claimed,) = await world.store.invocations.claim("node-1", limit=1, wait_s=5)
    return claimed


async def end(world: RestWorld, claimed: Invocation, ending: InvocationResult = WELL) -> None:
    await world.store.invocations.report(claimed.invocation_id, claimed.attempt, ending=ending)


async def begin(world: RestWorld, *, key: str = AGENT, **body: Any) -> str:
    """The id of a new one that no one waits for."""
    return str((await world.post(SUM, {"mode": "async", **body}, key=key))["invocation_id"])


async def test_a_caller_that_waits_is_answered_with_what_came_out_of_the_run() -> None:
    async with open_mcp_world() as world, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(world.request("POST", SUM, {"input": "6*7"}, key=AGENT))
        claimed = await claim(world)
        await end(world, claimed)
        response = await asked

    found = response.json()
    assert (claimed.input, claimed.principal.id, claimed.retries) == (b"6*7", "key:agent", 2)
    assert response.status_code == 200
    assert found["ending"] == {
        "ended_by": "exit",
        "exit_code": 0,
        "message": "",
        "stdout": "42\n",
        "stdout_base64": None,
        "stderr": None,
        "stderr_base64": base64.b64encode(b"\xff").decode(),
        "is_truncated": False,
        "usage": {
            "fuel": 7,
            "wall_ms": 3,
            "memory_bytes": 0,
            "hostcalls": 0,
            "tool_calls": 1,
            "model_asks": 0,
        },
        "calls": [{"server_id": "git", "tool": "log", "code": "", "ms": 2}],
    }


async def test_a_caller_that_does_not_wait_is_shown_where_to_look() -> None:
    async with open_mcp_world() as world:
        response = await world.request("POST", SUM, {"input_base64": "/w==", "mode": "async"}, key=AGENT)
        claimed = await claim(world)
        running = await world.get(response.headers["location"], key=AGENT)
        await end(world, claimed)
        ended = await world.get(response.headers["location"], key=AGENT)

    assert (response.status_code, response.json()["state"], claimed.input) == (202, "queued", b"\xff")
    assert (running["state"], running["ending"]) == ("running", None)
    assert (ended["state"], ended["exit_code"]) == ("succeeded", 0)


async def test_a_run_that_takes_longer_than_someone_waits_goes_on() -> None:
    async with open_mcp_world() as world:
        response = await world.request("POST", SUM, {"wait_s": 0}, key=AGENT)
        found = await world.get(response.headers["location"], key=AGENT)

    assert response.status_code == 202
    assert (found["state"], found["is_cancel_asked"]) == ("queued", False)


@pytest.mark.parametrize(
    ("headers", "is_cancelled"),
    [
        pytest.param({}, True, id="no one would read the result"),
        pytest.param({"idempotency_key": "once"}, False, id="with a key it can be asked for again"),
    ],
)
async def test_who_goes_away_while_it_waits_ends_its_run_unless_it_gave_a_key(
    headers: dict[str, str], is_cancelled: bool
) -> None:
    async with open_mcp_world() as world:
        asked = asyncio.ensure_future(world.request("POST", SUM, {}, key=AGENT, **headers))
        claimed = await claim(world)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        found = await world.store.invocations.get(claimed.invocation_id)

    assert found is not None
    assert found.is_cancel_asked == is_cancelled


async def test_a_key_that_is_given_again_begins_nothing_new() -> None:
    async with open_mcp_world() as world:
        sent = {"input": "a", "mode": "async"}
        first = await world.request("POST", SUM, sent, key=AGENT, idempotency_key="once")
        again = await world.request("POST", SUM, sent, key=AGENT, idempotency_key="once")
        others = await world.request("POST", SUM, sent, key=OTHER, idempotency_key="once")
        changed = await world.request("POST", SUM, {**sent, "input": "b"}, key=AGENT, idempotency_key="once")

    assert first.json() == again.json()
    assert others.json()["invocation_id"] != first.json()["invocation_id"]
    assert error_of(changed) == (409, "conflict")


async def test_what_cannot_be_run_is_refused_and_says_why() -> None:
    async with open_mcp_world() as world:
        refused = {
            "no task": await world.request("POST", SUM.replace("sum", "none"), {}, key=AGENT),
            "no task of this key": await world.request("POST", SUM, {}, key=BOUND),
            "no workload": await world.request("POST", SUM.replace("sum", "review"), {}, key=BOUND),
            "two inputs": await world.request("POST", SUM, {"input": "", "input_base64": ""}, key=AGENT),
            "not base64": await world.request("POST", SUM, {"input_base64": "?"}, key=AGENT),
            "too long a wait": await world.request("POST", SUM, {"wait_s": 301}, key=AGENT),
            "too much": await world.request("POST", SUM, {"input": "x" * (MAX_INPUT_BYTES + 1)}, key=AGENT),
        }

    assert {why: error_of(response) for why, response in refused.items()} == {
        "no task": (404, "not_found"),
        "no task of this key": (404, "not_found"),
        "no workload": (409, "no_workload"),
        "two inputs": (400, "invalid_request"),
        "not base64": (400, "invalid_request"),
        "too long a wait": (400, "invalid_request"),
        "too much": (413, "too_large"),
    }
    assert "toolgate tasks apply" in refused["no workload"].json()["error"]["hint"]


async def test_a_full_queue_takes_no_more() -> None:
    async with open_mcp_world() as world:
        first = await world.store.invocations.get(await begin(world))
        assert first is not None
        for n in range(DEFAULT_QUEUE_LIMITS.max_queued - 1):
            await world.store.invocations.create(replace(first, invocation_id=f"{n}"))
        refused = await world.request("POST", SUM, {"mode": "async"}, key=AGENT)

    assert error_of(refused) == (429, "queue_full")


async def test_agents_see_their_own_runs_viewers_all_and_no_one_else_any() -> None:
    async with open_mcp_world() as world:
        own, others = await begin(world), await begin(world, key=OTHER)
        listed = {
            who: [one["invocation_id"] for one in (await world.get(SUM, key=key))["invocations"]]
            for who, key in {"own": AGENT, "others": OTHER, "viewer": secret_of("viewer")}.items()
        }
        paths = [f"{SUM}/{others}{end}" for end in ("", "/logs", "/events")]
        hidden = [await world.request("GET", path, key=AGENT) for path in paths]
        hidden += [await world.request("POST", f"{SUM}/{others}/cancel", key=AGENT)]
        for key in (BOUND, WATCHER):
            hidden += [await world.request("GET", path, key=key) for path in (f"{SUM}/{own}", SUM)]
        elsewhere = await world.request("GET", f"{SUM}/{own}".replace("sum", "review"), key=AGENT)
        none = await world.request("GET", f"{SUM}/{'0' * 32}", key=AGENT)
        seen = await world.request("GET", f"{SUM}/{others}", key=secret_of("viewer"))

    assert listed == {"own": [own], "others": [others], "viewer": [others, own]}
    assert [error_of(response) for response in [*hidden, elsewhere]] == [(404, "not_found")] * 9
    assert none.json()["error"]["hint"] == hidden[0].json()["error"]["hint"]
    assert seen.status_code == 200


async def test_runs_are_ended_by_who_began_them_and_by_administrators() -> None:
    async with open_mcp_world() as world:
        first, second = await begin(world), await begin(world)
        refused = await world.request("POST", f"{SUM}/{first}/cancel", key=secret_of("viewer"))
        own = await world.post(f"{SUM}/{first}/cancel", key=AGENT)
        again = await world.post(f"{SUM}/{first}/cancel", key=AGENT)
        claimed = await claim(world)
        running = await world.post(f"{SUM}/{second}/cancel", key=secret_of("admin"))
        verdict = await world.store.invocations.report(claimed.invocation_id, claimed.attempt)

    assert error_of(refused) == (403, "forbidden")
    assert (own["state"], own["ended_by"]) == ("cancelled", "cancelled")
    assert again == own
    assert (running["state"], running["is_cancel_asked"], verdict) == ("running", True, "cancel")


async def test_the_list_comes_in_pages_the_newest_first() -> None:
    async with open_mcp_world() as world:
        made = [await begin(world) for _ in range(5)]
        pages, query = [], "?limit=2"
        while True:
            response = await world.get(SUM + query, key=AGENT)
            pages.append([one["invocation_id"] for one in response["invocations"]])
            if response["next_cursor"] is None:
                break
            query = f"?limit=2&cursor={response['next_cursor']}"

    assert pages == [[made[4], made[3]], [made[2], made[1]], [made[0]]]


def lines(*texts: str, after: int = 0) -> list[LogLine]:
    return [LogLine(seq=after + n, at_ms=n, stream="stdout", text=text) for n, text in enumerate(texts, 1)]


async def test_logs_are_read_after_the_last_line_that_was_seen() -> None:
    async with open_mcp_world() as world:
        invocation_id = await begin(world)
        claimed = await claim(world)
        await world.store.invocations.report(claimed.invocation_id, 1, lines=lines("one", "two"))
        every = await world.get(f"{SUM}/{invocation_id}/logs", key=AGENT)
        rest = await world.get(f"{SUM}/{invocation_id}/logs?after=1", key=AGENT)

    assert every == {"state": "running", "lines": [_shown(1, "one"), _shown(2, "two")]}
    assert rest["lines"] == [_shown(2, "two")]


def _shown(seq: int, text: str) -> Json:
    return {"seq": seq, "at_ms": seq, "stream": "stdout", "level": "info", "text": text}


async def test_a_run_is_followed_line_by_line_to_its_end() -> None:
    async with open_mcp_world() as world:
        invocation_id = await begin(world)
        async with open_events(world.api, f"{SUM}/{invocation_id}/events", key=AGENT) as stream:
            events = await stream.read(1)
            claimed = await claim(world)
            events += await stream.read(1)
            await world.store.invocations.report(claimed.invocation_id, 1, lines=lines("one"))
            events += await stream.read(1)
            last = lines("two", after=1)
            await world.store.invocations.report(claimed.invocation_id, 1, lines=last, ending=WELL)
            events += await stream.read(9)
        async with open_events(world.api, f"{SUM}/{invocation_id}/events", key=AGENT, last_id=1) as again:
            resumed = await again.read(9)

    ended = events[-1].data
    assert [(one.name, one.id) for one in events] == [
        ("state", None),
        ("state", None),
        ("line", 1),
        ("line", 2),
        ("end", None),
    ]
    assert [one.data["state"] for one in events[:2]] == ["queued", "running"]
    assert (ended["state"], ended["ending"]["stdout"]) == ("succeeded", "42\n")
    assert [(one.name, one.id) for one in resumed] == [("state", None), ("line", 2), ("end", None)]


async def test_a_stream_ends_with_the_key_it_was_opened_with() -> None:
    async with open_mcp_world() as world:
        invocation_id = await begin(world, key=OTHER)
        async with open_events(world.api, f"{SUM}/{invocation_id}/events", key=OTHER) as stream:
            await stream.read(1)
            await world.request("DELETE", "/admin/api/keys/other", key=secret_of("admin"))
            last = await stream.read(9)

    assert [(one.name, one.data["code"]) for one in last] == [("error", "unauthenticated")]


async def test_the_runs_of_a_task_that_is_gone_can_still_be_seen_and_ended() -> None:
    async with open_mcp_world() as world:
        invocation_id = await begin(world)
        await world.request("DELETE", "/admin/api/tasks/sum", key=secret_of("admin"))
        await world.served()
        listed = await world.get(SUM, key=AGENT)
        ended = await world.post(f"{SUM}/{invocation_id}/cancel", key=AGENT)
        refused = await world.request("POST", SUM, {}, key=AGENT)
        nothing = await world.request("GET", SUM, key=OTHER)

    assert [one["invocation_id"] for one in listed["invocations"]] == [invocation_id]
    assert ended["state"] == "cancelled"
    assert [error_of(refused), error_of(nothing)] == [(404, "not_found")] * 2
