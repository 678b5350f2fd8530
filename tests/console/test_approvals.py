"""Approvals in the console: a call that waits is seen with its arguments, and decided on."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.askable import CAN_ANSWER
from tests.scenarios.clients import ACCEPT, META, MODERN
from tests.scenarios.gateway import Gateway, Site

WRITE = "filesystem.write_file"
HIDING = "harm\u202eless\u200b"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One that writes files, once someone has agreed."""
    site = Site(tmp_path_factory.mktemp("site"))
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
    call = {"name": WRITE, "arguments": arguments_of(gateway, text)}
    return gateway.http.post("/api/v1/mcp/call", json=call, headers=caller).json()


def arguments_of(gateway: Gateway, text: str) -> dict[str, str]:
    return {"path": str(gateway.site.root / "files" / "note"), "content": text}


def write_where_one_can_be_asked(gateway: Gateway, caller: dict[str, str], text: str) -> Any:
    """What comes of it at an MCP client whose user agrees to whatever the client is asked."""
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": CAN_ANSWER}
    params: dict[str, Any] = {"name": WRITE, "arguments": arguments_of(gateway, text), "_meta": meta}
    about = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": WRITE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    while True:
        sent = gateway.http.post("/api/mcp", json=body, headers={**ACCEPT, **about, **caller})
        result = sent.raise_for_status().json()["result"]
        if result.get("resultType") != "input_required":
            return result
        agreed = {key: {"action": "accept", "content": {}} for key in result["inputRequests"]}
        body = {
            **body,
            "params": {**params, "inputResponses": agreed, "requestState": result["requestState"]},
        }


def test_a_call_that_waits_is_approved_in_the_queue_and_then_made_once(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    tab.goto("/console/approvals")
    expect(tab.get_by_role("heading", name="No pending approvals")).to_be_visible()
    waiting = write(gateway, caller, HIDING)["error"]["data"]["approval_id"]
    card = tab.get_by_role("article", name=f"Approval of {WRITE}")
    expect(card).to_contain_text("Asked by key:writer")
    expect(card.get_by_role("table", name="Arguments")).to_contain_text("harmU+202ElessU+200B")
    card.get_by_label("Reason").fill("looked at")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_be_hidden()
    made = write(gateway, caller, HIDING)
    again = write(gateway, caller, HIDING)
    tab.get_by_role("combobox", name="State").click()
    tab.get_by_role("option", name="Approved and used").click()
    expect(tab.get_by_role("row", name="looked at")).to_be_visible()
    tab.get_by_role("searchbox", name="Find").fill("no such call")
    expect(tab.get_by_role("heading", name="No approvals match")).to_be_visible()
    tab.get_by_role("button", name="Remove filter Text: no such call").click()
    expect(tab.get_by_role("row", name="looked at")).to_be_visible()
    expect(tab).to_have_url("/console/approvals?state=used")

    assert made["is_error"] is False
    assert (gateway.site.root / "files" / "note").read_text("utf-8") == HIDING
    assert again["error"]["code"] == "mcp_approval_required"
    assert gateway.get(f"/admin/api/approvals/{waiting}")["reason"] == "looked at"


def press_until(tab: Page, wanted: Locator) -> None:
    """Tab, until what is wanted has the focus: as one does who has no mouse."""
    for _ in range(80):
        tab.keyboard.press("Tab")
        if wanted.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"{wanted} is not reached by keyboard")


