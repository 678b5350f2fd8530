"""Servers in the console: found, written, tried, changed next to others, imported and deleted."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.browser import tab_on
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Site
from tests.upstream.oauth.authority import OAuthWorld, world_aside

SERVERS = "/admin/api/mcp/servers"


@pytest.fixture(scope="module")
def world(world: Site) -> Site:
    """With a server that keeps a secret."""
    world.place(world.stage("keeper", stdio={"env": {"API_TOKEN": "kept-as-it-is"}}, tags=["safe"]))
    return world


def environment_of(gateway: Gateway, server_id: str) -> Any:
    """What the process of a stage server finds in its environment."""
    called = gateway.http.post(
        "/api/v1/mcp/call", json={"name": f"{server_id}.environment"}
    ).raise_for_status()
    return json.loads(called.json()["result"]["content"][0]["text"])


@pytest.mark.requirement("002-080")
def test_servers_are_found_by_what_they_are_and_the_view_can_be_passed_on(
    tab: Page, gateway: Gateway
) -> None:
    config = {
        "mcp.enabled": True,
        "mcp.allowed_server_ids": ["filesystem"],
        "mcp.default_server_ids": ["filesystem"],
        "mcp.tool_allowlist": ["filesystem/read_*"],
    }
    gateway.put("/admin/api/tasks/reading", {"config": config})
    tab.goto("/console/servers")
    rows = tab.get_by_role("table").get_by_role("row")
    expect(rows.filter(has_text="connected")).to_have_count(4)
    expect(rows.filter(has_text="safe")).to_contain_text("offered")
    for title in ("Server", "State", "Tools", "Calls, 24 h", "Updated", "Next"):
        expect(tab.get_by_role("columnheader", name=title, exact=True)).to_be_visible()
    expect(rows.filter(has_text="filesystem")).to_contain_text("stdio")
    tab.get_by_role("combobox", name="Tag").click()
    tab.get_by_role("option", name="safe").click()
    expect(rows.filter(has_text="connected")).to_have_count(1)
    tab.get_by_label("Find").fill("missing")
    expect(tab.get_by_role("heading", name="No servers match")).to_be_visible()

    expect(tab).to_have_url("/console/servers?tag=safe&q=missing")

    tab.goto("/console/servers?q=filesys")
    rows.filter(has_text="filesystem").get_by_role("link").first.press("Enter")
    expect(tab.get_by_label("the command", exact=True)).to_contain_text("server-filesystem/dist/index.js")
    tab.get_by_role("tab", name="Tools").click()
    expect(rows.filter(has_text="mcp__filesystem__write_file")).to_contain_text("filesystem.write_file")
    tab.get_by_role("combobox", name="Task").fill("reading")
    tab.get_by_role("option", name="reading").click()
    expect(rows.filter(has_text="write_file")).to_contain_text("not in the allowlist of the task")
    expect(rows.filter(has_text="read_text_file")).to_contain_text("yes")


@pytest.mark.requirement("002-081", "002-082")
def test_a_server_is_written_tried_and_saved(tab: Page, gateway: Gateway, world: Site) -> None:
    launch = world.stage("fresh")["stdio"]
    tab.goto("/console/servers")
    tab.get_by_role("link", name="New server").click()
    tab.get_by_role("button", name="All settings").click()
    tab.get_by_role("button", name="Test connection").click()
    expect(tab.get_by_text("enter the command to start")).to_be_visible()
    tab.get_by_role("textbox", name="ID", exact=True).fill("filesystem")
    tab.get_by_role("textbox", name="Command").fill(f"{launch['command']} {' '.join(launch['args'])}")
    tab.get_by_role("button", name="Split into command and arguments").click()
    expect(tab.get_by_text("duplicate server ID")).to_be_visible()
    tab.get_by_role("textbox", name="ID", exact=True).fill("fresh")
    tab.get_by_role("combobox", name="Inherited environment variables").fill("not a name")
    tab.get_by_role("combobox", name="Inherited environment variables").press("Enter")
    expect(tab.get_by_text("[0]: invalid environment variable name")).to_be_visible()
    tab.get_by_role("button", name="Remove not a name").click()
    tab.get_by_role("button", name=re.compile("^Tools")).click()
    tab.get_by_role("button", name="Allow all tools").click()
    tab.get_by_role("button", name="Test connection").click()
    expect(tab.get_by_role("status", name="Result of the test")).to_contain_text("Connection succeeded")

    assert "fresh" not in {one["server_id"] for one in gateway.get(SERVERS)["servers"]}

    tab.get_by_role("button", name="Review and save").click()
    asked = tab.get_by_role("dialog", name="Add this server")
    expect(asked).to_contain_text("added")
    asked.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("heading", name="fresh")).to_be_visible()
    expect(tab.get_by_text("connected").first).to_be_visible()

    saved = gateway.get(f"{SERVERS}/fresh")
    assert (saved["stdio"]["command"], saved["stdio"]["args"]) == (launch["command"], launch["args"])
    assert saved["allowed_tools"] == ["*"]

    tab.get_by_role("button", name="Delete").click()
    asked = tab.get_by_role("dialog", name="Delete")
    expect(asked.get_by_role("button", name="Delete")).to_be_disabled()
    asked.get_by_label("Name").fill("fresh")
    asked.get_by_role("button", name="Delete").click()
    expect(tab).to_have_url("/console/servers")
    assert "fresh" not in {one["server_id"] for one in gateway.get(SERVERS)["servers"]}


@pytest.mark.requirement("002-081")
def test_what_others_save_meanwhile_joins_what_was_typed_and_secrets_stay(
    tab: Page, gateway: Gateway
) -> None:
    before = gateway.get(f"{SERVERS}/keeper")
    tab.goto("/console/servers/keeper/edit")
    tab.get_by_role("button", name=re.compile("^Connection")).click()
    expect(tab.get_by_label("Value of variable 1")).to_have_value("***")
    tab.get_by_role("textbox", name="Display name").fill("Mine")
    gateway.put(f"{SERVERS}/keeper", {**before, "category": "Theirs"})
    tab.get_by_role("button", name="Load it, keep my edits").click()
    expect(tab.get_by_role("textbox", name="Category")).to_have_value("Theirs")
    expect(tab.get_by_role("textbox", name="Display name")).to_have_value("Mine")
    tab.get_by_role("link", name="Servers").first.click()
    tab.get_by_role("dialog", name="Leave without saving?").get_by_role("button", name="Stay").click()
    tab.get_by_role("button", name="Review and save").click()
    asked = tab.get_by_role("dialog", name="Save these changes")
    expect(asked).to_contain_text("display_name")
    asked.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("heading", name="Mine", level=1)).to_be_visible()

    saved = gateway.get(f"{SERVERS}/keeper")
    assert (saved["display_name"], saved["category"]) == ("Mine", "Theirs")
    assert environment_of(gateway, "keeper")["API_TOKEN"] == "kept-as-it-is"

    tab.get_by_role("tab", name="History").click()
    tab.get_by_role("button", name=f"Roll back to revision {before['revision']}").click()
    tab.get_by_role("button", name="Roll back", exact=True).click()
    eventually(lambda: gateway.get(f"{SERVERS}/keeper")["display_name"] == before["display_name"])


def test_a_file_of_another_program_is_taken_over_after_a_look_at_what_that_does(
    tab: Page, gateway: Gateway, world: Site
) -> None:
    launch = world.stage("any")["stdio"]
    servers = {"One": launch, "Two": launch, "Bad": {"command": "true", "env": {"X": "***"}}}
    text = json.dumps({"mcpServers": servers}) + " // as it is on file"
    tab.goto("/console/servers")
    tab.get_by_role("link", name="Import").click()
    tab.get_by_role("textbox", name="Definitions").fill(text[1:])
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("alert")).to_contain_text("neither JSON nor TOML")
    expect(tab.get_by_role("textbox", name="Definitions")).to_have_value(text[1:])
    tab.get_by_role("textbox", name="Definitions").fill(text)
    tab.get_by_role("button", name="Preview").click()
    found = tab.get_by_role("region", name="Definitions").get_by_role("row")
    expect(found.filter(has_text="bad")).to_contain_text("is the mask of a secret")
    tab.get_by_label("Select two").uncheck()
    expect(found.filter(has_text="two")).to_contain_text("skipped")
    tab.get_by_role("button", name="Import 1 server").click()
    expect(tab.get_by_role("heading", name="1 server was stored")).to_be_visible()

    assert {"one", "two", "bad"} & {one["server_id"] for one in gateway.get(SERVERS)["servers"]} == {"one"}

    tab.goto("/console/servers/one")
    tab.get_by_role("button", name="Delete").click()
    asked = tab.get_by_role("dialog", name="Delete server")
    expect(asked.get_by_role("button", name="Delete")).to_be_disabled()
    asked.get_by_label("Name").fill("one")
    asked.get_by_role("button", name="Delete").click()
    expect(tab.get_by_role("heading", name="Servers", exact=True)).to_be_visible()

    assert gateway.http.get(f"{SERVERS}/one").status_code == 404


def agreeing_at(world: OAuthWorld) -> Callable[[Route], None]:
    """The page of an authorization server, where someone agrees at once."""

    def agree(route: Route) -> None:
        url = route.request.url
        (back,) = parse_qs(urlsplit(url).query)["redirect_uri"]
        location = f"{back}?{urlencode(world.authority.negotiate(url))}"
        route.fulfill(status=302, headers={"location": location})

    return agree


def test_someone_logs_in_to_a_server_that_wants_it_and_out_again(browser: Browser, gateway: Gateway) -> None:
    with (
        world_aside(deadline_s=600) as there,
        tab_on(browser, gateway.url, friends=(there.authority.issuer,)) as tab,
    ):
        oauth = {"grant": "authorization_code", "client_id": "gateway"}
        http = {"url": there.serving.url, "oauth": oauth}
        gateway.put(
            f"{SERVERS}/there", {"transport": "streamable_http", "http": http, "allowed_tools": ["*"]}
        )
        tab.route(f"{there.authority.issuer}/authorize*", agreeing_at(there))
        tab.goto("/console/servers/there")
        expect(tab.get_by_text("No one has logged in", exact=True)).to_be_visible()
        expect(tab.get_by_label("the command to log in", exact=True)).to_have_text(
            "toolgate servers login there"
        )
        tab.get_by_role("button", name="Log in", exact=True).click()
        expect(tab.get_by_text(f"Logged in at {there.authority.issuer}")).to_be_visible()
        expect(tab).to_have_url(f"{gateway.url}/console/servers/there")
        eventually(lambda: gateway.health("there")["tools"] == 1)

        tab.get_by_role("button", name="Log out").click()
        expect(tab.get_by_text("No one has logged in", exact=True)).to_be_visible()
        tab.goto("/console/servers/-/login?code=theirs&state=another")
        expect(tab.get_by_text("This login was not started in this tab.")).to_be_visible()
        assert gateway.get(f"{SERVERS}/there")["login"] is None
        gateway.http.delete(f"{SERVERS}/there").raise_for_status()


def test_who_is_no_administrator_reads_the_record_and_changes_nothing(
    browser: Browser, gateway: Gateway
) -> None:
    made = gateway.http.post("/admin/api/keys", json={"key_id": "looks", "role": "viewer"}).raise_for_status()
    with tab_on(browser, gateway.url) as tab:
        tab.add_init_script(
            f"sessionStorage.setItem('toolgate.credential', {json.dumps(made.json()['secret'])})"
        )
        tab.goto("/console/servers/git/edit")
        expect(tab.get_by_text("only admins can change them")).to_be_visible()
        tab.get_by_role("button", name=re.compile("^Connection")).click()
        expect(tab.get_by_role("textbox", name="Command")).to_be_disabled()
        for name in ("Review and save", "Test connection", "Delete", "Choose tools"):
            expect(tab.get_by_role("button", name=name)).to_have_count(0)
        tab.goto("/console/servers")
        expect(tab.get_by_role("row").filter(has_text="git")).to_be_visible()
        expect(tab.get_by_role("link", name="New server")).to_have_count(0)
