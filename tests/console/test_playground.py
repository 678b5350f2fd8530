"""The playground: tools are found, called with a form, and their calls are copied as code that runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.console.browser import findings_in_both_schemes, tab_on
from tests.node import node
from tests.scenarios import reference
from tests.scenarios.chat import put_task
from tests.scenarios.gateway import Gateway, Site

HERE = Path(__file__).parent
RUN = {
    "curl": ["bash", "-c"],
    "Python": [sys.executable, "-W", "ignore", "-c"],
    "TypeScript": [node(), "--input-type=module-typescript", "-e"],
}


def own_server(name: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(HERE / name)]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four servers. Writing a file needs an approval."""
    site = Site(tmp_path_factory.mktemp("site"))
    asked = {"per_tool": {"write_file": "always"}}
    site.place(
        {**reference.filesystem(site), "approval_policy": asked},
        reference.git(site),
        site.server("form", stdio=own_server("form_server.py")),
        site.server("shop", stdio=own_server("picture_server.py")),
    )
    return site


@pytest.fixture(autouse=True, scope="module")
def tasks(gateway: Gateway) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["git"], "mcp.tool_allowlist": ["git_log"]}
    put_task(gateway, "review", config)


def result_of(tab: Page) -> Locator:
    return tab.get_by_role("region", name="Result", exact=True)


def test_a_tool_is_found_by_words_server_and_task_and_the_address_says_which(tab: Page) -> None:
    tab.goto("/console/playground")
    tools = tab.get_by_role("region", name="Tools found").locator("tbody").get_by_role("row")
    tab.get_by_label("Find").fill("commit log")
    expect(tools.first).to_contain_text("git.git_log")
    tab.get_by_label("Find").fill("")
    tab.get_by_role("combobox", name="Server").click()
    tab.get_by_role("option", name="shop").click()
    expect(tools).to_have_count(3)
    tab.get_by_role("button", name="Remove filter Server").click()
    tab.get_by_role("combobox", name="Task").click()
    tab.get_by_role("option", name="review").click()
    expect(tools).to_have_count(1)
    assert findings_in_both_schemes(tab) == []

    tools.first.get_by_role("link").click()
    expect(tab.get_by_role("heading", name="git.git_log")).to_be_visible()
    expect(tab).to_have_url(re.compile(r"/console/playground\?tool=git\.git_log&task=review$"))
    tab.get_by_role("link", name="Another tool").click()
    expect(tools).to_have_count(1)
    tab.goto("/console/playground?tool=shop.nothing")
    expect(tab.get_by_role("heading", name="Tool not found")).to_be_visible()


def test_a_form_has_every_kind_of_field_and_turns_into_json_and_back(tab: Page) -> None:
    # An address of the console before it had the playground.
    tab.goto("/console/catalog/tool?name=form.fill&tab=try")
    tab.get_by_role("combobox", name="Variant").click()
    tab.get_by_role("option", name="Point").click()
    tab.get_by_label("lat").fill("95")
    expect(tab.get_by_text("Must be at most 90.")).to_be_visible()
    tab.get_by_label("lat").fill("4.50")
    tab.get_by_role("combobox", name="mode").click()
    tab.get_by_role("option", name="slow").click()
    tab.get_by_label("day").fill("2026-11-16")
    tab.get_by_label("Give tree").check()
    tab.get_by_label("value").fill("root")
    tab.get_by_role("button", name="Add to children").click()
    tab.get_by_label("value").nth(1).fill("leaf")
    tab.get_by_label("extra").fill('{"k": [null]}')
    tab.get_by_text("JSON", exact=True).click()
    typed = json.loads(tab.get_by_label("Arguments", exact=True).input_value())
    tab.get_by_text("Form", exact=True).click()
    tab.get_by_role("button", name="Call tool").click()
    got = json.loads(result_of(tab).get_by_label("text", exact=True).inner_text())

    assert got == typed
    assert got == {
        "where": {"lat": 4.5},
        "mode": "slow",
        "day": "2026-11-16",
        "tree": {"value": "root", "children": [{"value": "leaf"}]},
        "extra": {"k": [None]},
    }


