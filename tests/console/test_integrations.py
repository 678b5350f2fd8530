"""Integrations in the console: an agent switches servers on and off for itself, by mouse and by keyboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Site, running

ADMIN = "an-administrators-key-of-more-than-32-characters"
BEARER = {"authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("integrations"))
    key_file = site.root / "admin.key"
    key_file.write_text(ADMIN)
    key_file.chmod(0o600)
    site.place({**site.stage("one"), "display_name": "Fi<b>rst</b>"}, site.stage("two"), site.stage("hidden"))
    environ = {"TOOLGATE_TRUST_LOOPBACK": "false", "TOOLGATE_ADMIN_KEY_FILE": str(key_file)}
    with running(site, environ=environ) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, gateway: Gateway) -> Iterator[Page]:
    with tab_on(browser, gateway.url) as page:
        yield page


def tools(gateway: Gateway, secret: str) -> set[str]:
    headers = {"authorization": f"Bearer {secret}"}
    shown = gateway.http.get("/api/v1/mcp/tools", headers=headers).raise_for_status().json()["tools"]
    return {one["server_id"] for one in shown}


@pytest.mark.requirement("002-020")
def test_an_agent_switches_a_server_off_on_for_reading_and_back_to_the_default(
    tab: Page, gateway: Gateway
) -> None:
    key = {"key_id": "bot", "role": "agent", "ceiling": {"servers": ["one", "two"]}}
    made = gateway.http.post("/admin/api/keys", json=key, headers=BEARER)
    secret = str(made.raise_for_status().json()["secret"])
    eventually(lambda: tools(gateway, secret) == {"one", "two"})
    tab.goto("/console/integrations")
    tab.get_by_role("textbox", name="Key").fill(secret)
    tab.get_by_role("button", name="Log in", exact=True).click()
    rows = tab.get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("Fi<b>rst</b>")
    expect(rows.nth(1)).to_contain_text("by default")

    switches = tab.get_by_role("radiogroup", name="Your setting for one")
    switches.get_by_text("Off").click()
    expect(tab.get_by_text("one: off.")).to_be_visible()
    expect(switches.get_by_role("radio", name="Off")).to_be_checked()
    eventually(lambda: tools(gateway, secret) == {"two"})
    switches.get_by_role("radio", name="Off").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.get_by_text("one: on for its read-only tools.")).to_be_visible()
    expect(switches.get_by_role("radio", name="Read-only")).to_be_focused()
    rows.nth(1).get_by_role("button", name="Reset").click()
    expect(rows.nth(1)).to_contain_text("by default")
    eventually(lambda: tools(gateway, secret) == {"one", "two"})

    assert findings_in_both_schemes(tab) == []
