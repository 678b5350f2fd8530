"""`toolgate audit`: what happened, for people and for programs."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from toolgate.surfaces.rest.resources.audit import COLUMNS

AUDIT = "GET /admin/api/audit"
AT_MS = 1_760_000_000_000


def event(**fields: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | {"event_id": "a-1", "seq": 1, "node": "", "at_ms": AT_MS} | fields


CALL = event(
    type="call",
    outcome="denied",
    principal="key:ada",
    tool="git__push\x1b[31m",
    code="tool_not_found",
    rule="mcp.denied_tools",
    task_id="review",
    duration_us=1_500,
    node="east",
)
ADMIN = event(type="admin", operation="put", principal="local", kind="server", record_id="git")


def sse(*events: tuple[str, Any]) -> bytes:
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events).encode()


def test_xss_3_events_are_a_line_each_and_harmless(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(AUDIT, {"events": [CALL, ADMIN], "next_cursor": None})

    ran = run("audit", "--outcome", "denied", "--since", str(AT_MS), "--limit", "2")

    assert gateway.last.query == {"outcome": "denied", "since": str(AT_MS), "limit": "2"}
    assert ran.lines == [
        "TIME (UTC)           TYPE   OUTCOME  PRINCIPAL  DETAILS",
        "2025-10-09 08:53:20  call   denied   key:ada    git__push\\x1b[31m 1.5 ms",
        "                                                tool_not_found by",
        "                                                mcp.denied_tools task review on",
        "                                                east",
        "2025-10-09 08:53:20  admin  put      local      server git",
    ]


def test_a_caller_with_a_long_name_leaves_room_for_what_it_did(gateway: FakeGateway, run: Run) -> None:
    call = event(type="call", outcome="ok", server_id="git", tool="log", principal="key:" + "x" * 60)
    gateway.respond(AUDIT, {"events": [call], "next_cursor": None})

    lines = run("audit").lines

    assert lines[1].startswith("2025-10-09 08:53:20  call  ok       key:xxxx")
    assert lines[1].endswith("  git.log")
    assert sum(line.count("x") for line in lines) == 60


def test_arguments_shadows_and_processes_are_shown(gateway: FakeGateway, run: Run) -> None:
    call = event(
        type="call",
        outcome="unknown",
        server_id="git",
        tool="log",
        shadow="mcp.tool_denylist",
        arguments={"path": "\x1b" * 60},
    )
    spawn = event(type="spawn", server_id="git", command="uvx git", reason="trial")
    gateway.respond(AUDIT, {"events": [call, spawn], "next_cursor": None})

    shown_lines = run("audit", "--type", "spawn").out

    assert "unknown" in shown_lines
    assert "would be denied by mcp.tool_denylist" in " ".join(shown_lines.split())
    assert "\\u001b" in shown_lines
    assert "…" in shown_lines
    assert "\x1b" not in shown_lines
    assert "spawn  trial               git uvx git" in shown_lines


def test_an_offered_scope_says_how_much_it_holds_and_why_the_rest_is_excluded(
    gateway: FakeGateway, run: Run
) -> None:
    members = {"type": "scope", "mode": "list", "task_id": "ops", "principal": "key:ci"}
    some = event(**members, tools=3, servers=1, excluded=5, reasons={"denied_by_task": 4, "list_failed": 1})
    every = event(**members, tools=1, servers=2, excluded=0)
    gateway.respond(AUDIT, {"events": [some, every], "next_cursor": None})

    shown_lines = " ".join(run("audit", "--type", "scope").out.split())

    assert (
        "list key:ci 3 tools of 1 server, 5 excluded: denied_by_task 4, list_failed 1 task ops" in shown_lines
    )
    assert shown_lines.endswith("list key:ci 1 tool of 2 servers task ops")


def test_the_end_of_a_session_says_what_it_used(gateway: FakeGateway, run: Run) -> None:
    members = {"type": "session", "principal": "key:ci", "tool_calls": 12}
    session = event(**members, door="mcp", session="s1", ended_by="idle", rounds=1, limits={"node_busy": 2})
    chat = event(**members, door="chat", request_id="r1", ended_by="answered", rounds=3)
    gateway.respond(AUDIT, {"events": [session, chat], "next_cursor": None})

    shown_lines = " ".join(run("audit", "--type", "session").out.split())

    assert "session idle key:ci mcp s1: 12 calls, 1 round, limits hit: node_busy 2" in shown_lines
    assert shown_lines.endswith("session answered key:ci chat r1: 12 calls, 3 rounds")


def test_a_decision_says_who_made_it_and_on_what(gateway: FakeGateway, run: Run) -> None:
    decided = event(
        type="approval",
        state="denied",
        principal="key:ci",
        server_id="git",
        tool="push",
        approval_id="0f1e",
        decided_by="key:ada",
        reason="not on a Friday",
    )
    gateway.respond(AUDIT, {"events": [decided], "next_cursor": None})

    shown_lines = " ".join(run("audit", "--type", "approval").out.split())

    assert "approval denied key:ci git.push 0f1e by key:ada not on a Friday" in shown_lines


def test_times_are_written_as_everywhere(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(AUDIT, {"events": [], "next_cursor": None})

    run("audit", "--since", "2025-10-09", "--until", "2025-10-10")

    assert gateway.last.query == {"since": "1759968000000", "until": "1760054400000", "limit": "100"}
    assert run("audit", "--until", "soon").code == 2


def test_an_empty_list_is_a_sentence(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(AUDIT, {"events": [], "next_cursor": None})

    assert run("audit", "--node", "").lines == ["no events match"]
    assert gateway.last.query == {"node": "", "limit": "100"}


def test_a_list_that_is_not_all_says_so(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(AUDIT, {"events": [ADMIN], "next_cursor": "MS4x"})

    assert run("audit", "--limit", "1").lines[2:] == ["", "the newest 1; for older ones raise --limit"]
    assert [json.loads(line) for line in run("audit", "--json").lines] == [ADMIN]


def test_programs_get_the_events_as_they_are(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(AUDIT, {"events": [CALL], "next_cursor": None})

    assert [json.loads(line) for line in run("audit", "--json").lines] == [CALL]


def test_what_happens_is_followed_until_the_stream_ends(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"{AUDIT}/events", sse(("start", {}), ("event", ADMIN), ("event", ADMIN)))

    ran = run("audit", "-f", "--type", "admin")

    assert gateway.last.query == {"type": "admin"}
    assert ran.lines == ["2025-10-09 08:53:20  admin  put  local  server git"] * 2
    assert (ran.code, "the gateway ended the stream" in ran.err) == (1, True)
    assert f"`toolgate audit --since {AT_MS}` lists later events" in ran.err


@pytest.mark.parametrize("given", ["--since", "--until", "--limit", "--export"])
def test_what_has_not_happened_yet_has_neither_times_nor_an_end(
    gateway: FakeGateway, run: Run, given: str
) -> None:
    value = {"--limit": "5", "--export": "csv"}.get(given, "1d")
    ran = run("audit", "--follow", given, value)

    assert (ran.code, gateway.asked) == (2, [])
    assert f"--follow cannot be combined with {given}" in ran.err


def test_an_export_is_of_all(gateway: FakeGateway, run: Run) -> None:
    ran = run("audit", "--export", "csv", "--limit", "5")

    assert (ran.code, gateway.asked) == (2, [])
    assert "--export cannot be combined with --limit" in ran.err


@pytest.mark.parametrize("given", [("--type", "cal"), ("--outcome", "fine")])
def test_wrong_options_are_refused_before_a_request(
    gateway: FakeGateway, run: Run, given: tuple[str, str]
) -> None:
    assert (run("audit", *given).code, gateway.asked) == (2, [])


def test_what_is_followed_is_a_line_each_however_long(gateway: FakeGateway, run: Run) -> None:
    call = event(type="call", outcome="ok", server_id="git", tool="log", arguments={"path": "a b " * 30})
    gateway.respond(f"{AUDIT}/events", sse(("start", {}), ("event", call), ("event", call)))

    lines = run("audit", "-f").lines

    assert (len(lines), lines[0] == lines[1], len(lines[0]) > 120) == (2, True, True)


def test_a_stream_that_cannot_go_on_says_why(gateway: FakeGateway, run: Run) -> None:
    lapsed = {"code": "unauthenticated", "message": "the key was revoked", "hint": ""}
    gateway.respond(f"{AUDIT}/events", sse(("start", {}), ("error", lapsed)))

    ran = run("audit", "--follow")

    assert (ran.code, "the key was revoked" in ran.err) == (3, True)


def test_an_export_goes_out_byte_for_byte(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"{AUDIT}/export", b"event_id,seq\r\na-1,1\r\n")

    ran = run("audit", "--export", "csv", "--server", "git")

    assert ran.out == "event_id,seq\r\na-1,1\r\n"
    assert gateway.last.query == {"server": "git", "format": "csv"}


def test_an_export_that_is_refused_says_why(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse(f"{AUDIT}/export", "invalid_request", "`type` is one of `call`")

    ran = run("audit", "--export", "jsonl", "--server", "x")

    assert (ran.code, "`type` is one of `call`" in ran.err) == (1, True)