def test_examples_fill_what_is_blank_and_nothing_typed_is_lost_on_the_way(tab: Page) -> None:
    tab.goto("/console/playground?tool=shop.look_up")
    expect(tab.get_by_text("Of the name.")).to_be_visible()
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_label("words")).to_be_focused()
    tab.get_by_label("limit").fill("7")
    tab.get_by_role("button", name="Fill in examples").click()
    expect(tab.get_by_label("words")).to_have_value("tea")
    expect(tab.get_by_label("limit")).to_have_value("7")
    expect(tab.get_by_role("button", name="Fill in examples")).to_be_disabled()
    tab.get_by_role("link", name="Definition").click()
    tab.get_by_role("link", name="Try it").click()
    expect(tab.get_by_label("words")).to_have_value("tea")
    tab.get_by_text("JSON", exact=True).click()
    field = tab.get_by_label("Arguments", exact=True)
    field.fill('{"limit": 12345678901234567890')
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_text("Invalid JSON")).to_be_visible()
    field.fill('{"words": "x", "limit": 12345678901234567890}')
    expect(tab.get_by_text("too large to send exactly")).to_be_visible()
    field.fill('{"words": "x", "more": 1}')
    tab.get_by_text("Form", exact=True).click()
    expect(tab.get_by_text("The form cannot show all of these arguments.")).to_be_visible()
    expect(field).to_have_value('{"words": "x", "more": 1}')


def test_a_result_is_rendered_with_its_cost_and_the_record_of_the_call(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/playground?tool=shop.look_up")
    tab.get_by_label("words").fill("tea")
    tab.get_by_label("words").press("Control+Enter")
    tab.get_by_role("button", name="Call tool").press("Enter")
    result = result_of(tab)
    expect(result.get_by_text("success", exact=True)).to_be_visible()
    expect(result.get_by_label("text", exact=True).first).to_have_text("Two products.")
    expect(result.get_by_role("img", name="From the tool")).to_have_count(1)
    expect(result).to_contain_text("image of unsupported type (image/svg+xml)")
    expect(result).to_contain_text("https://example.org/tea")
    expect(result.get_by_label("resource", exact=True)).to_have_text("Boil water.")
    table = result.get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["id", "name", "tags", "price"])
    expect(table.get_by_role("row").nth(1)).to_contain_text('["hot"]')
    # Of the links, one is of the console; none is of the tool.
    expect(result.get_by_role("link")).to_have_text(["Audit record"])
    assert findings_in_both_schemes(tab) == []

    result.get_by_text("JSON", exact=True).click()
    shown = json.loads(result.get_by_label("structured content", exact=True).inner_text())
    assert shown["result"][1] == {"id": 2, "name": "Black tea", "price": 5.5}
    expect(result.get_by_role("link", name="Audit record")).to_have_attribute(
        "href", re.compile(r"/console/activity/\w+")
    )
    (event,) = gateway.get("/admin/api/audit?tool=look_up&type=call&limit=1")["events"]
    expect(result).to_contain_text(f"about {event['result_tokens']:,} tokens")
    result.get_by_role("link", name="Audit record").click()
    expect(tab).to_have_url(f"/console/activity/{event['event_id']}")


