"""`toolgate quotas`, and budgets in what is said of keys and scopes."""

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.screen import shown
from toolgate.cli.render.records import render_budgets
from toolgate.cli.render.scope import render_explanation

BUDGETS = "GET /admin/api/budgets"
NOW_S = 1_000_000.0


def budget(holder: str, name: str, *, used: int, limit: int, resets_in_s: float = 7_300.0) -> dict[str, Any]:
    kind, _, holder_id = holder.partition(" ")
    return {
        "holder_kind": kind,
        "holder_id": holder_id,
        "budget": name,
        "limit": limit,
        "used": used,
        "resets_at_ms": int((NOW_S + resets_in_s) * 1e3),
    }


def test_budgets_are_a_line_each_with_what_is_used_and_when_they_reset() -> None:
    budgets = [
        budget("key ci", "calls_per_minute", used=60, limit=60, resets_in_s=12.0),
        budget("key ci", "tokens_per_day", used=850_000, limit=1_000_000),
        budget("task ni\x1bght", "calls_per_day", used=0, limit=5_000, resets_in_s=200.0),
    ]

    assert shown(render_budgets(budgets, NOW_S)) == [
        "HOLDER          QUOTA            USED      LIMIT  RESETS IN",
        "key ci          calls/minute       60         60  12 s",
        "key ci          tokens/day    850,000  1,000,000  2 h 1 min",
        "task ni\\x1bght  calls/day           0      5,000  3 min",
        "",
        "Calls leased to a node count as used.",
    ]


def test_programs_get_all_pages_and_people_see_how_to_set_the_first(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(BUDGETS, {"budgets": [], "next_cursor": None})

    assert run("quotas").lines == ["no quotas: set one with `toolgate keys create NAME --calls-per-minute N`"]
    one = budget("key ci", "calls_per_day", used=1, limit=2)
    gateway.respond(BUDGETS, {"budgets": [one], "next_cursor": None})
    assert run("quotas", "--json").json == one


def test_keys_are_made_with_budgets(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("POST /admin/api/keys", {"key_id": "ci", "role": "agent", "secret": "tg_x"}, status=201)
    run("keys", "create", "ci", "--calls-per-minute", "60", "--tokens-per-day", "1000000")

    assert gateway.last.body["budgets"] == {"calls_per_minute": 60, "tokens_per_day": 1_000_000}
    run("keys", "create", "ci")
    assert "budgets" not in gateway.last.body


def test_bud_7_a_budget_of_nothing_is_refused_before_anything_is_sent(gateway: FakeGateway, run: Run) -> None:
    assert run("keys", "create", "ci", "--calls-per-day", "0").code == 2
    assert gateway.asked == []


def test_an_explanation_says_what_calls_take_from() -> None:
    response = {
        "tools": [],
        "servers": [],
        "refusal": None,
        "warnings": [],
        "pending": [],
        "budgets": [{"layer": "key", "holder_id": "ci", "budget": "calls_per_minute", "limit": 1_200}],
    }

    assert shown(render_explanation(response))[-3:] == [
        "calls count against these quotas: see `toolgate quotas`",
        "HOLDER  LIMIT",
        "key ci  1,200 calls/minute",
    ]


def test_a_key_gets_other_budgets(gateway: FakeGateway, run: Run) -> None:
    route = "PUT /admin/api/keys/ci/budgets"
    gateway.respond(route, {"key_id": "ci", "budgets": {"calls_per_minute": 1_200, "calls_per_day": 5_000}})
    ran = run("keys", "set-quota", "ci", "--calls-per-minute", "1200", "--calls-per-day", "5000")

    assert gateway.last.body == {"calls_per_minute": 1_200, "calls_per_day": 5_000}
    assert ran.lines == ["✓ key ci has quotas: 1,200 calls/minute, 5,000 calls/day"]
    gateway.respond(route, {"key_id": "ci"})
    assert run("keys", "set-quota", "ci", "--none").lines == ["✓ key ci has no quotas"]
    assert gateway.last.body == {}


@pytest.mark.parametrize("given", [(), ("--none", "--calls-per-day", "5")])
def test_a_slip_lifts_no_budget(gateway: FakeGateway, run: Run, given: tuple[str, ...]) -> None:
    ran = run("keys", "set-quota", "ci", *given)

    assert (ran.code, gateway.asked) == (2, [])
    assert "`toolgate quotas` shows the current ones" in ran.err
