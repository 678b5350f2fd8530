"""The overview: The status of everything, each number of it true, and a way to where it comes from."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import tab_on
from tests.console.furnished import DAY_MS, write_audit
from tests.scenarios.gateway import Gateway, Site, running
from toolgate.audit.events import AuditEvent, TokensCounted


@pytest.fixture(scope="module")
def world(world: Site) -> Site:
    """As after a week, in which a task was listed ten times a day."""
    now_ms = time.time_ns() // 1_000_000
    days: list[AuditEvent] = [
        TokensCounted(now_ms - day * DAY_MS, "reader", 10, 1_000, 9_000, 2, 70) for day in range(7)
    ]
    write_audit(world, days)
    return world


@pytest.fixture(scope="module", autouse=True)
def _traffic(gateway: Gateway) -> None:
    """Three calls that go well, one that fails, two that are denied; a task; a server that is down."""
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["filesystem"]}
    spending = {"mcp.allowed_server_ids": ["filesystem"], "mcp.budgets": {"calls_per_day": 500}}
    gateway.put("/admin/api/tasks/reader", {"config": {**config, **spending}})
    gateway.put(
        "/admin/api/mcp/servers/broken",
        {"transport": "stdio", "stdio": {"command": "/nonexistent/server"}, "allowed_tools": ["*"]},
    )
    for name in (
        ("filesystem.list_allowed_directories",) * 3 + ("filesystem.read_text_file",) + ("no.tool",) * 2
    ):
        gateway.http.post("/api/v1/mcp/call", json={"name": name})


def test_the_overview_counts_servers_calls_denials_and_tokens(tab: Page) -> None:
    tab.goto("/console/")
    expect(tab.get_by_role("link", name="3 connected")).to_be_visible()
    expect(tab.get_by_role("link", name="1 down")).to_be_visible()
    calls = tab.get_by_role("region", name="Calls")
    expect(calls.get_by_role("link", name="4 calls")).to_be_visible()
    expect(calls.get_by_role("link", name="1 failed")).to_be_visible()
    expect(calls.get_by_role("link", name="2 denied")).to_be_visible()
    expect(calls.get_by_role("table", name="Slowest tools")).to_contain_text("list_allowed_directories")
    expect(calls.get_by_role("table", name="Denials by reason")).to_contain_text("2")
    saved = tab.get_by_role("region", name="Tokens saved")
    expect(saved.get_by_role("row", name="reader")).to_contain_text("%")
    tokens = tab.get_by_role("region", name="Tokens in 30 days")
    expect(tokens).to_contain_text("7,000 for definitions")
    expect(tokens).to_contain_text("56,000 saved")
    expect(tokens.get_by_role("row", name="reader")).to_contain_text("490")
    expect(tab.get_by_role("list", name="Rate limits and quotas")).to_contain_text("0 of 500")
    by_day = tokens.get_by_role("table", name="Tokens of definitions by day")
    expect(by_day.get_by_role("row")).to_have_count(8)


def test_every_number_of_calls_leads_to_exactly_the_calls_it_counts(tab: Page) -> None:
    """Those that a tool failed, too: they have another outcome than those that the gateway failed."""
    for words, rows in (("4 calls", 4), ("1 failed", 1), ("2 denied", 2)):
        tab.goto("/console/")
        tab.get_by_role("region", name="Calls").get_by_role("link", name=words).click()
        events = tab.get_by_role("region", name="Events")
        expect(events.get_by_role("row")).to_have_count(rows + 1)


def test_the_inbox_names_what_needs_a_person_with_its_cause_and_leads_there(
    tab: Page, gateway: Gateway
) -> None:
    gateway.put("/admin/api/profiles/reading", {"servers": ["filesystem"], "allow": ["nothing_like_this"]})
    tab.goto("/console/")
    inbox = tab.get_by_role("region", name="Needs attention")
    down = inbox.get_by_role("listitem").filter(has_text="broken is down")
    expect(down).to_contain_text("/nonexistent/server")
    expect(tab.get_by_role("navigation", name="Pages").get_by_role("link", name="Servers 1")).to_be_visible()
    inbox.get_by_role("link", name="Open profile: reading").click()
    expect(tab).to_have_url("/console/profiles/reading")
    tab.go_back()
    down.get_by_role("link", name="Open server: broken").click()
    expect(tab).to_have_url("/console/servers/broken")


def test_the_time_range_goes_with_you_to_other_pages(tab: Page) -> None:
    tab.goto("/console/")
    tab.get_by_role("radiogroup", name="Time range").get_by_text("7 d", exact=True).click()
    expect(tab).to_have_url("/console?range=7d")
    tab.get_by_role("link", name="Activity").click()
    expect(tab.get_by_role("radio", name="7 d")).to_be_checked()


def test_a_number_leads_to_what_it_counts(tab: Page) -> None:
    tab.goto("/console/")
    tab.get_by_role("link", name="1 down").click()
    expect(tab).to_have_url("/console/servers?state=down")
    expect(tab.get_by_role("table")).to_contain_text("broken")


def test_an_empty_installation_shows_what_to_do_first(browser: Browser, tmp_path: Path) -> None:
    with running(Site(tmp_path)) as gateway, tab_on(browser, gateway.url) as tab:
        tab.goto("/console/")
        expect(tab.get_by_role("link", name="Add a server")).to_be_visible()
        tab.get_by_role("link", name="Import from Claude").click()
        expect(tab).to_have_url("/console/servers/-/import")
