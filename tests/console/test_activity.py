"""Activity: what happened is found, followed, told whole and taken along."""

import csv
import re

import pytest
from playwright.sync_api import Page, expect

from tests.eventually import eventually
from tests.scenarios.gateway import Gateway

CALL = "/api/v1/mcp/call"
GOOD = "filesystem.list_allowed_directories"


@pytest.fixture(scope="module", autouse=True)
def _traffic(gateway: Gateway) -> None:
    """Two calls that go well and one that is denied, in the index."""
    for name in (GOOD, GOOD, "no.tool"):
        gateway.http.post(CALL, json={"name": name})
    eventually(lambda: len(gateway.get("/admin/api/audit?type=call")["events"]) == 3)


def choose(tab: Page, field: str, choice: str) -> None:
    tab.get_by_role("combobox", name=field).click()
    tab.get_by_role("option", name=choice, exact=True).click()


def test_a_filter_narrows_the_list_and_is_part_of_the_address(tab: Page) -> None:
    tab.goto("/console/activity?type=call")
    table = tab.get_by_role("region", name="Events")
    expect(table.get_by_role("row")).to_have_count(4)
    choose(tab, "Outcome", "Denied")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(tab).to_have_url("/console/activity?type=call&outcome=rejected")
    expect(table).to_contain_text("no.tool")
    choose(tab, "Outcome", "Sent to a server")
    expect(table.get_by_role("row")).to_have_count(3)
    table.get_by_role("button", name=GOOD).first.click()
    expect(tab).to_have_url("/console/activity?type=call&outcome=admitted&tool=list_allowed_directories")
    tab.get_by_role("button", name="Remove filter Tool (without server): list_allowed_directories").click()
    expect(tab).to_have_url("/console/activity?type=call&outcome=admitted")


def test_what_happens_shows_at_once_unless_it_is_paused(tab: Page, gateway: Gateway) -> None:
    with tab.expect_response(lambda one: "/admin/api/audit/events" in one.url):
        tab.goto("/console/activity?tool=live.one")
    expect(tab.get_by_text("No events match")).to_be_visible()
    gateway.http.post(CALL, json={"name": "live.one"})
    table = tab.get_by_role("region", name="Events")
    expect(table.get_by_role("row")).to_have_count(2)
    tab.get_by_role("switch", name="Follow live").press("Space")
    gateway.http.post(CALL, json={"name": "live.one"})
    eventually(lambda: len(gateway.get("/admin/api/audit?tool=live.one")["events"]) == 2)
    expect(table.get_by_role("row")).to_have_count(2)
    tab.get_by_role("switch", name="Follow live").press("Space")
    expect(table.get_by_role("row")).to_have_count(3)


def test_a_call_tells_its_whole_story(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/activity?outcome=denied&tool=no.tool")
    tab.get_by_role("row").nth(1).get_by_role("link").press("Enter")
    expect(tab.get_by_role("heading", name="no.tool")).to_be_visible()
    expect(tab.get_by_role("region", name="Decision")).to_contain_text("Denied by the platform")
    (event,) = gateway.get("/admin/api/audit?tool=no.tool")["events"]
    expect(tab.get_by_role("table", name="Details")).to_contain_text(event["request_id"])
    tab.get_by_role("link", name="Open the current decision in the scope lens").click()
    expect(tab).to_have_url("/console/scope?why=no.tool")


def test_a_call_shows_what_it_was_made_with_and_what_it_would_be_denied_by(
    tab: Page, gateway: Gateway
) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "mcp.enforce": False}
    gateway.put("/admin/api/tasks/trying", {"config": config})
    sent = {"name": GOOD, "arguments": {"password": "hunter2", "note": "\u202eoops"}}
    gateway.http.post(f"{CALL}?task=trying", json=sent)
    eventually(lambda: len(gateway.get("/admin/api/audit?task=trying&type=call")["events"]) == 1)
    tab.goto("/console/activity?task=trying&type=call")
    tab.get_by_role("row").nth(1).get_by_role("link").press("Enter")
    shown = tab.get_by_role("group", name="arguments")
    expect(shown).to_contain_text('"note"')
    expect(shown).not_to_contain_text("hunter2")
    expect(shown).not_to_contain_text("\u202e")
    expect(tab.get_by_role("region", name="Decision")).to_contain_text("would deny it if it were enforced")
    expect(tab.get_by_text(re.compile(r"^about \d+ tokens$"))).to_be_visible()


def test_the_processes_of_servers_are_events(tab: Page) -> None:
    tab.goto("/console/activity?type=spawn")
    table = tab.get_by_role("region", name="Events")
    expect(table).to_contain_text("process of git")
    expect(table).to_contain_text("started")


def test_what_is_looked_at_is_exported(tab: Page) -> None:
    tab.goto("/console/activity?type=call&outcome=ok")
    tab.get_by_role("button", name="Export").click()
    with tab.expect_download() as downloading:
        tab.get_by_role("menuitem", name="CSV").click()
    with downloading.value.path().open(encoding="utf-8", newline="") as file:
        tools = {row["tool"] for row in csv.DictReader(file)}

    assert tools == {"list_allowed_directories"}
