"""The console's gate: whom it lets in, by a key or by an issuer, what of it a role sees, and the way out."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.gateway.auth.issuer import AUDIENCE, Issuer, serving_issuer
from tests.scenarios.gateway import Gateway, Json, Site, running

HTTP_WORDS = re.compile(r"[0-9]{3}|unauth|status|header|bearer|code", re.IGNORECASE)
"""The protocol's words mean nothing to someone who logs in."""
ADMIN = "an-administrators-key-of-more-than-32-characters"
BEARER = {"authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as found:
        yield found


@pytest.fixture(scope="module")
def gateway(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One that trusts no one without a credential."""
    site = Site(tmp_path_factory.mktemp("login"))
    key_file = site.root / "admin.key"
    key_file.write_text(ADMIN)
    key_file.chmod(0o600)
    oidc = {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "roles": {"readers": "viewer", "writers": "publisher"},
        "client_id": "console",
    }
    environ = {
        "TOOLGATE_OIDC": json.dumps(oidc),
        "TOOLGATE_TRUST_LOOPBACK": "false",
        "TOOLGATE_ADMIN_KEY_FILE": str(key_file),
    }
    with running(site, environ=environ) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, gateway: Gateway, issuer: Issuer) -> Iterator[Page]:
    with tab_on(browser, gateway.url, friends=(issuer.url,)) as page:
        yield page


def make_key(gateway: Gateway, **key: str) -> str:
    made: Json = gateway.http.post("/admin/api/keys", json=key, headers=BEARER).raise_for_status().json()
    return str(made["secret"])


def log_in(tab: Page, key: str) -> None:
    tab.get_by_role("textbox", name="Key").fill(key)
    tab.get_by_role("button", name="Log in", exact=True).click()


def kept(tab: Page) -> list[str]:
    """All that this tab keeps, and the browser."""
    found: list[str] = tab.evaluate("[...Object.values(sessionStorage), ...Object.values(localStorage)]")
    return [one for one in found if one not in {"light", "dark", "auto"}]


def test_a_key_leads_to_the_page_that_was_asked_for_and_is_forgotten_on_leaving(tab: Page) -> None:
    tab.goto("/console/keys")
    for wrong in ("tg_wrong", "schlüssel"):
        log_in(tab, wrong)
        expect(tab.get_by_role("alert")).to_contain_text("Unknown or revoked key")
    expect(tab.get_by_role("alert")).not_to_contain_text(HTTP_WORDS)
    expect(tab.get_by_role("main")).not_to_contain_text("`")
    assert kept(tab) == []

    log_in(tab, ADMIN)
    expect(tab.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
    expect(tab.get_by_role("link", name="New key")).to_be_visible()
    assert kept(tab) == [ADMIN]

    tab.get_by_role("button", name="admin").click()
    tab.get_by_role("menuitem", name="Log out").click()
    expect(tab.get_by_role("heading", name="Log in to Toolgate")).to_be_visible()
    assert kept(tab) == []


def test_a_viewer_sees_nothing_to_write_with_and_is_shown_out_when_the_key_is_revoked(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/keys")
    log_in(tab, make_key(gateway, key_id="desk", role="viewer"))
    expect(tab.get_by_role("row", name="desk")).to_be_visible()
    expect(tab.get_by_role("link", name="New key")).to_be_hidden()
    expect(tab.get_by_role("link", name="Hand over access")).to_be_hidden()
    tab.get_by_role("link", name="desk").click()
    expect(tab.get_by_role("heading", name="History")).to_be_visible()
    expect(tab.get_by_role("button", name="Revoke")).to_be_hidden()
    gateway.http.delete("/admin/api/keys/desk", headers=BEARER).raise_for_status()
    expect(tab.get_by_role("heading", name="Log in to Toolgate")).to_be_visible()
    expect(tab.get_by_text("Your key was revoked or has expired")).to_be_visible()
    expect(tab.get_by_role("textbox", name="Key")).to_be_focused()
    expect(tab.get_by_role("button", name="Log in with")).to_be_visible()
    assert kept(tab) == []
    assert findings_in_both_schemes(tab) == []

    log_in(tab, ADMIN)
    tab.get_by_role("button", name="admin").click()
    tab.get_by_role("menuitem", name="Log out").click()
    expect(tab.get_by_role("heading", name="Log in to Toolgate")).to_be_visible()
    expect(tab.get_by_text("Your key was revoked or has expired")).to_have_count(0)


def test_while_the_gateway_is_away_the_login_says_what_to_check(tab: Page) -> None:
    tab.goto("/console/keys")
    expect(tab.get_by_role("button", name="Log in with")).to_be_visible()
    tab.route("**/api/v1/me", lambda one: one.abort())
    log_in(tab, ADMIN)
    alert = tab.get_by_role("alert")
    expect(alert).to_contain_text("The gateway does not respond")
    expect(alert).to_contain_text("Check that it is running (toolgate status)")
    expect(tab.get_by_role("textbox", name="Key")).to_have_value(ADMIN)
    tab.unroute("**/api/v1/me")
    tab.get_by_role("button", name="Log in", exact=True).click()
    expect(tab.get_by_role("heading", name="Keys", exact=True)).to_be_visible()

    tab.route("**/api/v1/me", lambda one: one.abort())
    tab.goto("/console/keys")
    expect(tab.get_by_role("heading", name="Toolgate does not respond")).to_be_visible()
    tab.unroute("**/api/v1/me")
    tab.get_by_role("button", name="Try again").click()
    expect(tab.get_by_role("heading", name="Keys", exact=True)).to_be_visible()


def test_a_tab_with_a_revoked_key_asks_for_another(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/keys")
    log_in(tab, make_key(gateway, key_id="gone", role="viewer"))
    expect(tab.get_by_role("row", name="gone")).to_be_visible()
    tab.goto("about:blank")
    gateway.http.delete("/admin/api/keys/gone", headers=BEARER).raise_for_status()
    tab.goto(f"{gateway.url}/console/keys")
    expect(tab.get_by_text("Your key was revoked or has expired")).to_be_visible()
    log_in(tab, ADMIN)

    expect(tab.get_by_role("button", name="admin")).to_be_visible()
    assert kept(tab) == [ADMIN]


def test_what_was_typed_when_a_key_ends_is_there_again_after_the_next_login(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/tasks/-/new")
    log_in(tab, make_key(gateway, key_id="writer", role="publisher"))
    tab.get_by_role("textbox", name="Name").fill("half-done")
    gateway.http.delete("/admin/api/keys/writer", headers=BEARER).raise_for_status()
    expect(tab.get_by_role("heading", name="Log in again")).to_be_visible()
    expect(tab.get_by_role("region", name="Plan", include_hidden=True)).to_be_hidden()
    assert kept(tab) == []
    assert findings_in_both_schemes(tab) == []

    log_in(tab, ADMIN)
    expect(tab.get_by_role("textbox", name="Name")).to_have_value("half-done")
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog", name="Create this task").get_by_role("button", name="Save", exact=True).click()
    expect(tab.get_by_role("heading", name="half-done", exact=True)).to_be_visible()
    assert kept(tab) == [ADMIN]


def test_what_was_typed_is_not_for_who_may_see_less(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/tasks/-/new")
    log_in(tab, make_key(gateway, key_id="author", role="publisher"))
    tab.get_by_role("textbox", name="Name").fill("half-done")
    less = make_key(gateway, key_id="onlooker", role="viewer")
    gateway.http.delete("/admin/api/keys/author", headers=BEARER).raise_for_status()
    expect(tab.get_by_role("heading", name="Log in again")).to_be_visible()
    log_in(tab, less)

    expect(tab.get_by_role("button", name="key:onlooker")).to_be_visible()
    expect(tab.get_by_role("textbox", name="Name", include_hidden=True)).to_have_count(0)


def test_a_key_for_nodes_opens_nothing_and_is_not_kept(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/")
    log_in(tab, make_key(gateway, key_id="west", role="node"))

    expect(tab.get_by_role("alert")).to_contain_text("role")
    assert kept(tab) == []
    log_in(tab, ADMIN)
    expect(tab.get_by_role("button", name="admin")).to_be_visible()


def test_an_agent_sees_only_the_pages_that_are_for_agents_and_begins_on_one(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/")
    log_in(tab, make_key(gateway, key_id="bot", role="agent"))
    pages = tab.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(pages).to_have_text(["Catalog", "Playground", "My connections", "Scope lens", "WASM tasks"])
    expect(tab.get_by_role("heading", name="Catalog", exact=True)).to_be_visible()


def test_whom_the_issuer_knows_comes_back_to_the_page_that_was_asked_for(
    tab: Page, gateway: Gateway, issuer: Issuer
) -> None:
    issuer.gives = {"access_token": issuer.token(roles=["readers"]), "token_type": "Bearer"}
    tab.goto("/console/keys?q=desk")
    tab.get_by_role("button", name="Log in with").click()
    expect(tab.get_by_role("heading", name="Keys", exact=True)).to_be_visible()

    expect(tab).to_have_url(f"{gateway.url}/console/keys?q=desk")
    assert kept(tab) == [issuer.gives["access_token"]]


def test_a_login_at_the_issuer_that_ends_while_someone_types_begins_again_in_another_tab(
    tab: Page, issuer: Issuer
) -> None:
    issuer.gives = {"access_token": issuer.token(roles=["writers"]), "token_type": "Bearer"}
    tab.goto("/console/tasks/-/new")
    tab.get_by_role("button", name="Log in with").click()
    name = tab.get_by_role("textbox", name="Name")
    name.fill("half-done")
    tab.evaluate("sessionStorage.setItem('toolgate.credential', 'one that is no more')")
    expect(tab.get_by_role("heading", name="Log in again")).to_be_visible()
    tab.get_by_role("button", name="Log in with").click()

    expect(name).to_have_value("half-done")
    expect(name).to_be_visible()
    assert kept(tab) == [issuer.gives["access_token"]]


def test_a_login_that_was_begun_elsewhere_is_not_finished_here(
    tab: Page, gateway: Gateway, issuer: Issuer
) -> None:
    """RFC 6749, section 10.12: else a link would log someone in as someone else."""
    elsewhere = f"{gateway.url}/console/login?code=theirs&state=another"
    tab.route(
        f"{issuer.url}/authorize*", lambda one: one.fulfill(status=302, headers={"location": elsewhere})
    )
    handed_in: list[str] = []
    tab.on("request", lambda one: handed_in.append(one.url) if one.method == "POST" else None)
    tab.goto("/console/keys")
    tab.get_by_role("button", name="Log in with").click()
    expect(tab.get_by_text("This login was not started in this tab.")).to_be_visible()
    assert (kept(tab), handed_in) == ([], [])

    tab.get_by_role("button", name="Start again").click()
    expect(tab.get_by_role("button", name="Log in with")).to_be_visible()


def test_axe_finds_nothing_serious(tab: Page) -> None:
    tab.goto("/console/keys")
    expect(tab.get_by_role("button", name="Log in with")).to_be_visible()

    assert findings_in_both_schemes(tab) == []