def test_calls_are_decided_on_one_after_the_other_by_keyboard_alone(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    for one in gateway.get("/admin/api/approvals?state=pending")["approvals"]:
        gateway.http.post(f"/admin/api/approvals/{one['approval_id']}/deny", json={"reason": "before"})
    texts = ("apple", "berry", "cherry")
    ids = {text: write(gateway, caller, text)["error"]["data"]["approval_id"] for text in texts}
    tab.goto("/console/approvals")
    cards = tab.get_by_role("article", name=f"Approval of {WRITE}")
    expect(cards).to_have_count(3)
    press_until(tab, cards.filter(has_text="cherry").get_by_role("button", name="Approve"))
    tab.keyboard.press("Enter")
    expect(cards).to_have_count(2)
    berry = cards.filter(has_text="berry")
    expect(berry.get_by_role("link", name=WRITE)).to_be_focused()
    press_until(tab, berry.get_by_role("button", name="Deny"))
    tab.keyboard.press("Enter")
    expect(berry.get_by_role("textbox", name="Reason")).to_be_focused()
    tab.keyboard.type("not this one")
    tab.keyboard.press("Enter")
    expect(cards).to_have_count(1)
    apple = cards.filter(has_text="apple")
    expect(apple.get_by_role("link", name=WRITE)).to_be_focused()
    press_until(tab, apple.get_by_role("button", name="Approve"))
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="Approvals", exact=True)).to_be_focused()
    expect(tab.get_by_role("heading", name="No pending approvals")).to_be_visible()

    stored = {text: gateway.get(f"/admin/api/approvals/{one}") for text, one in ids.items()}
    assert [one["state"] for one in stored.values()] == ["approved", "denied", "approved"]
    assert stored["berry"]["reason"] == "not this one"


def test_a_call_is_denied_by_its_link_and_the_caller_gets_the_reason(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    asked = write(gateway, caller, "other")["error"]["data"]
    assert asked["url"] == f"{gateway.url}/console/approvals/{asked['approval_id']}"
    tab.goto(asked["url"])
    tab.get_by_role("button", name="Deny").click()
    expect(tab.get_by_text("Enter a reason for the denial.")).to_be_visible()
    assert gateway.get(f"/admin/api/approvals/{asked['approval_id']}")["state"] == "pending"

    tab.get_by_label("Reason").fill("not today")
    tab.get_by_role("button", name="Deny").click()
    expect(tab.get_by_role("button", name="Deny")).to_be_hidden()
    refused = write(gateway, caller, "other")["error"]

    assert refused["code"] == "mcp_approval_denied"
    assert "not today" in json.dumps(refused)


def test_a_call_that_was_agreed_to_in_place_is_seen_until_operators_alone_decide(
    tab: Page, gateway: Gateway, caller: dict[str, str]
) -> None:
    tab.goto("/console/approvals?state=used")
    made = write_where_one_can_be_asked(gateway, caller, "asked in place")
    row = tab.get_by_role("row", name="approved by elicitation")
    expect(row).to_contain_text("key:writer")
    row.click()
    expect(tab.get_by_role("article")).to_contain_text("by key:writer (elicited)")
    assert made.get("isError") in {None, False}
    assert (gateway.site.root / "files" / "note").read_text("utf-8") == "asked in place"

    newest = "/admin/api/audit?type=approval&limit=1"
    eventually(lambda: [one["state"] for one in gateway.get(newest)["events"]] == ["used"])
    tab.goto("/console/activity?type=approval")
    events = tab.get_by_role("region", name="Events").get_by_role("row")
    events.filter(has_text="approved").first.get_by_role("link").press("Enter")
    expect(tab.get_by_role("table", name="Details")).to_contain_text("approved by elicitation")

    tab.goto("/console/servers/filesystem/edit")
    tab.get_by_role("button", name=re.compile("^Approvals")).click()
    tab.get_by_role("switch", name="Elicited approval").uncheck()
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog", name="Save these changes").get_by_role("button", name="Save").click()
    expect(tab.get_by_text("Status on this node")).to_be_visible()
    saved = gateway.get("/admin/api/mcp/servers/filesystem")["approval_policy"]
    refused = write_where_one_can_be_asked(gateway, caller, "asked nowhere")

    assert (saved["in_place"], saved["per_tool"]) == (False, {"write_file": "always"})
    assert refused["_meta"]["toolgate/error"]["code"] == "mcp_approval_required"
