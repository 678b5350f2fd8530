"""`toolgate learn` and `toolgate unused`: what is asked of the gateway, and what people see of it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import decision, explanation
from tests.cli.screen import shown
from toolgate.cli.command import CommandError, ExitCode
from toolgate.cli.options import parse_time
from toolgate.cli.render.scope import render_explanation

DAY_MS: Final = 24 * 3_600_000
NOON_MS: Final = 1_794_312_000_000  # 2026-11-10T12:00Z
LEARN: Final = "GET /admin/api/tasks/review/learn"
APPLY: Final = "POST /admin/api/apply"
UNUSED: Final = "GET /admin/api/unused"
RECORD: Final = {"task_id": "review", "config": {"mcp.tool_allowlist": '["git/log"]'}}
APPLIED: Final = {
    "revision": 9,
    "changes": [{"operation": "changed", "kind": "task", "id": "review", "fields": []}],
    "warnings": [],
}


def tool(name: str, last_used_ms: int | None, tokens: int = 40) -> dict[str, Any]:
    return {"server_id": "git", "tool": name, "last_used_ms": last_used_ms, "tokens": tokens}


def lesson(*, removed: int = 2) -> dict[str, Any]:
    lost = [tool("commit", None, 120), tool("push\x1b", NOON_MS - 9 * DAY_MS)][:removed]
    effect = {"task_id": "review", "added": [], "removed": [f"git/{one['tool']}" for one in lost]}
    plan = {
        "id": "p1",
        "revision": 8,
        "changes": APPLIED["changes"] if removed else [],
        "tasks": [effect | {"reach_added": [], "reach_removed": [], "refusal": None, "problem": None}],
        "unchanged": 3,
        "unlisted": [],
        "warnings": [],
    }
    kept = {"server_id": "git", "calls": 1_234, "last_used_ms": NOON_MS}
    return {
        "task_id": "review",
        "since_ms": NOON_MS - 7 * DAY_MS,
        "audit_begins_ms": NOON_MS - 5 * DAY_MS,
        "calls": 1_237,
        "kept": [kept | {"tool": "log", "is_anew": False}, kept | {"tool": "tag", "is_anew": True}],
        "removed": lost,
        "tokens_saved": 160 if removed else 0,
        "record": RECORD,
        "plan": plan,
        "warnings": ["the audit begins on 2026-11-05"],
    }


def test_a_lesson_shows_what_stays_what_goes_and_how_to_make_it_so(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(LEARN, lesson())

    ran = run("learn", "review", "--since", "2025-01-01")

    assert gateway.last.query == {"since": "1735689600000", "deny_all": "false"}
    assert ran.lines == [
        "task review: 1,237 calls since 2026-11-03",
        "",
        "2 used, kept",
        "NAME     CALLS  LAST USED",
        "git/log  1,234  2026-11-10",
        "git/tag  1,234  2026-11-10  would be denied",
        "",
        "2 unused, removed",
        "NAME          TOKENS  LAST USED",
        "git/commit       120  never",
        "git/push\\x1b      40  2026-11-01",
        "never: not since 2026-11-05, when the audit log begins",
        "",
        "160 tokens saved in each list",
        "",
        "warning: the audit begins on 2026-11-05",
        "",
        "Calls of other tasks, and of callers without one, are not counted.",
        "",
        "~ task review",
        "",
        "task review  +0  -2",
        "  -  git  commit, push\\x1b",
        "",
        "3 tasks unchanged; nothing was written",
        "",
        "To apply exactly this change:",
        "  toolgate learn review --since 2025-01-01 --apply --require-plan p1",
    ]


def test_a_lesson_is_applied_as_its_plan_shows(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(LEARN, lesson())
    gateway.respond(APPLY, APPLIED)

    ran = run("learn", "review", "--apply", "--require-plan", "p1")

    change = {"kind": "task", "id": "review", "body": RECORD}
    assert gateway.last.body == {"changes": [change], "plan": "p1"}
    assert ran.lines[-1] == "✓ 1 changed (revision 9)"
    assert "nothing was written" not in ran.out
    assert run("learn", "review", "--apply", "--json").json == APPLIED


def test_a_lesson_that_is_not_the_one_that_was_agreed_to_is_not_applied(
    gateway: FakeGateway, run: Run
) -> None:
    gateway.respond(LEARN, lesson())

    ran = run("learn", "review", "--apply", "--require-plan", "p0")

    assert ran.code == ExitCode.FAILED
    assert "is outdated: the task would change" in ran.err


def test_a_task_that_is_the_least_already_is_left_alone(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(LEARN, lesson(removed=0))

    ran = run("learn", "review", "--apply", "--deny-all")

    assert gateway.last.query["deny_all"] == "true"
    assert ran.lines[-1] == "the task already has the least policy"


def test_the_task_as_it_should_be_goes_into_a_file(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    gateway.respond(LEARN, lesson())
    out = tmp_path / "review.json"

    assert run("learn", "review", "--out", str(out), "--json").json == lesson()
    assert json.loads(out.read_text("utf-8")) == RECORD
    assert run("learn", "review", "--out", str(tmp_path / "none" / "x")).code == ExitCode.USAGE


def holder(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    known = {"calls": 0, "last_used_ms": None, "granted": 2, "unused": 2, "unused_tokens": 80}
    return {"kind": kind, "id": name, "tools": [tool("push", None), tool("tag", NOON_MS)]} | known | fields


def unused(*holders: dict[str, Any], cursor: str | None = None) -> dict[str, Any]:
    return {
        "revision": 3,
        "since_ms": NOON_MS - 30 * DAY_MS,
        "audit_begins_ms": None,
        "holders": list(holders),
        "servers": [{"server_id": "attic", "last_used_ms": None}],
        "warnings": ["the audit is empty: no usage is known"],
        "next_cursor": cursor,
    }


def test_unused_grants_are_a_line_for_each_task_and_key_of_all_pages(gateway: FakeGateway, run: Run) -> None:
    first = holder("key", "ci")
    second = holder("task", "review", calls=1_200, last_used_ms=NOON_MS, granted=30, unused=0)
    gateway.respond(UNUSED, unused(first, cursor="c"))
    gateway.respond(f"{UNUSED}?cursor=c", unused(second))

    ran = run("unused", "--since", "30d")

    assert gateway.last.query["cursor"] == "c"
    assert ran.lines == [
        "TASK OR KEY  CALLS  GRANTED  UNUSED  TOKENS  LAST USED",
        "key ci           0        2       2      80  never",
        "task review  1,200       30       0      80  2026-11-10",
        "",
        "UNUSED SERVER  LAST USED",
        "attic          never",
        "",
        "warning: the audit is empty: no usage is known",
        "",
        "unused since 2026-10-11",
    ]


def test_the_unused_tools_of_one_task_are_a_line_each(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(UNUSED, unused(holder("task", "review")) | {"servers": [], "warnings": []})

    ran = run("unused", "--task", "review")

    assert gateway.last.query["task"] == "review"
    assert ran.lines == [
        "task review: 2 of 2 tools unused, 80 tokens in each list",
        "",
        "NAME      TOKENS  LAST USED",
        "git/push      40  never",
        "git/tag       40  2026-11-10",
        "",
        "unused since 2026-10-11",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", NOON_MS - 7 * DAY_MS),
        ("12h", NOON_MS - DAY_MS // 2),
        ("90m", NOON_MS - 90 * 60_000),
        ("2026-11-10", NOON_MS - DAY_MS // 2),
        ("999999m", NOON_MS - 999_999 * 60_000),
        ("1760000000000", 1_760_000_000_000),
    ],
)
def test_times_in_the_past_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert parse_time(text, now_ms=NOON_MS) == expected


@pytest.mark.parametrize("text", ["", "7", "0d", "-1d", "7w", "2026-11-11", "1969-12-31", "999999d", "10.5d"])
def test_what_is_no_time_in_the_past_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="not a time in the past"):
        parse_time(text, now_ms=NOON_MS)


def test_an_explanation_says_what_is_visible_only_because_the_task_is_not_enforced() -> None:
    shadow = {"layer": "task", "reason": "denied_by_task", "rule": "mcp.tool_denylist `push`"}
    response = explanation(decision("git", "log"), decision("git", "push", shadow=shadow))

    assert shown(render_explanation(response))[-4:] == [
        "1 tool of these is visible only because the task is not enforced",
        "SERVER  TOOLS  WOULD BE HIDDEN BY",
        "git     push   task: denied_by_task",
        "               mcp.tool_denylist `push`",
    ]
