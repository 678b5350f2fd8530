"""New servers in the console: pasted into one field, tested, their tools ticked, and saved."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.gateway import Gateway, Json, Site, running
from tests.upstream.oauth.authority import world_aside

SERVERS = "/admin/api/mcp/servers"
MOST_INTERACTIONS = 6
MOST_TABS = 80
SLOW = "#!/bin/sh\nexec {python} -c 'import sys, time; time.sleep(600)' {root}\n"
FAILING = """
import sys
print("2026-01-01 ERROR no database at db:5432", file=sys.stderr)
print("2026-01-01 INFO shutting down", file=sys.stderr)
sys.exit(1)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Without servers, and with an `npx` that never gets its packages."""
    site = Site(tmp_path_factory.mktemp("site"))
    npx = site.root / "bin" / "npx"
    npx.parent.mkdir()
    npx.write_text(SLOW.format(python=sys.executable, root=site.root), "utf-8")
    npx.chmod(0o755)
    return site


@pytest.fixture(scope="module")
def gateway(world: Site) -> Iterator[Gateway]:
    path = f"{world.root / 'bin'}:{os.environ['PATH']}"
    with running(world, environ={"PATH": path, "GIVEN": "of the gateway"}) as gateway:
        yield gateway


@dataclass
class Hands:
    """What someone does with a page, counted."""

    tab: Page
    count: int = 0

    def click(self, what: Locator) -> None:
        self.count += 1
        what.click()

    def paste(self, text: str) -> None:
        self.count += 1
        self.tab.evaluate("text => navigator.clipboard.writeText(text)", text)
        self.tab.keyboard.press("Control+V")

    def press(self, key: str) -> None:
        self.count += 1
        self.tab.keyboard.press(key)


def command_line(launch: Json) -> str:
    return shlex.join([launch["command"], *launch["args"]])


def field_of(tab: Page) -> Locator:
    return tab.get_by_label("Command, URL or configuration")


def result_of(tab: Page) -> Locator:
    return tab.get_by_role("status", name="Result of the test")


def server(gateway: Gateway, server_id: str) -> Any:
    return gateway.get(f"{SERVERS}/{server_id}")


def test_from_an_empty_gateway_to_a_first_offered_tool_in_six_interactions(
    tab: Page, gateway: Gateway
) -> None:
    hands = Hands(tab)
    tab.goto("/console/")
    hands.click(tab.get_by_role("navigation").get_by_role("link", name="Servers"))
    hands.click(tab.get_by_role("link", name="New server"))
    expect(field_of(tab)).to_be_focused()
    hands.paste(command_line(reference.on_node("server-everything", "stdio")))
    expect(tab.get_by_role("textbox", name="ID")).to_have_value("everything")
    assert gateway.get(SERVERS)["servers"] == []
    hands.press("Enter")
    tools = tab.get_by_role("region", name="Tools found")
    expect(tools.get_by_role("row").filter(has_text="echo").first).to_contain_text("Echoes back the input")
    expect(tools.get_by_label("Offer echo")).to_be_checked()
    expect(tools.get_by_label("Offer toggle-simulated-logging")).not_to_be_checked()
    expect(tools.get_by_role("status").first).to_contain_text("9 of 15 offered")
    assert findings_in_both_schemes(tab) == []
    hands.click(tab.get_by_role("button", name="Review and save"))
    plan = tab.get_by_role("dialog", name="Add this server")
    expect(plan).to_contain_text("Offers 9 tools to callers without a task; no task changes.")
    hands.click(plan.get_by_role("button", name="Save"))
    expect(tab).to_have_url(re.compile(r"/console/servers/everything(/tools)?$"))
    eventually(lambda: server(gateway, "everything")["offer"]["offered"] == 9)
    expect(tab.get_by_text("9 of 16 offered")).to_be_visible()

    assert hands.count <= MOST_INTERACTIONS
    assert "echo" in server(gateway, "everything")["allowed_tools"]
    sent = {"name": "everything.echo", "arguments": {"message": "first"}}
    assert "first" in gateway.http.post("/api/v1/mcp/call", json=sent).raise_for_status().text


def tab_to(tab: Page, what: Locator) -> None:
    """With the keyboard alone, forwards."""
    expect(what).to_be_visible()
    for _ in range(MOST_TABS):
        if what.evaluate("one => one === document.activeElement"):
            return
        tab.keyboard.press("Tab")
    expect(what).to_be_focused(timeout=1)


def test_a_server_is_added_by_keyboard_alone(tab: Page, gateway: Gateway, world: Site) -> None:
    tab.goto("/console/")
    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    tab.keyboard.press("Control+k")
    expect(tab.get_by_role("combobox", name="Search or run a command")).to_be_focused()
    tab.keyboard.type("add a server")
    tab.keyboard.press("Enter")
    expect(field_of(tab)).to_be_focused()
    launch = world.stage("stage", "tools=echo")["stdio"]
    tab.keyboard.insert_text(command_line(launch))
    tab_to(tab, tab.get_by_role("textbox", name="ID"))
    tab.keyboard.press("Control+a")
    tab.keyboard.type("typed")
    tab_to(tab, tab.get_by_role("button", name="Test", exact=True))
    tab.keyboard.press("Enter")
    tab_to(tab, tab.get_by_role("region", name="Tools found").get_by_label("Offer echo"))
    tab.keyboard.press("Space")
    tab_to(tab, tab.get_by_role("button", name="Review and save"))
    tab.keyboard.press("Enter")
    tab_to(tab, tab.get_by_role("dialog", name="Add this server").get_by_role("button", name="Save"))
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile(r"/console/servers/typed(/tools)?$"))

    assert server(gateway, "typed")["allowed_tools"] == ["echo"]


def test_what_a_command_lacks_is_asked_for_and_secrets_may_stay_with_the_gateway(
    tab: Page, gateway: Gateway, world: Site
) -> None:
    launch = world.stage("stage")["stdio"]
    taken = {"transport": "stdio", "stdio": launch, "enabled": False}
    gateway.put(f"{SERVERS}/taken", taken)
    line = f"TOKEN=<your token> PLACE='' API_KEY=written {command_line(launch)}"
    tab.goto("/console/servers/-/new")
    field_of(tab).fill(line)
    asked = tab.get_by_role("group", name="Variables and secrets")
    expect(asked).to_contain_text("2 missing")
    expect(tab.get_by_role("button", name="Test", exact=True)).to_be_disabled()
    asked.get_by_role("radiogroup", name="Where TOKEN comes from").get_by_text("Gateway's variable").click()
    asked.get_by_role("textbox", name="TOKEN").fill("GIVEN")
    asked.get_by_label("PLACE", exact=True).fill("here")
    expect(asked).to_contain_text("The record stores a secret that is written out")
    tab.get_by_role("textbox", name="ID").fill("taken")
    expect(tab.get_by_text("duplicate server ID")).to_be_visible()
    tab.get_by_role("textbox", name="ID").fill("asked")
    assert findings_in_both_schemes(tab) == []
    tab.get_by_role("button", name="Test", exact=True).click()
    tools = tab.get_by_role("region", name="Tools found")
    tools.get_by_role("group", name="Tick").get_by_role("button", name="None").click()
    tools.get_by_label("Offer environment").check()
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog", name="Add this server").get_by_role("button", name="Save").click()
    expect(tab).to_have_url(re.compile(r"/console/servers/asked(/tools)?$"))

    saved = server(gateway, "asked")
    assert (saved["stdio"]["env"]["TOKEN"], saved["stdio"]["env"]["PLACE"]) == ("${ENV:GIVEN}", "here")
    assert saved["allowed_tools"] == ["environment"]
    called = gateway.http.post("/api/v1/mcp/call", json={"name": "asked.environment"}).raise_for_status()
    found = json.loads(called.json()["result"]["content"][0]["text"])
    assert (found["TOKEN"], found["API_KEY"]) == ("of the gateway", "written")


def test_a_server_json_and_a_url_are_recognised_and_prompt_for_their_variables(tab: Page) -> None:
    variables = [
        {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True},
        {"name": "UNITS", "default": "metric"},
    ]
    package = {
        "registryType": "npm",
        "identifier": "@example/weather-mcp",
        "version": "1.2.0",
        "transport": {"type": "stdio"},
        "environmentVariables": variables,
    }
    tab.goto("/console/servers/-/new")
    field_of(tab).fill(json.dumps({"name": "io.example/weather", "version": "1.2.0", "packages": [package]}))
    shown = tab.get_by_role("status", name="Recognized")
    expect(shown).to_contain_text("server.json")
    expect(shown).to_contain_text("npx -y @example/weather-mcp@1.2.0")
    expect(tab.get_by_role("textbox", name="ID")).to_have_value("weather")
    asked = tab.get_by_role("group", name="Variables and secrets")
    expect(asked.get_by_role("textbox", name="WEATHER_KEY")).to_have_value("WEATHER_KEY")
    field_of(tab).fill("https://mcp.example.com/mcp?key=<key>")
    expect(shown).to_contain_text("over streamable HTTP")
    expect(asked).to_contain_text("1 missing")
    field_of(tab).fill("npx 'open")
    expect(tab.get_by_text("A quote is not closed.")).to_be_visible()
    field_of(tab).fill('{"mcpServers": {')
    expect(tab.get_by_role("alert")).to_contain_text("the document is not JSON")
    expect(field_of(tab)).to_have_value('{"mcpServers": {')
    field_of(tab).fill("npx -y @scope/thing --flag")
    tab.get_by_role("button", name="All settings").click()
    expect(tab.get_by_role("textbox", name="ID", exact=True)).to_have_value("thing")


def test_an_endpoint_that_requires_a_login_is_saved_as_such_and_says_so(
    browser: Browser, gateway: Gateway
) -> None:
    with (
        world_aside(deadline_s=600) as there,
        tab_on(browser, gateway.url, friends=(there.authority.issuer,)) as tab,
    ):
        tab.goto("/console/servers/-/new")
        field_of(tab).fill(there.serving.url)
        tab.get_by_role("textbox", name="ID").fill("there")
        field_of(tab).press("Enter")
        expect(result_of(tab)).to_contain_text("401")
        tab.get_by_role("button", name="Save, and log in with OAuth").click()
        tab.get_by_role("dialog", name="Add this server").get_by_role("button", name="Save").click()
        expect(tab).to_have_url(re.compile(r"/console/servers/there(/tools)?$"))
        expect(tab.get_by_text("No one has logged in", exact=True)).to_be_visible()
        tab.goto("/console/servers")
        row = tab.get_by_role("row").filter(has_text="there")
        expect(row).to_contain_text("needs login")
        expect(row.get_by_role("link", name="Log in")).to_be_visible()
        gateway.http.delete(f"{SERVERS}/there").raise_for_status()


def test_a_slow_start_says_what_it_waits_for_and_can_be_cancelled(
    tab: Page, gateway: Gateway, world: Site
) -> None:
    tab.goto("/console/servers/-/new")
    field_of(tab).fill("npx -y @example/slow")
    field_of(tab).press("Enter")
    expect(result_of(tab)).to_contain_text("npx downloads packages first")
    eventually(lambda: sleepers(world) > 0)
    tab.get_by_role("button", name="Cancel the test").click()
    expect(result_of(tab)).to_be_empty()
    expect(field_of(tab)).to_have_value("npx -y @example/slow")
    eventually(lambda: sleepers(world) == 0)

    launch = {"command": "npx", "args": ["-y", "@example/slow"]}
    gateway.put(f"{SERVERS}/slow", {"transport": "stdio", "stdio": launch, "allowed_tools": ["*"]})
    field_of(tab).fill("")
    tab.goto("/console/servers")
    row = tab.get_by_role("row").filter(has_text="slow")
    expect(row).to_contain_text("starting (downloading packages)")
    gateway.http.delete(f"{SERVERS}/slow").raise_for_status()


def sleepers(world: Site) -> int:
    """The processes of the `npx` of this site."""
    return sum("time.sleep" in " ".join(one.info["cmdline"] or ()) for one in world.processes())


def test_a_failed_start_shows_its_cause_in_full_width_and_the_next_step(tab: Page, gateway: Gateway) -> None:
    launch = {"command": sys.executable, "args": ["-c", FAILING]}
    gateway.put(f"{SERVERS}/broken", {"transport": "stdio", "stdio": launch, "allowed_tools": ["*"]})
    tab.goto("/console/servers")
    row = tab.get_by_role("row").filter(has_text="broken")
    expect(row).to_contain_text("failed")
    cause = row.get_by_text("ERROR no database at db:5432")
    expect(cause).to_be_visible()
    expect(row).not_to_contain_text("shutting down")
    box = cause.bounding_box()
    assert box is not None
    assert box["width"] > 200
    assert findings_in_both_schemes(tab) == []
    row.get_by_role("link", name="Open output").click()
    expect(tab.get_by_role("heading", name="It does not start")).to_have_count(0)
    expect(tab.get_by_text("It does not start")).to_be_visible()
    expect(tab.get_by_label("stderr", exact=True)).to_contain_text("shutting down")
    expect(tab.get_by_label("stderr", exact=True)).to_be_in_viewport()


def test_several_servers_are_previewed_in_place_and_nothing_is_replaced_unasked(
    tab: Page, gateway: Gateway, world: Site
) -> None:
    launch = world.stage("any")["stdio"]
    gateway.put(f"{SERVERS}/kept", {"transport": "stdio", "stdio": launch, "display_name": "Mine"})
    tab.goto("/console/servers/-/new")
    content = {"kept": {"command": "true"}, "My Tools": {**launch, "env": {}}}
    field_of(tab).fill(json.dumps({"mcpServers": content}))
    rows = tab.get_by_role("region", name="Definitions").get_by_role("row")
    expect(rows.filter(has_text="my-tools")).to_contain_text("in the file: My Tools")
    expect(rows.filter(has_text="A server with this ID exists")).to_contain_text("stdio.command")
    expect(tab.get_by_label("Select kept")).not_to_be_checked()
    expect(tab.get_by_role("region", name="Plan")).to_contain_text("Offers no tools: none is allowed")
    tab.get_by_role("button", name="Import 1 server").click()
    stored = tab.get_by_role("region", name="Imported servers").get_by_role("row").filter(has_text="my-tools")
    expect(stored).to_contain_text("no tool is allowed: choose tools")

    assert server(gateway, "kept")["display_name"] == "Mine"
    assert server(gateway, "my-tools")["offer"]["offered"] == 0

    stored.get_by_role("link", name="choose tools").first.click()
    chosen = tab.get_by_role("region", name="Choose tools")
    chosen.get_by_label("Offer environment").check()
    chosen.get_by_role("button", name="Review and save").click()
    plan = tab.get_by_role("dialog", name="Save these changes")
    expect(plan).to_contain_text("my-tools/environment")
    plan.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("button", name="Choose tools")).to_be_visible()
    eventually(lambda: server(gateway, "my-tools")["offer"]["offered"] == 1)
    tab.goto("/console/servers?offered=none")
    expect(tab.get_by_role("row").filter(has_text="kept")).to_contain_text("no tool is allowed")
    expect(tab.get_by_role("row").filter(has_text="my-tools")).to_have_count(0)
