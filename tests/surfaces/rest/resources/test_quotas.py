"""Budgets over time over REST: who has which, what is used, and what applies to a scope."""

from typing import Any, Final

import pytest

from tests.surfaces.rest_world import KEYS, RestWorld, error_of, open_rest, secret_of, stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.principals import LeaseRequest, QuotaHolder

pytestmark = pytest.mark.anyio

BUDGETS: Final = "/admin/api/budgets"
ADA: Final = "tg_ada" * 8


async def furnish(world: RestWorld) -> None:
    await world.seed(
        server=[stdio("git")],
        task=[
            task("night", default_server_ids=["git"], budgets={"calls_per_day": 100}),
            task("free", default_server_ids=["git"], budgets={}),
        ],
        key=[
            {
                "key_id": "ada",
                "role": "agent",
                "sha256": hash_key(ADA),
                "budgets": {"calls_per_minute": 60, "tokens_per_day": 1_000},
            }
        ],
    )


def short(budget: dict[str, Any]) -> str:
    return (
        f"{budget['holder_kind']} {budget['holder_id']} {budget['budget']} {budget['used']}/{budget['limit']}"
    )


async def test_every_budget_is_shown_with_what_is_used_of_it() -> None:
    async with open_rest() as world:
        await furnish(world)
        drawn = await world.store.spending.draw(
            [
                LeaseRequest(QuotaHolder("key", "ada"), "tokens_per_day", 1_000, spent=1_200),
                LeaseRequest(QuotaHolder("key", "gone"), "calls_per_day", 9),
            ]
        )
        found = (await world.get(BUDGETS, key=secret_of("viewer")))["budgets"]

        assert [short(one) for one in found] == [
            "key ada calls_per_minute 0/60",
            "key ada tokens_per_day 1200/1000",
            "task night calls_per_day 0/100",
        ]
        assert {one["resets_at_ms"] % 60_000 for one in found} == {0}
        assert found[1]["resets_at_ms"] == drawn[0].window_ms + 86_400_000


async def test_budgets_come_in_pages() -> None:
    async with open_rest() as world:
        await furnish(world)
        first = await world.get(f"{BUDGETS}?limit=2")
        second = await world.get(f"{BUDGETS}?limit=2&cursor={first['next_cursor']}")

        assert [short(one) for one in first["budgets"] + second["budgets"]] == [
            "key ada calls_per_minute 0/60",
            "key ada tokens_per_day 0/1000",
            "task night calls_per_day 0/100",
        ]
        assert second.get("next_cursor") is None


async def test_an_agent_is_shown_which_budgets_its_calls_take_from() -> None:
    async with open_rest() as world:
        await furnish(world)
        found = await world.request("GET", "/api/v1/mcp/explain?task=night", key=ADA)

        assert [list(one.values()) for one in found.json()["budgets"]] == [
            ["key", "ada", "calls_per_minute", 60],
            ["key", "ada", "tokens_per_day", 1_000],
            ["task", "night", "calls_per_day", 100],
        ]


async def test_a_key_is_made_and_shown_with_its_budgets() -> None:
    async with open_rest() as world:
        made = await world.request(
            "POST", KEYS, {"key_id": "ci", "role": "agent", "budgets": {"calls_per_day": 5}}
        )

        assert made.status_code == 201
        assert (await world.get(f"{KEYS}/ci"))["budgets"] == {"calls_per_day": 5}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "60", True, 10**18, [60]])
async def test_bud_7_what_is_no_budget_is_refused(wrong: Any) -> None:
    async with open_rest() as world:
        body = {"key_id": "ci", "role": "agent", "budgets": {"calls_per_minute": wrong}}
        response = await world.request("POST", KEYS, body)

        assert error_of(response) == (400, "invalid_request")


async def test_a_key_gets_other_budgets_and_keeps_all_else() -> None:
    async with open_rest() as world:
        await furnish(world)
        before = await world.get(f"{KEYS}/ada")
        changed = await world.request("PUT", f"{KEYS}/ada/budgets", {"calls_per_day": 7})
        still = await world.request("GET", "/api/v1/mcp/scope", key=ADA)
        freed = await world.request("PUT", f"{KEYS}/ada/budgets", {})
        missing = await world.request("PUT", f"{KEYS}/bob/budgets", {})

        revision = changed.json()["revision"]
        assert changed.json() == before | {"budgets": {"calls_per_day": 7}, "revision": revision}
        assert still.status_code == 200
        assert not freed.json().get("budgets")
        assert error_of(missing) == (404, "not_found")
        assert [short(one) for one in (await world.get(BUDGETS))["budgets"]] == [
            "task night calls_per_day 0/100"
        ]
