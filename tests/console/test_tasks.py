"""Tasks and profiles in the console: made by ticking, changed with the plan next to it, and deleted."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import findings_in_both_schemes
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway


def config_of(gateway: Gateway, task_id: str) -> dict[str, object]:
    stored = gateway.get(f"/admin/api/tasks/{task_id}")["config"]
    return {key: json.loads(text) for key, text in stored.items()}


def save(tab: Page) -> None:
    """As in every form: the plan is reviewed, and then saved."""
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()


@pytest.mark.requirement("000-24", "000-25")
def test_a_task_is_made_by_ticking_with_what_it_will_see_shown_before(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/tasks")
    tab.get_by_role("link", name="New task").click()
    tab.get_by_role("textbox", name="Name").fill("review")
    tab.get_by_label("memory: allowed").check()
    blind = tab.get_by_role("region", name="Plan").get_by_role("alert").filter(has_text="would see no tools")
    expect(blind).to_be_visible()
    tab.get_by_label("git: default").check()
    expect(blind).to_be_hidden()
    expect(tab.get_by_label("git: allowed")).to_be_checked()
    tab.get_by_label("memory: default").check()
    tab.get_by_label("memory: allowed").uncheck()
    expect(tab.get_by_label("memory: default")).not_to_be_checked()
    tab.get_by_role("switch", name="Only these tools").check()
    patterns = tab.get_by_role("combobox", name="Only these tools: entries")
    patterns.fill("git_diff*")
    patterns.press("Enter")
    expect(tab.get_by_text("git_diff* matches 3:")).to_be_visible()
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("would see 3: +git/git_diff")
    plan.get_by_role("button", name="Review and save").click()
    review = tab.get_by_role("dialog", name="Create this task")
    expect(review).to_contain_text("would see 3: +git/git_diff")
    review.get_by_role("button", name="Keep editing").click()
    expect(review).to_be_hidden()
    save(tab)

    expect(tab.get_by_role("heading", name="review", exact=True)).to_be_visible()
    expect(tab.get_by_role("region", name="Tools offered")).to_contain_text("git.git_diff_staged")
    assert config_of(gateway, "review") == {
        "mcp.enabled": True,
        "mcp.default_server_ids": ["git"],
        "mcp.allowed_server_ids": ["git"],
        "mcp.tool_allowlist": ["git_diff*"],
    }
    assert len(gateway.modern("/api/mcp/t/review").tools()) == 3


def test_a_policy_is_tried_before_it_is_enforced_has_budgets_and_leaves_approvals_to_operators(
    tab: Page, gateway: Gateway
) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "mcp.tool_denylist": ["git_reset"]}
    gateway.put("/admin/api/tasks/trial", {"config": config})
    tab.goto("/console/tasks/trial/edit")
    tab.get_by_role("switch", name="Enforced").uncheck()
    tab.get_by_role("button", name="Rate limits and quotas").click()
    tab.get_by_role("textbox", name="Calls per day").fill("500")
    tab.get_by_role("button", name="Approvals and chat").click()
    tab.get_by_role("switch", name="Elicited approval").uncheck()
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("git_reset")
    save(tab)

    expect(tab.get_by_role("heading", name="trial", exact=True)).to_be_visible()
    expect(tab.get_by_role("list", name="Rate limits and quotas")).to_contain_text("0 of 500")
    assert config_of(gateway, "trial") == {
        **config,
        "mcp.enforce": False,
        "mcp.budgets": {"calls_per_day": 500},
        "mcp.approval_in_place": False,
    }
    tab.goto("/console/scope?task=trial&why=git.git_reset")
    expect(tab.get_by_role("region", name="Answer")).to_contain_text(
        "The task would deny it if it were enforced"
    )


def test_what_others_wrote_meanwhile_is_taken_over_and_what_was_typed_is_kept(
    tab: Page, gateway: Gateway
) -> None:
    body = {"config": {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "team.owner": '"ops"'}}
    gateway.put("/admin/api/tasks/shared", body)
    tab.goto("/console/tasks/shared/edit")
    tab.get_by_role("textbox", name="Title").fill("Mine")
    gateway.put("/admin/api/tasks/shared", {"config": {**body["config"], "mcp.tool_denylist": ["git_reset"]}})
    tab.get_by_role("button", name="Load their version").click()
    save(tab)

    expect(tab.get_by_role("heading", name="shared", exact=True)).to_be_visible()
    assert gateway.get("/admin/api/tasks/shared")["display_name"] == "Mine"
    denied = {"mcp.tool_denylist": ["git_reset"], "team.owner": "ops"}
    assert config_of(gateway, "shared") == {**body["config"], **denied}


def test_what_was_typed_while_the_gateway_was_away_is_planned_when_it_is_back(tab: Page) -> None:
    away = re.compile("/admin/api/(plan|watch)")
    tab.route(away, lambda route: route.abort())
    tab.goto("/console/tasks/-/new")
    tab.get_by_role("textbox", name="Name").fill("patient")
    tab.get_by_label("git: default").check()
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("the gateway cannot be reached")
    tab.unroute(away)

    expect(plan.get_by_role("button", name="Review and save")).to_be_enabled()


def test_a_task_may_be_called_new(tab: Page, gateway: Gateway) -> None:
    gateway.put("/admin/api/tasks/new", {"config": {}})
    tab.goto("/console/tasks")
    tab.get_by_role("row", name=re.compile("^new")).click()

    expect(tab.get_by_role("heading", name="new", exact=True)).to_be_visible()


def test_a_task_shows_what_is_amiss_and_the_url_to_paste_and_is_deleted_by_its_name(
    tab: Page, gateway: Gateway
) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "mcp.tool_denylist": ["no_such_tool"]}
    gateway.put("/admin/api/tasks/gone", {"config": config})
    tab.goto("/console/tasks")
    expect(tab.get_by_role("row", name="gone")).to_contain_text("1 unused rule")
    tab.get_by_role("row", name="gone").click()
    expect(tab.get_by_role("alert")).to_contain_text("no_such_tool")
    tab.get_by_role("tab", name="Connect").click()
    expect(tab.get_by_role("group", name="URL")).to_have_text(f"{gateway.url}/api/mcp/t/gone")
    tab.get_by_role("button", name="Delete").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("loses 12")
    dialog.get_by_label("Name").fill("gone")
    dialog.get_by_role("button", name="Delete").click()

    expect(tab.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
    assert "gone" not in [one["task_id"] for one in gateway.get("/admin/api/tasks")["tasks"]]


def test_no_part_of_the_form_that_is_folded_up_has_a_serious_finding(tab: Page, gateway: Gateway) -> None:
    gateway.put("/admin/api/tasks/looked-at", {"config": {"mcp.enabled": True}})
    tab.goto("/console/tasks/looked-at/edit")
    for section in ("Overrides of the profile", "Approvals and chat", "Workload"):
        tab.get_by_role("button", name=section).click()
    expect(tab.get_by_text("No changes")).to_be_visible()

    assert findings_in_both_schemes(tab) == []


@pytest.mark.requirement("000-34")
def test_a_profile_is_made_with_a_selection_for_one_environment(tab: Page, gateway: Gateway) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "mcp.profile": '"harmless"'}
    gateway.put("/admin/api/tasks/bounded", {"config": config})
    tab.goto("/console/profiles")
    tab.get_by_role("link", name="New profile").click()
    tab.get_by_role("textbox", name="Name").fill("harmless")
    tab.get_by_role("switch", name="Only these tools").check()
    patterns = tab.get_by_role("combobox", name="Only these tools: entries")
    patterns.fill("git_l")
    tab.get_by_role("option", name="git/git_log").click()
    expect(tab.get_by_text("git/git_log matches 1: git.git_log")).to_be_visible()
    tab.get_by_role("tab", name="dev").click()
    tab.get_by_role("switch", name="Separate selection for dev").check()
    tab.get_by_role("combobox", name="None of these tools").fill("git_reset")
    tab.get_by_role("combobox", name="None of these tools").press("Enter")
    tab.get_by_role("combobox", name="None of these tools").fill("@des")
    tab.get_by_role("option", name="@destructive").click()
    expect(tab.get_by_text("@destructive matches")).to_contain_text("git.git_reset")
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("gains 1: +git/git_log")
    save(tab)

    expect(tab.get_by_role("link", name="bounded")).to_be_visible()
    expect(tab.get_by_role("region", name="In dev")).to_contain_text("git_reset matches 1")
    stored = gateway.get("/admin/api/profiles/harmless")
    assert stored["allow"] == ["git/git_log"]
    assert stored["environments"] == {"dev": {"deny": ["git_reset", "@destructive"]}}
    assert gateway.modern("/api/mcp/t/bounded").tools() == ["git.git_log"]


def test_a_rollout_is_shown_with_its_share_widened_promoted_and_rolled_back(
    tab: Page, gateway: Gateway
) -> None:
    profile = {"servers": ["git"], "allow": ["git_log"]}
    rollout = {"share": 10, "servers": ["git"], "allow": ["git_log", "git_diff"]}
    gateway.put("/admin/api/profiles/staged", {**profile, "rollout": rollout})
    gateway.put("/admin/api/tasks/staged", {"config": {"mcp.enabled": True, "mcp.profile": '"staged"'}})
    tab.goto("/console/profiles")
    expect(tab.get_by_role("row", name="staged")).to_contain_text("10 % on version 2")
    tab.get_by_role("row", name="staged").get_by_role("link", name="staged").click()
    card = tab.get_by_role("region", name="Rollout")
    expect(card.get_by_role("heading", name="Version 2 for 10 % of callers")).to_be_visible()
    expect(card.get_by_role("row", name="2 (candidate)")).to_contain_text("10 %")
    assert findings_in_both_schemes(tab) == []
    card.get_by_role("combobox", name="Share").click()
    tab.get_by_role("option", name="50 %").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("40 % of its callers")
    dialog.get_by_role("button", name="Change").click()
    expect(card.get_by_role("heading", name="Version 2 for 50 % of callers")).to_be_visible()
    card.get_by_role("button", name="Promote").click()
    expect(dialog).to_contain_text("gains 1: +git/git_diff")
    dialog.get_by_role("button", name="Promote").click()

    expect(card).to_have_count(0)
    stored = gateway.get("/admin/api/profiles/staged")
    assert (stored["version"], stored["allow"], stored.get("rollout")) == (2, rollout["allow"], None)
    gateway.put("/admin/api/profiles/staged", {**profile, "version": 2, "rollout": rollout})
    card.get_by_role("button", name="Roll back").click()
    dialog.get_by_role("button", name="Roll back").click()
    expect(card).to_have_count(0)
    stored = gateway.get("/admin/api/profiles/staged")
    assert (stored["version"], stored["allow"], stored.get("rollout")) == (2, ["git_log"], None)


def test_what_a_task_uses_becomes_its_policy_after_a_review(tab: Page, gateway: Gateway) -> None:
    gateway.put(
        "/admin/api/tasks/wide",
        {"config": {"mcp.enabled": True, "mcp.default_server_ids": ["git", "memory"]}},
    )
    gateway.http.post("/api/v1/mcp/call?task=wide", json={"name": "memory.read_graph"}).raise_for_status()
    eventually(lambda: len(gateway.get("/admin/api/audit?task=wide&type=call")["events"]) == 1)
    tab.goto("/console/")
    tab.get_by_role("link", name="Unused grants").click()
    expect(tab.get_by_role("row", name="wide")).to_contain_text("20 of 21")
    tab.get_by_text("Servers", exact=True).last.click()
    expect(tab.get_by_role("region", name="Unused servers")).to_contain_text("filesystem")
    tab.get_by_text("Tasks", exact=True).last.click()
    tab.get_by_role("row", name="wide").click()
    expect(tab.get_by_role("region", name="Unused tools")).to_contain_text("git.git_diff")
    expect(tab.get_by_role("row", name="git.git_diff_staged")).to_contain_text("not since")
    expect(tab.get_by_role("region", name="Unused tools")).not_to_contain_text("never")
    expect(tab.get_by_text("20 of 21 granted tools were not used")).to_be_visible()
    tab.get_by_role("link", name="Policy without them").click()
    expect(tab.get_by_text("1 call used 1 tool.")).to_be_visible()
    expect(tab.get_by_role("region", name="Unused", exact=True).first).to_contain_text("git.git_diff")
    expect(tab.get_by_role("region", name="Used", exact=True).first).to_contain_text("memory.read_graph")
    assert findings_in_both_schemes(tab) == []
    tab.get_by_role("button", name="Review policy without them").click()
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("git_diff")
    save(tab)

    expect(tab.get_by_role("heading", name="wide", exact=True)).to_be_visible()
    assert gateway.modern("/api/mcp/t/wide").tools() == ["memory.read_graph"]


def test_what_offers_nothing_says_why_and_leads_to_what_to_do(tab: Page, gateway: Gateway) -> None:
    """And the banner of a profile says the same as its cards, also while a server is down."""
    nowhere = {
        "transport": "streamable_http",
        "http": {"url": "http://127.0.0.1:9/mcp"},
        "allowed_tools": ["*"],
    }
    gateway.put("/admin/api/mcp/servers/billing", {**nowhere, "tags": ["money"]})
    gateway.put("/admin/api/profiles/paying", {"tags": ["money"], "allow": ["git_log"], "deny": ["git/*"]})
    one = {"mcp.enabled": True, "mcp.default_server_ids": ["billing"]}
    gateway.put("/admin/api/tasks/invoices", {"config": one})
    gateway.put("/admin/api/tasks/paid", {"config": {"mcp.enabled": True, "mcp.profile": "paying"}})
    eventually(lambda: gateway.get("/admin/api/mcp/servers/billing")["health"]["state"] == "down")
    tab.goto("/console/tasks?state=none")
    row = tab.get_by_role("row", name="invoices")
    expect(row).to_contain_text("0 of")
    expect(row).to_contain_text("Its server billing is down: cannot connect to 127.0.0.1:9")
    expect(row.get_by_role("link", name="Open billing")).to_have_attribute("href", "/console/servers/billing")
    expect(tab.get_by_role("row", name="paid")).to_contain_text("Its profile paying offers nothing")
    expect(tab.get_by_role("row", name="shared")).to_have_count(0)
    assert findings_in_both_schemes(tab) == []
    tab.get_by_role("button", name="Remove filter State: No tools offered").click()
    expect(tab.get_by_role("row", name="shared")).to_contain_text("of")

    tab.get_by_role("row", name="paid").get_by_role("link", name="Open paying").click()
    nothing = tab.get_by_role("alert").filter(has_text="No tools offered")
    expect(nothing).to_contain_text("billing has not listed tools.")
    expect(nothing.get_by_role("link", name="Open billing")).to_be_visible()
    card = tab.get_by_role("region", name="Common")
    expect(card).to_contain_text("git_log matches no tools yet: billing has not listed its tools")
    expect(card).to_contain_text("git/* matches no tools of the selected servers")
    banner = tab.get_by_role("alert").filter(has_text="Rules to review")
    expect(banner).to_contain_text("deny: no name matches git/*")
    expect(banner).not_to_contain_text("git_log")
