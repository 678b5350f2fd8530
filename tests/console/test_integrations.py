"""My connections: what a caller reaches, the settings of its clients, its switches and its own logins."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.console.test_servers import agreeing_at
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Site, running
from tests.upstream.oauth.authority import OAuthWorld, world_aside

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


def make_key(gateway: Gateway, **key: object) -> str:
    made = gateway.http.post("/admin/api/keys", json={"role": "agent", **key}, headers=BEARER)
    return str(made.raise_for_status().json()["secret"])


def log_in(tab: Page, secret: str, path: str = "/console/connections") -> None:
    tab.goto(path)
    tab.get_by_role("textbox", name="Key").fill(secret)
    tab.get_by_role("button", name="Log in", exact=True).click()


@pytest.mark.requirement("002-020")
def test_an_agent_switches_a_server_off_on_for_reading_and_back_to_the_default(
    tab: Page, gateway: Gateway
) -> None:
    secret = make_key(gateway, key_id="bot", ceiling={"servers": ["one", "two"]})
    eventually(lambda: tools(gateway, secret) == {"one", "two"})
    log_in(tab, secret, "/console/integrations")
    expect(tab).to_have_url(f"{gateway.url}/console/connections")
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


def test_a_caller_sees_how_much_it_reaches_and_connects_its_client(
    browser: Browser, tab: Page, gateway: Gateway
) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["one"]}
    for task in ("first", "other"):
        gateway.http.put(
            f"/admin/api/tasks/{task}", json={"config": config}, headers=BEARER
        ).raise_for_status()
    secret = make_key(gateway, key_id="bound", ceiling={"tasks": ["first", "other"], "servers": ["one"]})
    log_in(tab, secret)
    reach = tab.get_by_role("region", name="What you reach")
    expect(reach).to_contain_text("tools, about")
    expect(reach.get_by_role("combobox", name="Task")).to_have_value("first")
    setup = tab.get_by_role("region", name="Connect a client")
    expect(setup.get_by_label("URL", exact=True)).to_have_text(f"{gateway.url}/api/mcp/t/first")
    expect(setup.get_by_label("command", exact=True)).to_contain_text("Bearer $TOOLGATE_KEY")
    setup.get_by_text("VS Code", exact=True).click()
    link = setup.get_by_role("link", name="Open in VS Code").get_attribute("href") or ""
    assert link.startswith("vscode:mcp/install?")
    assert secret not in link
    reach.get_by_role("combobox", name="Task").click()
    tab.get_by_role("option", name="other").click()
    expect(setup.get_by_label("URL", exact=True)).to_have_text(f"{gateway.url}/api/mcp/t/other")

    nowhere = make_key(gateway, key_id="nowhere", ceiling={"servers": []})
    with tab_on(browser, gateway.url, viewport={"width": 390, "height": 800}) as phone:
        log_in(phone, nowhere)
        expect(phone.get_by_text("Your key reaches no server")).to_be_visible()
        expect(phone.get_by_text("0 of 0 tools")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def log_in_for_listing(gateway: Gateway, there: OAuthWorld) -> None:
    """As an admin does once: before that, no one knows the tools of the server."""
    path, shared = "/api/v1/mcp/servers/there/login", {"shared": True}
    sent = shared | {"redirect_uri": "http://127.0.0.1:1/callback"}
    begun = gateway.http.post(path, json=sent, headers=BEARER).raise_for_status().json()
    answer = there.authority.negotiate(begun["authorization_url"])
    gateway.http.post(f"{path}/finish", json=shared | answer, headers=BEARER).raise_for_status()
    server = "/admin/api/mcp/servers/there"
    eventually(lambda: gateway.http.get(server, headers=BEARER).json()["health"]["tools"] == 1)


def test_a_caller_logs_in_to_a_server_for_itself_and_out_again(browser: Browser, gateway: Gateway) -> None:
    with (
        world_aside(deadline_s=600) as there,
        tab_on(browser, gateway.url, friends=(there.authority.issuer,)) as tab,
    ):
        oauth = {"grant": "authorization_code", "client_id": "gateway", "per_principal": True}
        http = {"url": there.serving.url, "oauth": oauth}
        record = {"transport": "streamable_http", "http": http, "allowed_tools": ["*"]}
        path = "/admin/api/mcp/servers/there"
        gateway.http.put(path, json=record, headers=BEARER).raise_for_status()
        log_in_for_listing(gateway, there)
        tab.route(f"{there.authority.issuer}/authorize*", agreeing_at(there))
        log_in(tab, make_key(gateway, key_id="person", ceiling={"servers": ["there"]}))
        row = tab.get_by_role("row", name="there")
        expect(row).to_contain_text("not logged in")
        row.get_by_role("button", name="Log in to there").click()
        expect(row).to_contain_text("logged in, until")
        expect(tab).to_have_url(f"{gateway.url}/console/connections")
        assert findings_in_both_schemes(tab) == []
        row.get_by_role("button", name="Log out of there").click()
        expect(row).to_contain_text("not logged in")
        gateway.http.delete(path, headers=BEARER).raise_for_status()
