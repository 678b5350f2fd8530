"""Hand-over: a key, a task and a client's settings in one step, and nothing lost where a step fails."""

import json
from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Site, running

PHONE = {"width": 390, "height": 800}
KEYS = "**/admin/api/keys"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("hand-over"))
    site.place(site.stage("one"), site.stage("two"))
    with running(site) as found:
        config = {"mcp.enabled": True, "mcp.default_server_ids": ["one"]}
        found.put("/admin/api/tasks/review", {"display_name": "Code review", "config": config})
        eventually(lambda: all(found.health(one)["tools"] for one in ("one", "two")))
        yield found


def tools_of(gateway: Gateway, secret: str, task: str) -> list[str]:
    bearer = {"authorization": f"Bearer {secret}"}
    shown = gateway.http.get(f"/api/v1/mcp/tools?task={task}", headers=bearer).raise_for_status().json()
    return [one["name"] for one in shown["tools"]]


def secret_in(text: str) -> str:
    (found,) = {word.rstrip(" (") for word in text.split() if word.startswith("tg_") and '"' not in word}
    return found


def fill_in(tab: Page, who: str, task: str = "review") -> None:
    tab.get_by_role("textbox", name="Person or program").fill(who)
    tab.get_by_role("combobox", name="Task", exact=True).fill(task)
    tab.get_by_role("option", name=task).click()


