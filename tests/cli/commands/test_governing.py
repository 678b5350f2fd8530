"""Commands about what records were, what was approved, who follows, and what changes right now."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import health, node, server

COLLECTIONS = {
    "servers": "/admin/api/mcp/servers",
    "tasks": "/admin/api/tasks",
    "profiles": "/admin/api/profiles",
    "pins": "/admin/api/pins",
}
EVERY = pytest.mark.parametrize("kind", COLLECTIONS)
TOOLS = "GET /admin/api/mcp/servers/git/tools"
WATCH = "GET /admin/api/watch"


def entry(revision: int, operation: str, *fields: str) -> dict[str, Any]:
    shown = [{"field": name, "before": 1, "after": 2} for name in fields]
    return {
        "revision": revision,
        "operation": operation,
        "actor": "ada",
        "at_ms": 1_760_000_000_000 + revision,
        "fields": shown,
    }


@EVERY
def test_history_lists_changes_newest_first(gateway: FakeGateway, run: Run, kind: str) -> None:
    entries = [entry(9, "delete"), entry(7, "put", "tags", "enabled"), entry(3, "put")]
    gateway.respond(f"GET {COLLECTIONS[kind]}/x/history", {"revision": 9, "entries": entries})

    ran = run(kind, "history", "x", "--limit", "3")

    assert gateway.last.query == {"limit": "3"}
    assert ran.lines == [
        "REVISION  WHEN (UTC)           BY   FIELDS",
        "       9  2025-10-09 08:53:20  ada  deleted",
        "       7  2025-10-09 08:53:20  ada  tags, enabled",
        "       3  2025-10-09 08:53:20  ada  none",
    ]


def test_keys_have_a_history_too(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/keys/ci/history", {"revision": 9, "entries": [entry(3, "put", "role")]})

    assert run("keys", "history", "ci").lines[1] == "       3  2025-10-09 08:53:20  ada  role"


def test_a_history_that_was_compacted_away_says_so(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/tasks/x/history", {"revision": 9, "entries": []})

    assert run("tasks", "history", "x").lines == ["the change log has no changes of this record"]


@EVERY
def test_diff_of_a_record_shows_both_sides_of_each_field(gateway: FakeGateway, run: Run, kind: str) -> None:
    fields = [{"field": "tags", "before": "(default)", "after": ["a"]}]
    gateway.respond(f"GET {COLLECTIONS[kind]}/x/diff", {"fields": fields})

    ran = run(kind, "diff", "x", "--since", "3", "--upto", "7")

    assert gateway.last.query == {"since": "3", "upto": "7"}
    assert ran.lines == ["tags", '  +  ["a"]']
    gateway.respond(f"GET {COLLECTIONS[kind]}/x/diff", {"fields": []})
    assert run(kind, "diff", "x", "--since", "3").lines == ["no difference"]


@EVERY
def test_rollback_sends_the_revision_and_its_terms(gateway: FakeGateway, run: Run, kind: str) -> None:
    gateway.respond(f"POST {COLLECTIONS[kind]}/x/rollback", {"revision": 12, "warnings": ["w"]})

    ran = run(kind, "rollback", "x", "--to", "3", "--if-revision", "9", "--require-plan", "abc")

    assert gateway.last.body == {"revision": 3}
    assert gateway.last.headers["if-match"] == '"9"'
    assert gateway.last.headers["toolgate-plan"] == "abc"
    assert ran.lines == [
        f"✓ {kind.removesuffix('s')} x restored as of revision 3 (revision 12)",
        "warning: w",
    ]


def test_a_change_without_terms_sends_none(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("POST /admin/api/tasks/x/rollback", {"revision": 12, "warnings": []})

    run("tasks", "rollback", "x", "--to", "0")

    assert not {"if-match", "toolgate-plan"} & set(gateway.last.headers)


def tool(name: str, reason: str | None = None, **changes: Any) -> dict[str, Any]:
    shown = {
        "tool": name,
        "name": f"git.{name}",
        "tokens": 80,
        "digest": name[-1] * 64,
        "allowed": reason is None,
        "layer": "platform",
        "reason": reason,
        "rule": "`*`",
    }
    return {**shown, **changes}


def test_the_tools_of_a_server_come_with_what_decided_about_each(gateway: FakeGateway, run: Run) -> None:
    hidden = tool("bad", "invalid_definition", tokens=0, digest=None, rule="")
    shown = [tool("git_a"), tool("git_b", "quarantined"), hidden]
    gateway.respond(TOOLS, {"revision": 3, "server_id": "git", "tools": shown})

    ran = run("servers", "tools", "git", "--task", "review")

    assert gateway.last.query == {"task": "review"}
    assert ran.lines == [
        "   TOOL       TOKENS  DIGEST        DECIDED BY",
        "✓  git.git_a      80  aaaaaaaaaaaa  `*`",
        "✗  git.git_b      80  bbbbbbbbbbbb  see below",
        "✗  git.bad                          see below",
        "",
        "1 of 3 tools offered",
        "",
        "   HIDDEN  DECIDED BY",
        "✗  git_b   platform: quarantined",
        "           `*`",
        "✗  bad     platform: invalid_definition",
        "",
        "quarantined: see what changed with `toolgate pins review git`",
    ]


def test_prompts_and_resources_of_a_server_follow_its_tools(gateway: FakeGateway, run: Run) -> None:
    others = [
        tool("prompt:greet"),
        tool("resource:note://1", "not_in_server_allowlist", rule="allowed_tools"),
    ]
    gateway.respond(TOOLS, {"revision": 3, "tools": [tool("git_a")], "others": others})

    assert run("servers", "tools", "git").lines == [
        "   TOOL       TOKENS  DIGEST        DECIDED BY",
        "✓  git.git_a      80  aaaaaaaaaaaa  `*`",
        "",
        "1 of 1 tool offered",
        "",
        "   PROMPT OR RESOURCE  DECIDED BY",
        "✓  prompt:greet        `*`",
        "",
        "   HIDDEN             DECIDED BY",
        "✗  resource:note://1  platform: not_in_server_allowlist",
        "                      allowed_tools",
    ]


def test_a_server_without_tools_says_where_to_look(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(TOOLS, {"revision": 3, "tools": []})

    assert "toolgate servers test" in run("servers", "tools", "git").out


OFFERED = {
    "revision": 3,
    "server_id": "git",
    "tools": [
        tool("git_a"),
        tool("git_b", "quarantined"),
        tool("git_n", "quarantined"),
        tool("git_x", "not_in_server_allowlist"),
        tool("git_y", "invalid_definition", digest=None),
    ],
}
PINNED = {
    "server_id": "git",
    "tools": {"git_a": "a" * 64, "git_b": "0" * 64, "git_old": "d" * 64},
    "changed": {"git_b": "b" * 64, "git_old": "0" * 64},
    "waiting": ["git_b", "git_n", "git_old"],
    "revision": 3,
}


def difference(name: str, state: str = "changed", **changes: Any) -> dict[str, Any]:
    digest = name[-1] * 64
    shown = {
        "tool": name,
        "state": state,
        "approved": "0" * 64,
        "found": digest,
        "listed": digest,
        "was": None,
        "is_whole": False,
        "diff": ["@@ -1,3 +1,3 @@", " {", '-  "description": "Old.",', '+  "description": "New.",'],
    }
    return {**shown, **changes}


def test_pinning_approves_what_is_offered_and_what_only_a_pin_holds_back_and_shows_what_is_new_in_it(
    gateway: FakeGateway, run: Run
) -> None:
    gateway.respond(TOOLS, OFFERED)
    gateway.respond("GET /admin/api/pins", {"revision": 3, "pins": [PINNED]})
    newer = difference("git_n", "new", listed="1" * 64)  # it changed once more since it was listed
    gateway.respond("GET /admin/api/pins/git/diff", {"revision": 3, "tools": [difference("git_b"), newer]})
    gateway.respond("PUT /admin/api/pins/git", {"revision": 4, "warnings": []})

    ran = run("pins", "approve", "git")

    assert gateway.last.body == {
        "server_id": "git",
        "tools": {"git_a": "a" * 64, "git_b": "b" * 64, "git_n": "n" * 64},
        "changed": {"git_b": None},
    }
    assert ran.lines == [
        "~ git_b: changed since approval",
        "  approved 000000000000, found bbbbbbbbbbbb",
        "  @@ -1,3 +1,3 @@",
        "   {",
        '  -  "description": "Old.",',
        '  +  "description": "New.",',
        "",
        "✓ git: 3 tools approved (revision 4)",
        "  + git_n",
        "  ~ git_b",
        "  - git_old",
    ]


def test_one_tool_can_be_approved_alone(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(TOOLS, OFFERED)
    gateway.respond("GET /admin/api/pins", {"revision": 3, "pins": [PINNED]})
    gateway.respond("GET /admin/api/pins/git/diff", {"revision": 3, "tools": []})
    gateway.respond("PUT /admin/api/pins/git", {"revision": 4, "warnings": []})

    ran = run("pins", "approve", "git", "--tool", "git_b")
    put = gateway.last
    refused = run("pins", "approve", "git", "--tool", "git_x")

    assert put.body == {
        "server_id": "git",
        "tools": {**PINNED["tools"], "git_b": "b" * 64},  # type: ignore[dict-item]
        "changed": {"git_b": None},
    }
    assert put.headers["if-match"] == '"3"'
    assert ran.lines[-1] == "  ~ git_b"
    assert (refused.code, "has no tool `git_x` to approve" in refused.err) == (1, True)


def test_what_differs_from_what_was_approved_is_shown_line_by_line_and_harmless(
    gateway: FakeGateway, run: Run
) -> None:
    long = f'+  "description": "{"Read it. " * 12}\x1b[2J\u202e",'
    shown = [
        difference("git_b", diff=['-  "name": "log"', long]),
        difference("git_c", listed="0" * 64, diff=[]),
        difference("git_n", "renamed", was="git_old", diff=[]),
        difference("git_w", is_whole=True, diff=["-{}", "+{"]),
        difference("git_m", "missing", found=None, listed=None, diff=[]),
    ]
    gateway.respond("GET /admin/api/pins/git/diff", {"revision": 3, "tools": shown})

    ran = run("pins", "review", "git")

    assert all(len(line) <= 80 for line in ran.lines)
    assert ("\x1b" in ran.out, "\u202e" in ran.out, "\\x1b[2J\\u202e" in ran.out) == (False, False, True)
    assert [line for line in ran.lines if line[:1] in {"~", "+", "-"}] == [
        "~ git_b: changed since approval",
        "~ git_c: changed since approval; it changed back meanwhile, and this is the",
        "+ git_n: the new name of git_old",
        "~ git_w: changed since approval",
        "- git_m: approved, no longer listed",
    ]
    assert "the approved one is not stored here" in ran.out
    assert ran.lines[-1:] == [
        "approve all with `toolgate pins approve git`, or one with `--tool NAME`",
    ]


def test_pins_differ_in_one_tool_in_nothing_or_as_records(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/pins/git/diff", {"revision": 3, "tools": [], "fields": []})

    assert run("pins", "review", "git", "--tool", "log").lines == [
        "✓ git: all tools match their approved definitions"
    ]
    assert gateway.last.query == {"tool": "log"}
    assert run("pins", "diff", "git", "--since", "2", "--upto", "3").lines == ["no difference"]
    assert gateway.last.query == {"since": "2", "upto": "3"}
    assert run("pins", "diff", "git", "--upto", "3").code == 2


def test_pinning_nothing_is_refused(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/pins", {"revision": 3, "pins": []})
    gateway.respond(TOOLS, {"revision": 3, "tools": [tool("git_x", "deny_all")]})

    ran = run("pins", "approve", "git")

    assert ran.code == 1
    assert "lists no tool to approve" in ran.err


def test_pins_are_listed_and_taken_off(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/pins", {"revision": 3, "pins": []})
    gateway.respond("DELETE /admin/api/pins/git", {"revision": 4, "warnings": []})

    assert "no pins:" in run("pins", "list").out
    gateway.respond(
        "GET /admin/api/pins", {"revision": 3, "pins": [{"server_id": "git", "tools": {"b": "", "a": ""}}]}
    )
    assert run("pins", "list").lines == ["SERVER  EXPOSED TOOLS", "git     a, b"]
    gateway.respond("GET /admin/api/pins", {"revision": 3, "pins": [PINNED]})
    assert run("pins", "list").lines == [
        "SERVER  EXPOSED TOOLS  QUARANTINED",
        "git     git_a          git_b, git_n, git_old",
        "",
        "quarantined: see what changed with `toolgate pins review git`",
    ]
    assert run("pins", "delete", "git").lines == ["✓ pin git deleted"]


def test_records_are_read_page_by_page(gateway: FakeGateway, run: Run) -> None:
    first = {"revision": 3, "pins": [{"server_id": "a", "tools": {}}], "next_cursor": "c1"}
    last = {"revision": 3, "pins": [{"server_id": "b", "tools": {}}], "next_cursor": None}
    gateway.respond("GET /admin/api/pins", first)
    gateway.respond("GET /admin/api/pins?cursor=c1", last)

    ran = run("pins", "list", "--json")

    assert [json.loads(line)["server_id"] for line in ran.out.splitlines()] == ["a", "b"]


def test_nodes_are_listed_with_what_ails_them(gateway: FakeGateway, run: Run) -> None:
    nodes = [
        node("a"),
        node("b", is_degraded=True, is_current=False, revision=16),
        node("c", is_lost=True, age_s=95),
    ]
    gateway.respond("GET /admin/api/nodes", {"revision": 17, "nodes": nodes})

    assert run("nodes").lines == [
        "NODE  STATE     REVISION  REPORTED  SERVERS  VERSION  AT",
        "a     follows         17  2 s ago         4  0.1.0    http://10.0.0.1:8080",
        "b     degraded        16  2 s ago         4  0.1.0    http://10.0.0.1:8080",
        "c     lost            17  95 s ago        4  0.1.0    http://10.0.0.1:8080",
    ]
    gateway.respond("GET /admin/api/nodes", {"revision": 17, "nodes": []})
    assert "toolgate node --control" in run("nodes").out


def on_node(node_id: str, state: str = "connected", **changes: Any) -> dict[str, Any]:
    found = {"node_id": node_id, "state": state, "last_error": "", "hint": "", "tools": 12, "restarts": 0}
    return {**found, "since_ms": 1, "verified_ms": 0, **changes}


def test_servers_show_how_they_fare_on_each_node(gateway: FakeGateway, run: Run) -> None:
    nodes = [on_node("a"), on_node("b", "down", tools=0, restarts=3, last_error="no such command")]
    servers = [server("git", nodes=nodes), server("time", nodes=[on_node("a"), on_node("b")])]
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 3, "servers": servers})
    gateway.respond("GET /admin/api/mcp/servers/git", {**servers[0], "health": health()})

    assert run("servers", "list").lines == [
        "SERVER  STATE      NODES  TOOLS  CALLS  VIA    TAGS",
        "git     connected    1/2     12      7  stdio",
        "time    connected    2/2     12      7  stdio",
        "",
        "git: on b: no such command",
    ]
    assert run("servers", "get", "git").lines[-3:] == [
        "NODE  STATE      TOOLS  RESTARTS  LAST ERROR",
        "a     connected     12         0",
        "b     down           0         3  no such command",
    ]


def events(*found: tuple[str, dict[str, Any]]) -> bytes:
    lines = [
        f"event: {name}\nid: {data.get('revision', '')}\ndata: {json.dumps(data)}\n" for name, data in found
    ]
    return (": heartbeat\n\n" + "\n".join(lines) + "\n").encode()


CHANGE = {
    "revision": 8,
    "upserts": [{"kind": "server", "id": "git"}, {"kind": "task", "id": "t"}],
    "deletes": [{"kind": "profile", "id": "p"}],
}


def test_watch_prints_a_line_a_transaction_and_how_to_go_on(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(WATCH, events(("start", {"epoch": "e", "revision": 5}), ("change", CHANGE)))

    ran = run("watch", "--since", "5", "--kinds", "server,task")

    assert gateway.last.query == {"since": "5", "kinds": "server,task"}
    assert ran.lines == ["8  + server git, + task t, - profile p"]
    assert (ran.code, ran.err) == (
        1,
        "error: the gateway ended the stream\n  try: continue with `toolgate watch --since 8`\n",
    )


def test_watch_as_json_leaves_nothing_out(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(WATCH, events(("bookmark", {"revision": 7}), ("change", CHANGE)))

    ran = run("watch", "--json")

    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"event": "bookmark", "revision": 7},
        {"event": "change", **CHANGE},
    ]


def test_watch_ends_with_the_reason_the_gateway_gives(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(WATCH, events(("error", {"code": "watch_lagged", "message": "too slow", "hint": ""})))
    lagged = run("watch", "--json")
    gateway.refuse(WATCH, "compacted", "compacted at 40", hint="list again", status=410)
    compacted = run("watch", "--since", "3")

    assert (lagged.code, json.loads(lagged.err)["error"]["code"]) == (1, "watch_lagged")
    assert (compacted.code, compacted.err) == (1, "error: compacted at 40\n  try: list again\n")


def test_backup_says_where_the_file_is(gateway: FakeGateway, run: Run) -> None:
    response = {"path": "/data/backups/9.jsonl", "revision": 9, "records": 31}
    gateway.respond("POST /admin/api/backup", response)

    assert run("backup").lines == ["✓ 31 records at revision 9, in", "  /data/backups/9.jsonl"]
    assert run("backup", "--json").json == response


def test_an_explanation_points_to_what_waits_for_approval(gateway: FakeGateway, run: Run) -> None:
    decision = {**tool("log", "quarantined", rule="pin: not approved"), "server_id": "git"}
    response = {
        "revision": 3,
        "refusal": None,
        "tools": [decision],
        "servers": [],
        "pending": [],
        "warnings": [],
    }
    gateway.respond("GET /api/v1/mcp/explain", response)

    assert run("explain").lines[-1] == "quarantined: see what changed with `toolgate pins review git`"
