"""`apply`, `diff` and `plan`: records in files, sent as one change."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import applied, change, plan, task_plan

APPLY = "POST /admin/api/apply"
PLAN = "POST /admin/api/plan"
GIT: dict[str, Any] = {"server_id": "git", "transport": "stdio", "stdio": {"command": "git-mcp"}}


class Terminal(io.StringIO):
    """A user who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A server in TOML, and further down a list in JSON of a task, a profile and a pin."""
    records = tmp_path / "records"
    (records / "policy" / "deep").mkdir(parents=True)
    (records / ".git").mkdir()
    (records / "git.toml").write_text(
        'server_id = "git"\ntransport = "stdio"\n[stdio]\ncommand = "git-mcp"\n', "utf-8"
    )
    policy = [
        {"task_id": "review", "config": {"mcp.enabled": True}},
        {"profile_id": "code"},
        {"server_id": "git", "tools": {"git_log": "0" * 64}},
    ]
    (records / "policy" / "deep" / "all.json").write_text(json.dumps(policy), "utf-8")
    (records / ".git" / "config.json").write_text("no record", "utf-8")
    (records / ".hidden.toml").write_text("no record", "utf-8")
    (records / "notes.txt").write_text("no record", "utf-8")
    return records


CHANGES: list[dict[str, Any]] = [
    {"kind": "server", "id": "git", "body": GIT},
    {"kind": "task", "id": "review", "body": {"task_id": "review", "config": {"mcp.enabled": "true"}}},
    {"kind": "profile", "id": "code", "body": {"profile_id": "code"}},
    {"kind": "pin", "id": "git", "body": {"server_id": "git", "tools": {"git_log": "0" * 64}}},
]


def test_apply_sends_all_records_of_a_directory_as_one_change(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    changes = [
        change("added", "server", "git"),
        change("changed", "task", "review", **{"config.mcp.enabled": ("false", "true"), "tags": (["a"], [])}),
        change("removed", "profile", "old"),
    ]
    gateway.respond(APPLY, applied(*changes, warnings=["task `review` sees no tool"]))

    ran = run("apply", "-f", str(directory))

    assert [asked.path for asked in gateway.asked] == ["/admin/api/apply"]
    assert gateway.last.body == {"changes": CHANGES, "prune": False, "plan": None}
    assert (ran.code, ran.lines) == (
        0,
        [
            "+ server git",
            "~ task review",
            "    config.mcp.enabled",
            "      -  false",
            "      +  true",
            "    tags",
            '      -  ["a"]',
            "      +  []",
            "- profile old",
            "",
            "warning: task `review` sees no tool",
            "",
            "✓ 1 added, 1 changed, 1 removed (revision 4)",
        ],
    )


def test_applying_what_is_so_already_does_nothing(gateway: FakeGateway, run: Run, directory: Path) -> None:
    gateway.respond(APPLY, applied())

    ran = run("apply", "-f", str(directory))

    assert (ran.code, ran.lines) == (0, ["✓ nothing to do (revision 4)"])


def test_apply_takes_files_directories_and_a_plan(gateway: FakeGateway, run: Run, directory: Path) -> None:
    gateway.respond(APPLY, applied())

    run(
        "apply",
        "-f",
        str(directory / "policy"),
        "-f",
        str(directory / "git.toml"),
        "--prune",
        "--require-plan",
        "abc",
    )

    assert gateway.last.body == {"changes": [*CHANGES[1:], CHANGES[0]], "prune": True, "plan": "abc"}


def test_a_dry_run_plans_and_writes_nothing(gateway: FakeGateway, run: Run, directory: Path) -> None:
    gateway.respond(PLAN, plan(change("added", "server", "git")))

    ran = run("apply", "-f", str(directory), "--dry-run")

    assert [asked.path for asked in gateway.asked] == ["/admin/api/plan"]
    assert ran.lines == ["+ server git", "", "1 added; nothing was written"]


def test_pruning_without_a_terminal_to_confirm_at_is_refused(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    gateway.respond(PLAN, plan(change("removed", "task", "old"), change("removed", "profile", "p")))

    ran = run("apply", "-f", str(directory), "--prune")

    assert ran.code == 2
    assert "would delete task `old`, profile `p`, and there is no terminal to confirm it" in ran.err
    assert "--yes" in ran.err
    assert [asked.path for asked in gateway.asked] == ["/admin/api/plan"]


@pytest.mark.parametrize(("response", "code", "paths"), [("y\n", 0, ["plan", "apply"]), ("n\n", 1, ["plan"])])
def test_pruning_asks_and_then_removes_what_was_agreed_to_and_no_more(
    gateway: FakeGateway,
    run: Run,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    response: str,
    code: int,
    paths: list[str],
) -> None:
    gateway.respond(PLAN, plan(change("removed", "task", "old")))
    gateway.respond(APPLY, applied(change("removed", "task", "old")))
    monkeypatch.setattr(sys, "stdin", Terminal(response))

    ran = run("apply", "-f", str(directory), "--prune")

    assert ran.code == code
    assert "- task old" in ran.err
    assert [asked.path.rpartition("/")[2] for asked in gateway.asked] == paths
    assert paths == ["plan"] or gateway.last.body["plan"] == plan()["id"]


def test_pruning_nothing_does_not_ask_and_holds_to_what_was_seen(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    gateway.respond(PLAN, plan(change("added", "server", "git")))
    gateway.respond(APPLY, applied(change("added", "server", "git")))

    assert run("apply", "-f", str(directory), "--prune").code == 0
    assert gateway.last.body["plan"] == plan()["id"]


def test_pruning_with_yes_does_not_ask(gateway: FakeGateway, run: Run, directory: Path) -> None:
    gateway.respond(APPLY, applied(change("removed", "task", "old")))

    assert run("apply", "-f", str(directory), "--prune", "--yes").code == 0
    assert [asked.path for asked in gateway.asked] == ["/admin/api/apply"]


def test_a_record_in_two_files_is_refused_naming_both(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    (directory / "again.json").write_text(json.dumps(GIT), "utf-8")

    ran = run("apply", "-f", str(directory))

    assert ran.code == 2
    assert (
        f"duplicate server `git`: in `{directory / 'again.json'}` and in `{directory / 'git.toml'}`"
        in ran.err
    )
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("x.toml", "a = 1\nb =\n", "line 2", id="TOML with its line"),
        pytest.param("x.json", '{\n"a":\n', "line 3", id="JSON with its line"),
        pytest.param("x.json", "[1]", "neither an object nor a list of objects", id="a list of others"),
        pytest.param("x.json", '{"name": "demo"}', "is not a record", id="no record"),
    ],
)
def test_one_bad_file_in_a_directory_and_nothing_is_sent(
    gateway: FakeGateway, run: Run, directory: Path, *, name: str, text: str, message: str
) -> None:
    (directory / name).write_text(text, "utf-8")

    ran = run("apply", "-f", str(directory))

    assert ran.code == 2
    assert message in ran.err
    assert str(directory / name) in ran.err
    assert gateway.asked == []


def test_a_record_that_the_gateway_refuses_is_found_in_its_file(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    (directory / "web.toml").write_text(
        'server_id = "web"\ntransport = "streamable_http"\n\n[http]\nurl = "ftp://x"\n', "utf-8"
    )
    problems = [{"field": "http.url", "problem": "invalid URL: start it with `http://`"}]
    gateway.refuse(
        APPLY,
        "invalid_record",
        "server `web`: `http.url`: invalid URL: start it with `http://`",
        hint="correct it",
        data={"kind": "server", "id": "web", "problems": problems},
    )

    assert run("apply", "-f", str(directory)).err == (
        f"error: {directory / 'web.toml'}:5: server `web`: `http.url`: invalid URL: start it with `http://`\n"
        "  try: correct it\n"
    )


def test_a_refusal_that_no_file_explains_is_shown_as_it_came(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    gateway.refuse(APPLY, "invalid_record", "server `git` has that namespace already", hint="choose another")

    assert run("apply", "-f", str(directory)).err == (
        "error: server `git` has that namespace already\n  try: choose another\n"
    )


def test_an_empty_directory_is_refused_so_that_pruning_cannot_remove_everything(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    ran = run("apply", "-f", str(tmp_path), "--prune", "--yes")

    assert ran.code == 2
    assert "no record found in" in ran.err
    assert gateway.asked == []


def test_diff_ends_with_0_when_nothing_differs_and_1_when_something_does(
    gateway: FakeGateway, run: Run, directory: Path
) -> None:
    gateway.respond(PLAN, plan())
    same = run("diff", "-f", str(directory))
    gateway.respond(PLAN, plan(change("removed", "task", "old")))
    other = run("diff", "-f", str(directory), "--prune")

    assert (same.code, same.lines) == (0, ["no difference"])
    assert (other.code, other.lines) == (1, ["- task old", "", "1 removed; nothing was written"])
    assert gateway.last.body == {"changes": CHANGES, "prune": True}
    assert run("diff", "-f", str(directory), "--json").json == change("removed", "task", "old")


@pytest.mark.parametrize(
    ("code", "expected"), [("invalid_record", 2), ("unauthenticated", 3)], ids=["refused", "no key"]
)
def test_diff_never_ends_with_1_when_it_failed(
    gateway: FakeGateway, run: Run, directory: Path, *, code: str, expected: int
) -> None:
    gateway.refuse(PLAN, code, "no", status=400)

    assert run("diff", "-f", str(directory)).code == expected


def test_plan_shows_records_and_tasks_and_how_to_make_exactly_that_change(
    gateway: FakeGateway, run: Run, directory: Path, tmp_path: Path
) -> None:
    response = plan(
        change("changed", "task", "review", x=(1, 2)),
        tasks=[
            task_plan(
                "review",
                added=["git/git_add", "git/git_commit", "shop/get_order"],
                removed=["git/git_log"],
                reach_added=["git/git_add", "git/git_commit", "git/git_reset"],
            ),
            task_plan(None, refusal={"code": "too_many_tools", "message": "too many", "hint": ""}),
            task_plan("odd", problem="its profile is gone"),
        ],
        unchanged=1,
        unlisted=["new", "newer"],
    )
    gateway.respond(PLAN, response)

    ran = run("plan", "-f", str(directory), "--prune", "--out", str(tmp_path / "plan.json"))

    assert gateway.last.body == {"changes": CHANGES, "prune": True}
    assert ran.lines == [
        "~ task review",
        "",
        "task review  +3  -1",
        "  +  git   git_add, git_commit",
        "  +  shop  get_order",
        "  -  git   git_log",
        "  +  git   git_reset (on request)",
        "",
        "without a task  +0  -0",
        "  refused: too many",
        "",
        "task odd  +0  -0",
        "  invalid: its profile is gone",
        "",
        "not included: the tools of new, newer, which were never listed",
        "",
        "1 task unchanged; nothing was written",
        "",
        "To apply exactly this change:",
        f"  toolgate apply -f {directory} --prune --require-plan {'0f' * 16}",
    ]
    assert json.loads((tmp_path / "plan.json").read_text("utf-8")) == response


def test_a_planned_removal_has_an_id_too(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(PLAN, plan(change("removed", "server", "git")))

    ran = run("plan", "--delete", "server/git", "--delete", "task/t")

    assert gateway.last.body == {
        "changes": [{"kind": "server", "id": "git", "body": None}, {"kind": "task", "id": "t", "body": None}],
        "prune": False,
    }
    assert ran.lines == [
        "- server git",
        "",
        "no effect on any task",
        "",
        "2 tasks unchanged; nothing was written",
        "",
        f"plan {'0f' * 16}",
    ]


def test_a_plan_without_a_difference_says_so(gateway: FakeGateway, run: Run, directory: Path) -> None:
    gateway.respond(PLAN, plan())

    assert run("plan", "-f", str(directory)).lines == ["no difference"]


@pytest.mark.parametrize(
    "words",
    [(), ("--delete", "git"), ("--delete", "key/ada"), ("--prune",), ("--delete", "task/t", "--prune")],
)
def test_a_plan_of_nothing_is_a_usage_error(gateway: FakeGateway, run: Run, words: tuple[str, ...]) -> None:
    assert run("plan", *words).code == 2
    assert gateway.asked == []