@pytest.mark.parametrize("has_key", [False, True], ids=["local", "with a key"])
def test_the_call_as_code_runs_as_it_is_copied(
    browser: Browser, gateway: Gateway, tmp_path: Path, has_key: bool
) -> None:
    sent = {"where": 'it\'s "here" $HOME \\ é\n', "mode": "fast", "force": True, "extra": {"k": [None, 1.5]}}
    environ = {name: value for name, value in os.environ.items() if name != "TOOLGATE_KEY"}
    with tab_on(browser, gateway.url) as tab:
        if has_key:
            made = gateway.http.post("/admin/api/keys", json={"key_id": "coder", "role": "agent"}).json()
            tab.add_init_script(f"sessionStorage.setItem('toolgate.credential', '{made['secret']}')")
            environ["TOOLGATE_KEY"] = made["secret"]
        tab.goto("/console/playground?tool=form.fill")
        tab.get_by_text("JSON", exact=True).click()
        tab.get_by_label("Arguments", exact=True).fill(json.dumps(sent))
        panel = tab.get_by_role("region", name="Call as code")
        codes = {}
        for language in RUN:
            panel.get_by_role("radiogroup").get_by_text(language).click()
            panel.get_by_role("button", name=f"Copy {language}").click()
            codes[language] = tab.evaluate("navigator.clipboard.readText()")
    got = {}
    for language, code in codes.items():
        ran = subprocess.run(
            [*RUN[language], code],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        printed = json.loads(ran.stdout)
        got[language] = json.loads(printed.get("result", printed)["content"][0]["text"])

    assert got == dict.fromkeys(RUN, sent)
    assert all(("TOOLGATE_KEY" in code) == has_key for code in codes.values())


def test_a_call_that_needs_approval_is_approved_and_made_again(tab: Page, gateway: Gateway) -> None:
    note = gateway.site.root / "files" / "note"
    tab.goto("/console/playground?tool=filesystem.write_file")
    tab.get_by_label("path").fill(str(note))
    tab.get_by_label("content").fill("hello")
    tab.get_by_role("button", name="Call tool").click()
    expect(result_of(tab)).to_contain_text("This call needs approval")
    (waiting,) = gateway.get("/admin/api/approvals?state=pending")["approvals"]
    result_of(tab).get_by_role("link", name="Open the approval").click()
    expect(tab).to_have_url(f"/console/approvals/{waiting['approval_id']}")
    tab.get_by_role("button", name="Approve").click()
    expect(tab.get_by_role("button", name="Approve")).to_be_hidden()
    tab.go_back()
    expect(result_of(tab)).to_contain_text("The call is approved")
    expect(tab.get_by_label("content")).to_have_value("hello")
    result_of(tab).get_by_role("button", name="Call again").click()
    expect(result_of(tab).get_by_text("success", exact=True)).to_be_visible()

    assert note.read_text("utf-8") == "hello"
    assert waiting["arguments"]["content"] == "hello"


def test_a_call_that_fails_says_what_to_do(tab: Page) -> None:
    tab.goto("/console/playground?tool=shop.fail&task=review")
    expect(tab.get_by_role("alert").filter(has_text="The task does not have this tool")).to_be_visible()
    tab.get_by_role("button", name="Call tool").click()
    expect(result_of(tab).get_by_role("link", name="Audit record")).to_be_visible()
    result_of(tab).get_by_role("link", name="Why?").click()
    expect(tab).to_have_url(re.compile(r"/console/scope\?why=shop\.fail&task=review"))
    tab.go_back()
    tab.get_by_role("combobox", name="Task").click()
    tab.get_by_role("option", name="None").click()
    tab.get_by_role("button", name="Call tool").click()
    expect(result_of(tab).get_by_text("tool error")).to_be_visible()
    expect(result_of(tab)).to_contain_text("out of tea")


def test_a_running_call_can_be_stopped(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/playground?tool=shop.wait")
    tab.get_by_role("button", name="Call tool").click()
    tab.get_by_role("button", name="Stop").click()
    expect(tab.get_by_role("button", name="Stop")).to_be_hidden()
    expect(result_of(tab)).to_be_hidden()
    tab.goto("/console/activity?tool=wait&type=call")
    expect(tab.get_by_text("cancelled").first).to_be_visible()


def test_a_control_plane_without_calls_says_that_nodes_make_them(tab: Page) -> None:
    def at_a_control(route: Route) -> None:
        me: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**me, "calls_tools": False})

    tab.route("**/api/v1/me", at_a_control)
    for path in ("", "?tool=git.git_log", "/chat"):
        tab.goto(f"/console/playground{path}")
        expect(tab.get_by_role("alert")).to_contain_text("Nodes make the calls")
    expect(tab.get_by_role("button", name="Send")).to_be_hidden()
    tab.goto("/console/playground?tool=git.git_log")
    expect(tab.get_by_role("region", name="Call as code")).to_contain_text("git.git_log")
    expect(tab.get_by_role("button", name="Call tool")).to_be_hidden()


def on_a_phone(browser: Browser, gateway: Gateway, look: Callable[[Page], None]) -> None:
    with tab_on(browser, gateway.url, viewport={"width": 390, "height": 800}) as tab:
        look(tab)
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_on_a_phone_no_page_of_the_playground_is_wider_than_the_screen(
    browser: Browser, gateway: Gateway
) -> None:
    def look(tab: Page) -> None:
        tab.goto("/console/playground?tool=shop.look_up")
        tab.get_by_label("words").fill("tea")
        tab.get_by_role("button", name="Call tool").click()
        expect(result_of(tab).get_by_role("table")).to_be_visible()

    on_a_phone(browser, gateway, look)
