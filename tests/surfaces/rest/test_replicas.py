"""TRY-4: two control planes on one PostgreSQL. Each response describes the write that it responds to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.contract.stores import schema_url
from tests.scenarios.soak import rounds
from tests.surfaces.rest_world import KEYS, NOW_MS, TASKS, RestWorld, open_rest, task
from toolgate.registry.store.postgresql import open_postgres_store

pytestmark = pytest.mark.anyio

WRITERS: Final = 3
"""Of each control plane."""
WRITES: Final = rounds(suite=8, soak=75)
STEPS: Final = rounds(suite=5, soak=340)

Worlds = tuple[RestWorld, RestWorld]


@pytest.fixture
async def worlds(tmp_path: Path) -> AsyncIterator[Worlds]:
    async with AsyncExitStack() as stack:
        url = schema_url(tmp_path)
        stores = [await stack.enter_async_context(open_postgres_store(url, lambda: NOW_MS)) for _ in range(2)]
        one, other = [await stack.enter_async_context(open_rest(store=store)) for store in stores]
        yield one, other


def denied(response: httpx2.Response) -> str:
    text: str = response.json()["task"]["config"]["mcp.tool_denylist"]
    return text


async def spread(worlds: Worlds, work: Any) -> list[Any]:
    """The results of `work(world, writer)`, for all writers at once."""
    writers = [work(worlds[n % 2], f"w{n}") for n in range(2 * WRITERS)]
    return [one for each in await asyncio.gather(*writers) for one in each]


async def test_try_4_each_of_many_puts_of_one_record_returns_what_it_wrote(worlds: Worlds) -> None:
    async def write(world: RestWorld, writer: str) -> list[tuple[str, httpx2.Response]]:
        return [
            (name, await world.request("PUT", f"{TASKS}/t", task("t", tool_denylist=[name])))
            for name in (f"{writer}-{n}" for n in range(WRITES))
        ]

    responses = await spread(worlds, write)
    history = await worlds[0].get(f"{TASKS}/t/history?limit=500")
    wrote = {entry["revision"]: entry for entry in history["entries"]}

    assert [name for name, response in responses if denied(response) != f'["{name}"]'] == []
    assert [
        name for name, response in responses if response.headers["etag"] != f'"{response.json()["revision"]}"'
    ] == []
    assert sorted(response.json()["revision"] for _, response in responses) == sorted(wrote)


async def test_try_4_a_put_between_deletes_is_acknowledged_as_what_it_was(worlds: Worlds) -> None:
    async def write(world: RestWorld, writer: str) -> list[tuple[str, str, httpx2.Response]]:
        seen = []
        for n in range(WRITES):
            name = f"{writer}-{n}"
            put = await world.request("PUT", f"{TASKS}/t", task("t", tool_denylist=[name]))
            seen.append(("PUT", name, put))
            seen.append(("DELETE", name, await world.request("DELETE", f"{TASKS}/t")))
        return seen

    responses = await spread(worlds, write)

    puts = [(name, response) for method, name, response in responses if method == "PUT"]
    assert [response.text for _, response in puts if not response.is_success] == []
    assert [name for name, response in puts if denied(response) != f'["{name}"]'] == []
    assert {response.status_code for method, _, response in responses if method == "DELETE"} <= {200, 404}


async def test_try_4_a_key_revoked_at_once_still_returned_its_secret(worlds: Worlds) -> None:
    one, other = worlds
    revoking = True

    async def revoke() -> None:
        while revoking:
            await asyncio.gather(*(other.request("DELETE", f"{KEYS}/k{n}") for n in range(4)))

    revoker = asyncio.ensure_future(revoke())
    try:
        for _ in range(WRITES):
            responses = await asyncio.gather(
                *(one.request("POST", KEYS, {"key_id": f"k{n}", "role": "viewer"}) for n in range(4))
            )
            # Only a key that exists already is refused.
            assert {response.status_code for response in responses} <= {201, 409}
            made = [response.json() for response in responses if response.status_code == 201]
            assert all(key["secret"].startswith("tg_") and key["role"] == "viewer" for key in made)
    finally:
        revoking = False
        await revoker


async def test_try_4_if_match_chained_on_responses_loses_no_update(worlds: Worlds) -> None:
    first = await worlds[0].request("PUT", f"{TASKS}/t", task("t", tool_denylist=["0"]))

    async def count_up(world: RestWorld, _writer: str) -> list[int]:
        """Raise the number `STEPS` times: from what was last written or read, if that is still stored."""
        reached: list[int] = []
        number, etag = 0, first.headers["etag"]
        while len(reached) < STEPS:
            raised = task("t", tool_denylist=[str(number + 1)])
            response = await world.request("PUT", f"{TASKS}/t", raised, if_match=etag)
            if response.status_code == 200:
                number += 1
                reached.append(number)
            else:
                assert response.status_code == 409, response.text
                response = await world.request("GET", f"{TASKS}/t")
                number = int(json.loads(response.json()["config"]["mcp.tool_denylist"])[0])
            etag = response.headers["etag"]
        return reached

    reached = await spread(worlds, count_up)

    assert sorted(reached) == list(range(1, 2 * WRITERS * STEPS + 1))
