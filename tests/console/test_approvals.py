"""Approvals in the console: a call that waits is seen with its arguments, and decided on."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.scenarios import reference
from tests.scenarios.gateway import Gateway, Site

HIDING = "harm\u202eless\u200b"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One that writes files, once somebody has agreed."""
    site = Site(tmp_path_factory.mktemp("house"))
    asked = {"per_tool": {"write_file": "always"}}
    site.place({**reference.filesystem(site), "approval_policy": asked})
    return site


@pytest.fixture(scope="module")
def caller(gateway: Gateway) -> dict[str, str]:
    """An agent of its own, by the header that it shows."""
    made = gateway.http.post("/admin/api/keys", json={"key_id": "writer", "role": "agent"})
    return {"authorization": f"Bearer {made.json()['secret']}"}


def write(gateway: Gateway, caller: dict[str, str], text: str) -> Any:
    """What the agent gets for trying to write `text` into a file."""
    arguments = {"path": str(gateway.site.root / "files" / "note"), "content": text}
    call = {"name": "filesystem.write_file", "arguments": arguments}
    return gateway.http.post("/api/v1/mcp/call", json=call, headers=caller).json()


def test_a_call_that_waits_is_approved_in_the_queue_and_then_made_once(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    tab.goto("/console/approvals")
    expect(tab.get_by_role("heading", name="No call waits")).to_be_visible()
    waiting = write(gateway, caller, HIDING)["error"]["data"]["approval_id"]
    card = tab.get_by_role("article", name=f"Approval {waiting}")
    expect(card.get_by_label("arguments", exact=True)).to_contain_text("harmU+202ElessU+200B")
    card.get_by_label("Reason").fill("looked at")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_be_hidden()
    made = write(gateway, caller, HIDING)
    again = write(gateway, caller, HIDING)
    tab.get_by_label("Show", exact=True).select_option("used")
    expect(tab.get_by_role("row", name="looked at")).to_be_visible()

    assert made["is_error"] is False
    assert (gateway.site.root / "files" / "note").read_text("utf-8") == HIDING
    assert again["error"]["code"] == "mcp_approval_required"
    assert gateway.get(f"/admin/api/approvals/{waiting}")["reason"] == "looked at"


def test_a_call_is_denied_by_its_link_with_a_reason_that_the_caller_is_told(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    asked = write(gateway, caller, "other")["error"]["data"]
    assert asked["url"] == f"{gateway.url}/console/approvals/{asked['approval_id']}"
    tab.goto(asked["url"])
    tab.get_by_role("button", name="Deny").click()
    expect(tab.get_by_text("Say why it is denied.")).to_be_visible()
    assert gateway.get(f"/admin/api/approvals/{asked['approval_id']}")["state"] == "pending"

    tab.get_by_label("Reason").fill("not today")
    tab.get_by_role("button", name="Deny").click()
    expect(tab.get_by_role("button", name="Deny")).to_be_hidden()
    refused = write(gateway, caller, "other")["error"]

    assert refused["code"] == "mcp_approval_denied"
    assert "not today" in json.dumps(refused)
