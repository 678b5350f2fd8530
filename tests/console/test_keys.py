"""Keys in the console: made with bounds, shown once, read at a glance, and taken back."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Json, Site, running

CALL = "/api/v1/mcp/call"
PHONE = {"width": 390, "height": 800}
HOUR_S = 3600


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("keys"))
    site.place(site.stage("one"), site.stage("two"))
    with running(site) as found:
        yield found


def make_key(gateway: Gateway, **key: object) -> dict[str, str]:
    """The header of a new agent's key."""
    made: Json = gateway.http.post("/admin/api/keys", json={"role": "agent", **key}).raise_for_status().json()
    return {"authorization": f"Bearer {made['secret']}"}


def test_a_key_is_made_with_bounds_its_secret_is_shown_once_and_it_is_revoked(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/keys")
    expect(tab.get_by_role("heading", name="No keys yet")).to_be_visible()
    expect(tab.get_by_role("link", name="Hand over access")).to_have_count(2)
    tab.get_by_role("link", name="New key").click()
    tab.get_by_role("textbox", name="Name").fill("ci")
    tab.get_by_label("Role").select_option("agent")
    tab.get_by_label("Only these servers").check()
    tab.get_by_role("combobox", name="Only these servers").fill("two")
    tab.get_by_role("combobox", name="None of these tools").fill("*delete*")
    tab.get_by_label("Valid through").fill("2099-12-31")
    tab.get_by_label("Calls per minute").fill("60")
    tab.get_by_role("button", name="Create key").click()
    shown = tab.get_by_role("dialog", name="Store this key now")
    secret = shown.get_by_label("key", exact=True).inner_text()
    tab.keyboard.press("Escape")
    expect(shown).to_be_visible()
    shown.get_by_role("button", name="I have stored the key").click()
    expect(tab.get_by_role("heading", name="ci")).to_be_visible()
    expect(tab.get_by_role("row", name="Rate limits and quotas")).to_contain_text("0 of 60")
    expect(tab.get_by_role("row", name="Ceiling only")).to_contain_text(
        "only server two; never tools that match *delete*"
    )
    bearer = {"authorization": f"Bearer {secret}"}
    tools = gateway.http.get("/api/v1/mcp/tools", headers=bearer).json()["tools"]

    assert {one["server_id"] for one in tools} == {"two"}
    assert gateway.get("/admin/api/keys/ci")["ceiling"] == {"servers": ["two"], "deny": ["*delete*"]}
    assert gateway.get("/admin/api/keys/ci")["budgets"] == {"calls_per_minute": 60}
    assert secret not in tab.content()

    tab.get_by_role("button", name="Revoke").click()
    asked = tab.get_by_role("dialog", name="Revoke key")
    expect(asked.get_by_role("button", name="Revoke")).to_be_disabled()
    asked.get_by_label("Name").fill("ci")
    asked.get_by_role("button", name="Revoke").click()
    expect(tab.get_by_role("heading", name="No keys yet")).to_be_visible()

    assert gateway.http.get("/api/v1/mcp/tools", headers=bearer).status_code == 401


def test_an_invalid_field_shows_its_error_and_keeps_the_input(tab: Page) -> None:
    tab.goto("/console/keys/-/new")
    tab.get_by_role("button", name="Create key").click()
    expect(tab.get_by_text("Enter a name: the audit log")).to_be_visible()
    tab.get_by_role("textbox", name="Name").fill("not a name")
    tab.get_by_role("button", name="Create key").click()
    expect(tab.get_by_role("alert")).to_be_visible()
    expect(tab.get_by_role("textbox", name="Name")).to_have_value("not a name")


def test_each_key_shows_what_it_reaches_its_last_use_its_quota_and_its_end(
    browser: Browser, tab: Page, gateway: Gateway
) -> None:
    busy = make_key(gateway, key_id="busy", budgets={"calls_per_day": 1})
    make_key(gateway, key_id="nowhere", ceiling={"servers": ["gone"]})
    make_key(gateway, key_id="ending", expires_at_s=int(time.time()) + 72 * HOUR_S)
    make_key(gateway, key_id="ended", expires_at_s=int(time.time()) - HOUR_S)
    name = gateway.http.get("/api/v1/mcp/tools", headers=busy).json()["tools"][0]["name"]
    gateway.http.post(CALL, json={"name": name, "arguments": {}}, headers=busy)
    eventually(lambda: gateway.get("/admin/api/key-usage?key=busy")["keys"][0]["last_used_ms"])
    eventually(lambda: gateway.get("/admin/api/budgets")["budgets"][0]["used"] == 1)
    tab.goto("/console/keys")

    def row(name: str, words: str) -> None:
        expect(tab.get_by_role("row", name=name)).to_contain_text(words)

    row("busy", "1 of 1 calls per day")
    row("busy", "ago")
    row("nowhere", "0 of")
    row("nowhere", "no server that its ceiling allows exists: gone.")
    row("nowhere", "not since")
    row("ending", "in 3 days")
    row("ended", "expired 1 hour ago")
    expect(tab.get_by_text("never used")).to_have_count(0)
    assert findings_in_both_schemes(tab) == []
    tab.get_by_role("combobox", name="Expiry").click()
    tab.get_by_role("option", name="expired").click()
    expect(tab.get_by_role("row")).to_have_count(2)
    expect(tab).to_have_url(f"{gateway.url}/console/keys?expiry=over")
    tab.get_by_role("link", name="ended").click()
    expect(tab.get_by_text("This key expired 1 hour ago")).to_be_visible()

    with tab_on(browser, gateway.url, viewport=PHONE) as phone:
        phone.goto("/console/keys")
        expect(phone.get_by_role("row", name="ended")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_page_of_a_key_has_its_calls_and_the_settings_of_its_clients_without_its_secret(
    tab: Page, gateway: Gateway
) -> None:
    gateway.put("/admin/api/tasks/work", {"config": {"mcp.enabled": True, "mcp.default_server_ids": ["one"]}})
    bearer = make_key(gateway, key_id="worker", ceiling={"tasks": ["work"]}, default_task="work")
    name = gateway.http.get("/api/v1/mcp/tools", headers=bearer).json()["tools"][0]["name"]
    gateway.http.post(CALL, json={"name": name, "arguments": {}}, headers=bearer)
    eventually(lambda: gateway.get("/admin/api/audit?principal=key:worker&type=call")["events"])
    tab.goto("/console/keys/worker")
    expect(tab.get_by_role("row", name="Created")).to_contain_text("ago by local")
    expect(tab.get_by_role("row", name="Tools")).to_contain_text("tokens per list")
    expect(tab.get_by_role("region", name="Recent calls").get_by_role("row", name=name)).to_be_visible()
    setup = tab.get_by_role("region", name="Settings for its clients")
    expect(setup.get_by_label("URL", exact=True)).to_have_text(f"{gateway.url}/api/mcp/t/work")
    setup.get_by_text("Cursor", exact=True).click()
    link = setup.get_by_role("link", name="Open in Cursor").get_attribute("href") or ""

    assert link.startswith("cursor://anysphere.cursor-deeplink/mcp/install?name=work&config=")
    assert findings_in_both_schemes(tab) == []
    tab.get_by_role("link", name="All its calls").click()
    expect(tab).to_have_url(f"{gateway.url}/console/activity?principal=key%3Aworker&type=call")
