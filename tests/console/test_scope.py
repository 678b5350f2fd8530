"""The scope lens: what each layer lets through and takes away, and why a thing is missing."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import tab_on
from tests.scenarios.gateway import Gateway

REVIEW = {
    "display_name": "Code review",
    "config": {
        "mcp.enabled": True,
        "mcp.default_server_ids": ["git"],
        "mcp.allowed_server_ids": ["git", "memory"],
        "mcp.tool_allowlist": ["git_*", "read_graph"],
        "mcp.tool_denylist": ["git_reset"],
    },
}


@pytest.fixture(autouse=True, scope="module")
def _review(gateway: Gateway) -> None:
    gateway.put("/admin/api/tasks/review", REVIEW)


def test_the_funnel_counts_what_the_gateway_decided(tab: Page, gateway: Gateway) -> None:
    everything = gateway.get("/api/v1/mcp/explain?task=review")["tools"]
    decisions = [one for one in everything if not one["tool"].startswith(("prompt:", "resource:"))]
    taken = [one for one in decisions if one["layer"] == "task" and not one["allowed"]]
    seen = [one for one in decisions if one["allowed"]]

    tab.goto("/console/scope?task=review")
    funnel = tab.get_by_role("list", name="Scope by layer").get_by_role("listitem")
    expect(funnel.nth(0)).to_contain_text(f"{len(decisions)} tools")
    expect(funnel.nth(2)).to_contain_text(f"excludes {len(taken)} tools")
    expect(funnel.nth(4)).to_contain_text(f"In scope{len(seen)}")
    expect(funnel.nth(4)).to_contain_text(f"{sum(one['tokens'] for one in seen):,} tokens")

    funnel.nth(2).get_by_role("button").click()
    expect(tab).to_have_url(re.compile("layer=task"))
    table = tab.get_by_role("region", name="Decisions")
    expect(table.get_by_role("button", name="git_reset", exact=True)).to_be_visible()
    expect(table.get_by_text("git_log", exact=True)).to_have_count(0)


@pytest.mark.requirement("000-48")
def test_a_missing_tool_shows_layer_rule_and_next_step(tab: Page) -> None:
    tab.goto("/console/scope?task=review&why=git.git_reset")
    response = tab.get_by_role("region", name="Answer")
    expect(response).to_contain_text("git.git_reset is not in scope: denied by the task.")
    expect(response).to_contain_text("mcp.tool_denylist git_reset")
    expect(response.get_by_role("link", name="Open the task")).to_have_attribute(
        "href", "/console/tasks/review"
    )

    question = tab.get_by_label("Why is it missing?")
    question.fill("git.git_lgo")
    expect(response).to_contain_text("Nothing is named git.git_lgo")
    response.get_by_role("button", name="git.git_log").click()
    expect(response).to_contain_text("git.git_log is in scope.")

    tab.get_by_role("combobox", name="Request servers").fill("memory")
    tab.get_by_role("combobox", name="Request servers").press("Enter")
    expect(response).to_contain_text(
        "git.git_log is not in scope: its server is not selected by the request."
    )
    shared = tab.url
    tab.goto("/console/")
    tab.goto(shared)
    expect(response).to_contain_text("its server is not selected by the request")


def test_why_a_tool_is_missing_is_found_by_keyboard_alone(tab: Page) -> None:
    """And the answer is in view where the link leads to, also on a phone."""
    tab.goto("/console/")
    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    tab.keyboard.press("Control+k")
    expect(tab.get_by_role("combobox", name="Search or run a command")).to_be_focused()
    tab.keyboard.type("git.git_reset")
    wanted = tab.get_by_role("option", name="Why is “git.git_reset” missing?")
    expect(wanted).to_be_visible()
    for _ in range(10):
        if wanted.get_attribute("aria-selected") == "true":
            break
        tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    response = tab.get_by_role("region", name="Answer")
    expect(response).to_contain_text("git.git_reset is in scope.")
    task = tab.get_by_role("combobox", name="Task")
    for _ in range(40):
        tab.keyboard.press("Tab")
        if task.evaluate("one => one === document.activeElement"):
            break
    tab.keyboard.type("review")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    expect(response).to_contain_text("git.git_reset is not in scope: denied by the task.")

    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto("/console/scope?task=review&why=git.git_reset")
    expect(response.get_by_text("denied by the task")).to_be_in_viewport()
    expect(response.get_by_role("link", name="Open the task")).to_be_in_viewport()


def test_an_agent_looks_at_its_own_scope_and_learns_of_nothing_else(
    browser: Browser, gateway: Gateway
) -> None:
    made = gateway.http.post(
        "/admin/api/keys", json={"key_id": "ci", "role": "agent", "ceiling": {"tasks": ["review"]}}
    )
    secret = made.raise_for_status().json()["secret"]
    with tab_on(browser, gateway.url) as tab:
        tab.add_init_script(f"sessionStorage.setItem('toolgate.credential', '{secret}')")
        tab.goto("/console/scope?task=review&why=git.git_reset")
        expect(tab.get_by_role("region", name="Answer")).to_contain_text("Nothing in your scope is named")
        expect(tab.get_by_role("region", name="Decisions").get_by_text("git_log")).to_be_visible()
        expect(tab.get_by_label("Key", exact=True)).to_have_count(0)