def test_a_colleague_gets_key_task_and_settings_in_one_text(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/keys")
    tab.get_by_role("link", name="Hand over access").first.click()
    create = tab.get_by_role("button", name="Create and hand over")
    create.click()
    expect(tab.get_by_text("Enter who gets the key")).to_be_visible()
    expect(tab.get_by_text("Choose a task.")).to_be_visible()
    fill_in(tab, "Ada Lovelace")
    expect(tab.get_by_role("textbox", name="Name of the key")).to_have_value("ada-lovelace")
    effect = tab.get_by_role("region", name="What they get")
    expect(effect).to_contain_text("tools offered, about")
    expect(effect).to_contain_text("This gateway is reachable on its own machine only")
    assert findings_in_both_schemes(tab) == []
    create.click()
    text = tab.get_by_label("text to send", exact=True)
    expect(text).to_contain_text("Toolgate access for Ada Lovelace: task review")
    secret = secret_in(text.inner_text())
    for words in (
        f"URL: {gateway.url}/api/mcp/t/review",
        "claude mcp add --transport http review",
        f'"Authorization: Bearer {secret}"',
        "toolgate keys delete ada-lovelace",
        f"{gateway.url}/console/keys/ada-lovelace",
    ):
        expect(text).to_contain_text(words)
    offered = {one["name"] for one in gateway.get("/api/v1/mcp/tools?task=review")["tools"]}
    made = gateway.get("/admin/api/keys/ada-lovelace")

    assert set(tools_of(gateway, secret, "review")) == offered
    assert (made["role"], made["ceiling"]["tasks"], made["default_task"]) == ("agent", ["review"], "review")
    assert made["budgets"] == {"calls_per_minute": 60, "calls_per_day": 1000}
    assert made["expires_at_s"] is not None


def test_the_text_is_copied_at_once_for_any_client_and_without_the_key_if_wanted(
    browser: Browser, tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/keys/-/hand-over?task=review")
    tab.get_by_role("textbox", name="Person or program").fill("Grace")
    tab.get_by_role("button", name="Create and hand over").click()
    text = tab.get_by_label("text to send", exact=True)
    secret = secret_in(text.inner_text())
    tab.get_by_role("radiogroup", name="Client").get_by_text("Cursor").click()
    link = next(one.strip() for one in text.inner_text().splitlines() if "cursor://" in one)
    entry = json.loads(b64decode(parse_qs(urlsplit(link).query)["config"][0]))
    assert entry == {
        "url": f"{gateway.url}/api/mcp/t/review",
        "headers": {"Authorization": f"Bearer {secret}"},
    }
    tab.get_by_role("button", name="Copy everything").click()
    expect(tab.get_by_role("button", name="Copied", exact=True)).to_be_visible()
    assert tab.evaluate("navigator.clipboard.readText()") == text.inner_text()
    tab.get_by_label("The key is in the text").uncheck(force=True)
    expect(text).not_to_contain_text(secret)
    expect(tab.get_by_label("key", exact=True)).to_have_text(secret)
    assert findings_in_both_schemes(tab) == []

    tab.get_by_role("link", name="Servers").click()
    expect(tab.get_by_role("dialog", name="Is the text sent?")).to_be_visible()
    tab.get_by_role("button", name="Stay").click()
    tab.get_by_role("button", name="Done").click()
    expect(tab.get_by_role("heading", name="grace")).to_be_visible()
    assert secret not in tab.content()

    with tab_on(browser, gateway.url, viewport=PHONE) as phone:
        phone.goto("/console/keys/-/hand-over?task=review")
        expect(phone.get_by_role("button", name="Create and hand over")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_picked_tools_become_a_task_and_what_was_typed_stays_meanwhile(tab: Page, gateway: Gateway) -> None:
    first, *_ = gateway.get("/api/v1/mcp/tools?servers=two")["tools"]
    tab.goto("/console/keys/-/hand-over")
    tab.get_by_role("textbox", name="Person or program").fill("The bot")
    tab.get_by_role("radiogroup", name="Tools of").get_by_text("Picked tools").click()
    tab.get_by_role("link", name="Pick tools in the catalog").click()
    expect(tab.get_by_role("heading", name="Catalog", exact=True)).to_be_visible()
    tab.evaluate(
        "([url]) => { history.pushState(null, '', url); dispatchEvent(new PopStateEvent('popstate')); }",
        [f"/console/catalog/picked?tools={first['name']}"],
    )
    tab.get_by_role("link", name="Hand over").click()
    expect(tab.get_by_role("textbox", name="Person or program")).to_have_value("The bot")
    expect(tab.get_by_role("textbox", name="Name of the new task")).to_have_value("the-bot-tools")
    effect = tab.get_by_role("region", name="What they get")
    expect(effect).to_contain_text("1 of")
    expect(effect).to_contain_text("added")
    tab.get_by_role("button", name="Create and hand over").click()
    text = tab.get_by_label("text to send", exact=True)
    expect(text).to_contain_text("task the-bot-tools, 1 tool")

    assert tools_of(gateway, secret_in(text.inner_text()), "the-bot-tools") == [first["name"]]
    tab.get_by_role("button", name="Done").click()


def test_if_the_key_fails_after_the_task_the_page_says_so_and_goes_on_from_there(
    tab: Page, gateway: Gateway
) -> None:
    first, *_ = gateway.get("/api/v1/mcp/tools?servers=two")["tools"]
    failure = {"error": {"code": "storage_failed", "message": "cannot write", "hint": "", "data": {}}}

    def fail(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=507, json=failure)
        else:
            route.continue_()

    tab.route(KEYS, fail)
    tab.goto(f"/console/keys/-/hand-over?tools={first['name']}")
    tab.get_by_role("textbox", name="Person or program").fill("Bob")
    expect(tab.get_by_role("region", name="What they get")).to_contain_text("added")
    tab.get_by_role("button", name="Create and hand over").click()
    expect(tab.get_by_text("The task is there, the key is not ready")).to_be_visible()
    expect(tab.get_by_text("The key was not created.")).to_be_visible()
    expect(tab.get_by_role("textbox", name="Person or program")).to_have_value("Bob")
    expect(tab.get_by_role("combobox", name="Task", exact=True)).to_have_value("bob-tools")
    tab.unroute(KEYS)
    tab.get_by_role("button", name="Try again").click()
    expect(tab.get_by_label("text to send", exact=True)).to_contain_text("task bob-tools")
    tab.get_by_role("button", name="Done").click()


def test_a_key_whose_secret_was_lost_on_the_way_is_revoked_and_made_again(
    tab: Page, gateway: Gateway
) -> None:
    def lose(route: Route) -> None:
        if route.request.method == "POST":
            route.fetch()
            route.abort()
        else:
            route.continue_()

    tab.route(KEYS, lose)
    tab.goto("/console/keys/-/hand-over?task=review")
    tab.get_by_role("textbox", name="Person or program").fill("Eve")
    tab.get_by_role("button", name="Create and hand over").click()
    expect(tab.get_by_text("its secret was lost on the way")).to_be_visible()
    tab.unroute(KEYS)
    tab.get_by_role("button", name="Revoke the lost key").click()
    tab.get_by_role("button", name="Try again").click()
    text = tab.get_by_label("text to send", exact=True)
    expect(text).to_contain_text("toolgate keys delete eve")

    assert tools_of(gateway, secret_in(text.inner_text()), "review") != []
    tab.get_by_role("button", name="Done").click()


def test_who_is_no_admin_hands_nothing_over(browser: Browser, gateway: Gateway) -> None:
    made = gateway.http.post(
        "/admin/api/keys", json={"key_id": "reader", "role": "viewer"}
    ).raise_for_status()
    with tab_on(browser, gateway.url) as tab:
        kept = json.dumps(made.json()["secret"])
        tab.add_init_script(f"sessionStorage.setItem('toolgate.credential', {kept})")
        tab.goto("/console/keys/-/hand-over")
        expect(tab.get_by_role("heading", name="Only admins can create keys")).to_be_visible()
