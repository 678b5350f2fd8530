"""`toolgate tokens`: what tools have cost models, task by task or day by day."""

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway

TOKENS = "GET /admin/api/tokens"


def sums(lists: int, cost: int, full: int, calls: int, results: int) -> dict[str, int]:
    return {
        "lists": lists,
        "definition_tokens": cost,
        "full_tokens": full,
        "saved_tokens": full - cost,
        "calls": calls,
        "result_tokens": results,
    }


def respond(**fields: Any) -> dict[str, Any]:
    known = {"since": "2026-01-01", "until": "2026-01-07", "days": [], "tasks": []}
    return known | {"total": sums(0, 0, 0, 0, 0)} | fields


def test_tasks_are_a_line_each_with_the_cost_of_all_tools(gateway: FakeGateway, run: Run) -> None:
    tasks = [
        {"task_id": "review\x1b[31m", **sums(60, 4_200, 90_000, 12, 1_500)},
        {"task_id": "", **sums(1, 1_500, 1_500, 0, 0)},
    ]
    gateway.respond(TOKENS, respond(tasks=tasks, total=sums(61, 5_700, 91_500, 12, 1_500)))

    ran = run("tokens", "--since", "30d")

    assert gateway.last.query == {"days": "30"}
    assert ran.lines == [
        "TASK            LISTS  DEFINITIONS   SAVED  CALLS  RESULTS",
        "review\\x1b[31m     60        4,200  85,800     12    1,500",
        "(none)              1        1,500       0      0        0",
        "",
        "61 lists cost 5,700 of 91,500 tokens, 94% less; results 1,500",
        "2026-01-01 to 2026-01-07, estimated; the last minute is not included",
    ]


def test_one_task_is_shown_day_by_day(gateway: FakeGateway, run: Run) -> None:
    one = sums(1, 10, 100, 2, 7)
    gateway.respond(TOKENS, respond(days=[{"day": "2026-01-07", **one}], total=one))

    ran = run("tokens", "--task", "")

    assert gateway.last.query == {"days": "7", "task": ""}
    assert ran.lines[0].startswith("DAY (UTC)")
    assert ran.lines[1].split() == ["2026-01-07", "1", "10", "90", "2", "7"]


def test_an_empty_list_is_a_sentence_and_programs_get_the_answer(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(TOKENS, respond())

    assert run("tokens").lines == [
        "nothing was listed or called from 2026-01-01 to 2026-01-07; the last minute is",
        "not included",
    ]
    assert json.loads(run("tokens", "--json").lines[0]) == respond()
