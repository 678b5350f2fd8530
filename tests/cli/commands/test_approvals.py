"""`toolgate approvals`: what it asks, what it prints."""

import json
from typing import Any

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.screen import shown
from toolgate.cli.command import ExitCode
from toolgate.cli.commands.approvals import render_approval, render_approvals
from toolgate.cli.render.scope import render_explanation

ALL = "/admin/api/approvals"
ONE = f"{ALL}/0f1e2d3c4b5a6978"


def approval(**changes: Any) -> dict[str, Any]:
    return {
        "approval_id": "0f1e2d3c4b5a6978",
        "state": "pending",
        "principal": "key:ada",
        "task_id": "support",
        "session": None,
        "door": "mcp",
        "server_id": "files",
        "tool": "delete",
        "arguments": {"path": "/tmp/x"},
        "arguments_digest": "a" * 64,
        "definition": "d" * 64,
        "why": "approval_policy default: always",
        "created_ms": 1_700_000_000_000,
        "expires_ms": 1_700_000_900_000,
        "decided_by": None,
        "decided_ms": None,
        "reason": None,
        "used_ms": None,
        **changes,
    }


def test_those_that_wait_are_listed_unless_asked_otherwise(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"GET {ALL}", {"approvals": [approval()], "next_cursor": None})

    assert json.loads(run("approvals", "list", "--json").out) == approval()
    assert gateway.last.query == {"limit": "50", "state": "pending"}
    assert run("approvals", "list", "--state", "all", "--limit", "7").code == 0
    assert gateway.last.query == {"limit": "7"}
    gateway.respond(f"GET {ALL}", {"approvals": [approval()], "next_cursor": "Mg"})
    assert run("approvals", "list").lines[-1] == "the newest 1; for older ones raise --limit"
    assert run("approvals", "list", "--state", "waiting").code == ExitCode.USAGE


def test_a_decision_is_sent_with_its_reason(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"POST {ONE}/approve", approval(state="approved"))
    gateway.respond(f"POST {ONE}/deny", approval(state="denied"))
    gateway.respond(f"GET {ONE}", approval())

    assert run("approvals", "approve", "0f1e2d3c4b5a6978").code == 0
    assert gateway.last.body == {"reason": ""}
    assert run("approvals", "deny", "0f1e2d3c4b5a6978", "--reason", "not now").code == 0
    assert gateway.last.body == {"reason": "not now"}
    assert json.loads(run("approvals", "get", "0f1e2d3c4b5a6978", "--json").out) == approval()


def test_a_missing_approval_is_an_error(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse(f"GET {ALL}/a%2Fb", "not_found", "no approval `a/b`", status=404)

    assert run("approvals", "get", "a/b").code == ExitCode.FAILED


def test_a_list_shows_who_calls_what() -> None:
    used = approval(state="used", arguments={"text": "z" * 500})
    lines = shown(render_approvals([approval(), used], "all"))

    assert lines[:3] == [
        "APPROVAL          STATE    EXPIRES (UTC)  CALL",
        "0f1e2d3c4b5a6978  pending  11-14 22:28    files.delete by key:ada",
        '                                          {"path": "/tmp/x"}',
    ]
    assert sum(line.count("z") for line in lines) == 120 - len('{"text": "')
    nothing = "no call waits: `--state all` also lists those already decided"
    assert shown(render_approvals([], "pending")) == [nothing]
    assert shown(render_approvals([], "all")) == ["no approvals"]


def test_what_has_long_names_can_be_approved_from_a_narrow_terminal() -> None:
    one = approval(
        server_id="github-enterprise", tool="create_pull_request_review", principal="key:ci-nightly"
    )
    lines = shown(render_approvals([one], "pending"))

    assert lines[1].split()[0] == "0f1e2d3c4b5a6978"
    shown_lines = "".join("".join(line[40:].split()) for line in lines[1:])
    assert shown_lines == 'github-enterprise.create_pull_request_reviewbykey:ci-nightly{"path":"/tmp/x"}'


def test_xss_3_arguments_are_shown_to_the_last_character_and_harmless() -> None:
    hostile = {"path": "a  b\x1b[31m\u202e\u200b\n\t</script>"}
    text = "\n".join(shown(render_approval(approval(arguments=hostile))))

    assert '{"path": "a  b\\u001b[31m\\u202e\\u200b\\n\\t</script>"}' in text


def test_one_says_how_to_decide_and_what_was_decided() -> None:
    pending = "\n".join(shown(render_approval(approval(task_id=None))))
    decided = {"decided_by": "key:bob", "decided_ms": 1_700_000_060_000, "reason": "fine"}
    approved = "\n".join(shown(render_approval(approval(state="approved", **decided))))
    used = "\n".join(shown(render_approval(approval(state="used", used_ms=1_700_000_120_000, **decided))))

    assert "  toolgate approvals approve 0f1e2d3c4b5a6978\n" in pending
    assert "task" not in pending
    assert "2023-11-14 22:14:20 UTC by key:bob" in approved
    assert "fine" in approved
    assert "the call passes once, when the caller repeats it" in approved
    assert "2023-11-14 22:15:20 UTC" in used


def test_an_explanation_lists_tools_that_wait_for_approval() -> None:
    decision = {
        "server_id": "files",
        "tool": "delete",
        "allowed": True,
        "layer": "platform",
        "reason": None,
        "rule": "allowed_tools `*`",
        "tokens": 5,
        "approval": "approval_policy default: always",
    }
    response = {"tools": [decision], "servers": [], "refusal": None, "warnings": [], "pending": []}
    lines = shown(render_explanation(response))

    assert "each call of 1 tool waits for approval" in lines
    assert lines[-1].split() == ["files", "delete", "approval_policy", "default:", "always"]
