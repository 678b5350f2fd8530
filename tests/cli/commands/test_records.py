"""Single records as people see them, and what a noun does that others do in another way."""

from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import node


def test_one_profile_is_shown_with_its_next_version(gateway: FakeGateway, run: Run) -> None:
    rollout = {"version": 4, "share": 10, "by": "caller", "servers": ["git", "time"]}
    profile = {"profile_id": "review", "version": 3, "servers": ["git"], "deny": ["*delete*"], "revision": 7}
    gateway.respond("GET /admin/api/profiles/review", {**profile, "environments": {"prod": {"allow": []}}})

    plain = run("profiles", "get", "review")
    gateway.respond("GET /admin/api/profiles/review", {**profile, "rollout": rollout})
    rolling = run("profiles", "get", "review")

    assert plain.lines == [
        "profile   review",
        "version   3",
        "servers   git",
        "deny      *delete*",
        'in prod   {"allow": []}',
        "revision  7",
    ]
    assert rolling.lines[-5:] == [
        "",
        "next version",
        "  share    10 % of callers",
        "  version  4",
        "  servers  git, time",
    ]


def test_one_key_is_shown_with_its_quotas_and_deleted_only_as_it_was(gateway: FakeGateway, run: Run) -> None:
    key = {
        "key_id": "ci",
        "role": "agent",
        "ceiling": {"tasks": ["review"]},
        "budgets": {"calls_per_minute": 60, "calls_per_day": None},
        "integrations": "on",
        "revision": 5,
    }
    gateway.respond("GET /admin/api/keys/ci", key)
    gateway.respond("DELETE /admin/api/keys/ci", {"revision": 6, "warnings": []})

    shown = run("keys", "get", "ci")
    deleted = run("keys", "delete", "ci", "--if-revision", "5")

    assert shown.lines == [
        "key           ci",
        "role          agent",
        "expires       never",
        "reaches       tasks review",
        "quotas        60 calls/minute",
        "integrations  on",
        "revision      5",
    ]
    assert (deleted.lines, gateway.last.headers["if-match"]) == (["✓ key ci deleted"], '"5"')


def test_one_pin_is_shown_and_applied_from_a_file(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    pin = {"server_id": "git", "tools": {"git_log": "ab" * 32}, "waiting": ["git_new"], "revision": 4}
    gateway.respond("GET /admin/api/pins/git", pin)
    gateway.respond("PUT /admin/api/pins/git", {"revision": 5, "pin": pin, "warnings": []})
    file = tmp_path / "pin.toml"
    file.write_text(f'server_id = "git"\n[tools]\ngit_log = "{"ab" * 32}"\n', "utf-8")

    shown = run("pins", "get", "git")
    applied = run("pins", "apply", "-f", str(file))

    assert shown.lines == [
        "git  revision 4",
        "",
        "TOOL     STATE        APPROVED DIGEST",
        "git_log  exposed      abababababababab",
        "git_new  quarantined  never approved",
        "",
        "quarantined: see what changed with `toolgate pins review git`",
    ]
    assert (applied.lines, gateway.last.body["tools"]) == (["✓ pin git (revision 5)"], pin["tools"])


def test_a_file_that_is_no_pin_is_named_with_what_it_lacks(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pin.json"
    file.write_text('{"server_id": "git"}', "utf-8")

    ran = run("pins", "apply", "-f", str(file))

    assert (ran.code, "is not a pin: it has no `server_id` with `tools`" in ran.err) == (2, True)


def test_one_node_is_shown_and_another_is_unknown(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/nodes", {"nodes": [node("east", is_current=False)]})

    shown, unknown = run("nodes", "get", "east"), run("nodes", "get", "west")

    assert shown.lines == [
        "node         east",
        "state        follows",
        "revision     17, behind the registry",
        "last report  2 s ago",
        "servers      4",
        "version      0.1.0",
        "url          http://10.0.0.1:8080",
    ]
    assert (unknown.code, unknown.err.splitlines()[0]) == (1, "error: no node `west` has reported")
    assert run("nodes", "--json").json == run("nodes", "list", "--json").json
