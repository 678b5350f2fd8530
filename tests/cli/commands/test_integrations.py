"""`toolgate integrations`: what it sends with the caller's key, and what it prints."""

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway

MINE = "/api/v1/me/integrations"


def integration(server_id: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "server_id": server_id,
        "display_name": "",
        "state": state,
        "chosen": True,
        "tools": 5,
        "read_only_tools": 2,
        "writing_tools": 3,
        **more,
    }


@pytest.mark.requirement("002-020")
def test_integrations_are_a_line_each_with_how_much_of_them_is_on_and_by_whom(
    gateway: FakeGateway, run: Run
) -> None:
    found = [
        integration("files", "read_only", display_name="Fi\x1bles"),
        integration("git", "off", chosen=False),
    ]
    gateway.respond(f"GET {MINE}", {"integrations": found, "next_cursor": None})

    assert run("integrations").lines == [
        "SERVER  STATE      BY       READ-ONLY  WRITING  NAME",
        "files   read-only  you              2        3  Fi\\x1bles",
        "git     off        default          2        3",
        "",
        "The counts include tools of servers that are switched off.",
    ]
    assert run("integrations", "list").lines == run("integrations").lines
    gateway.respond(f"GET {MINE}", {"integrations": [], "next_cursor": None})
    assert run("integrations").lines == ["your key reaches no server: ask an admin"]


@pytest.mark.requirement("002-020")
def test_read_only_tools_come_first_and_all_of_them_only_when_asked_for(
    gateway: FakeGateway, run: Run
) -> None:
    output = {}
    for words, state in {"on files": "read_only", "on files --all": "on", "off files": "off"}.items():
        gateway.respond(f"PUT {MINE}/files", integration("files", state, revision=7))
        output[words] = run("integrations", *words.split()).lines
        assert gateway.last.body == {"state": state}
    gateway.respond(f"DELETE {MINE}/files", {"revision": 8, "warnings": []})
    output["reset files"] = run("integrations", "reset", "files").lines

    assert output == {
        "on files": ["✓ files is on for its 2 read-only tools; 3 others need --all"],
        "on files --all": ["✓ files is on: all 5 tools"],
        "off files": ["✓ files is off"],
        "reset files": ["✓ files has the default state of your key"],
    }


def test_keys_are_made_with_what_their_callers_begin_with(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("POST /admin/api/keys", {"key_id": "ada", "role": "agent", "secret": "tg_x"}, status=201)

    assert run("keys", "create", "ada", "--integrations", "off").code == 0
    assert gateway.last.body["integrations"] == "off"
