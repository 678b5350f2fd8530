"""Keys in the console: made with bounds, shown once, and taken back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.scenarios.gateway import Gateway, Site, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("keys"))
    site.place(site.stage("one"), site.stage("two"))
    with running(site) as found:
        yield found


def test_a_key_is_made_with_bounds_its_secret_is_shown_once_and_it_is_revoked(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/keys")
    expect(tab.get_by_role("heading", name="No keys yet")).to_be_visible()
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
