"""The catalog in the console: tools are found, looked at, tried, and picked for skills and clients."""

import asyncio
import json
import re
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from playwright.sync_api import Download, Page, Route, expect

from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.gateway import Gateway, Site

FORM_SERVER = {
    "command": sys.executable,
    "args": ["-I", "-S", str(Path(__file__).with_name("form_server.py"))],
}
PICKED = ["git.git_log", "memory.read_graph"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Five servers in as many categories. Writing a file needs an approval."""
    site = Site(tmp_path_factory.mktemp("site"))
    asked = {"per_tool": {"write_file": "always"}}
    site.place(
        {**reference.filesystem(site), "approval_policy": asked, "category": "Files", "tags": ["local"]},
        {**reference.memory(site), "category": "Knowledge"},
        {**reference.git(site), "category": "Code", "tags": ["local"]},
        site.server("form", stdio=FORM_SERVER, category="Forms"),
        site.stage("stage", "tools=echo,pid", category="Stage"),
    )
    return site


@pytest.fixture(autouse=True, scope="module")
def cataloged(gateway: Gateway) -> None:
    """The catalog follows what servers list aside."""
    wanted = {"Files", "Knowledge", "Code", "Forms", "Stage"}
    eventually(
        lambda: (
            {one["name"] for one in gateway.get("/api/catalog")["categories"] if one["toolCount"]} == wanted
        )
    )


@pytest.mark.requirement("004-05")
def test_tools_picked_across_packages_make_a_skill_and_a_url_with_exactly_them(
    tab: Page, gateway: Gateway, tmp_path: Path
) -> None:
    tab.goto("/console/catalog")
    tab.get_by_label("Search", exact=True).fill("commit log")
    tab.get_by_label("Pick git.git_log", exact=True).check()
    tab.get_by_label("Search", exact=True).fill("")
    tab.get_by_role("link", name="Knowledge").click()
    tab.get_by_role("link", name="memory").click()
    tab.get_by_label("Pick memory.read_graph").check()
    prices = gateway.get(f"/api/v1/mcp/scope?tools={','.join(PICKED)}")
    cost = f"{prices['tokens']} of {prices['registered_tokens']:,} tokens"
    expect(tab.get_by_role("region", name="Picked tools")).to_contain_text("2 tools picked, about " + cost)
    tab.get_by_role("link", name="Use picks").click()
    tab.get_by_label("ID", exact=True).fill("standup")
    tab.get_by_label("Display name").fill('What "happened"')
    manifests = [_save(tab, tmp_path, form) for form in ("TOML", "JSON")]
    tab.get_by_role("tab", name="URL and clients").click()
    url = tab.get_by_label("URL", exact=True).inner_text()
    tab.get_by_text("Cursor", exact=True).click()
    settings = json.loads(tab.get_by_label("configuration", exact=True).inner_text())

    for file in manifests:
        assert gateway.cli("skills", "check", str(file)).code == 0
    toml, text = (file.read_text("utf-8") for file in manifests)
    assert tomllib.loads(toml) == json.loads(text)
    assert tomllib.loads(toml) == {"id": "standup", "name": 'What "happened"', "tools": PICKED}
    assert url == gateway.url + f"/api/mcp?tools={','.join(PICKED)}"
    assert sorted(gateway.modern(url.removeprefix(gateway.url)).tools()) == PICKED
    assert settings["mcpServers"]["toolgate"]["url"] == url


@pytest.mark.requirement("004-08")
def test_packages_picked_whole_make_a_url_that_follows_them_next_to_a_frozen_list(
    tab: Page, gateway: Gateway
) -> None:
    tab.goto("/console/catalog")
    tab.get_by_role("link", name="Stage").click()
    tab.get_by_role("link", name="stage").click()
    whole = tab.get_by_label("Pick the whole package")
    tab.get_by_label("Pick stage.echo").check()
    expect(whole).to_be_checked(indeterminate=True)
    whole.check()
    expect(tab.get_by_label("Pick stage.pid")).to_be_checked()
    tab.get_by_role("main").get_by_role("link", name="Catalog").click()
    tab.get_by_role("link", name="Knowledge").click()
    tab.get_by_label("Pick package memory").check()
    seen = gateway.get("/api/v1/mcp/scope?servers=stage,memory")
    size = f"2 packages ({len(seen['tools'])} tools) picked, about {seen['tokens']:,} of"
    expect(tab.get_by_role("region", name="Picked tools")).to_contain_text(size)
    tab.get_by_role("link", name="Use picks").click()
    tab.get_by_role("tab", name="URL and clients").click()
    expect(tab.get_by_role("radio", name="Follows its packages")).to_be_checked()
    expect(tab.get_by_label("URL", exact=True)).to_contain_text("?servers=")
    following = tab.get_by_label("URL", exact=True).inner_text()
    tab.reload()
    expect(tab.get_by_label("URL", exact=True)).to_contain_text(following)
    expect(tab).to_have_url(re.compile(r"\?servers=stage%2Cmemory&tab=connect$"))
    tab.get_by_role("radio", name="Frozen list").click()
    expect(tab.get_by_label("URL", exact=True)).to_contain_text("?tools=")
    frozen = tab.get_by_label("URL", exact=True).inner_text()
    tab.get_by_text("Cursor", exact=True).click()
    settings = json.loads(tab.get_by_label("configuration", exact=True).inner_text())
    connected = gateway.cli("connect", "cursor", "--servers", "stage,memory", "--json").json
    written_out = gateway.cli("connect", "cursor", "--servers", "stage,memory", "--frozen", "--json").json

    assert following == gateway.url + "/api/mcp?servers=stage,memory"
    assert sorted(gateway.modern(following.removeprefix(gateway.url)).tools()) == sorted(seen["tools"])
    assert sorted(gateway.modern(frozen.removeprefix(gateway.url)).tools()) == sorted(seen["tools"])
    assert settings["mcpServers"]["toolgate"]["url"] == frozen
    assert connected["url"] == following
    assert set(written_out["url"].partition("=")[2].split(",")) == set(seen["tools"])
    expect(tab.get_by_text(written_out["note"])).to_be_visible()

    gateway.site.place(gateway.site.stage("stage", "tools=echo,pid,wait", category="Stage"))
    eventually(lambda: "stage.wait" in _listed_by_the_sdk(following), 60)

    assert sorted(_listed_by_the_sdk(following)) == sorted([*seen["tools"], "stage.wait"])
    assert sorted(_listed_by_the_sdk(frozen)) == sorted(seen["tools"])


def _listed_by_the_sdk(url: str) -> list[str]:
    """The tools that the official client sees at a URL."""

    async def listed() -> list[str]:
        async with Client(url) as client:
            return [one.name for one in (await client.list_tools()).tools]

    # In a thread: the browser's own loop runs in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, listed()).result()


def _save(tab: Page, directory: Path, form: str) -> Path:
    tab.get_by_text(form, exact=True).click()
    with tab.expect_download() as saving:
        tab.get_by_role("button", name="Save standup").click()
    download: Download = saving.value
    file = directory / download.suggested_filename
    download.save_as(file)
    return file


@pytest.mark.requirement("002-025")
def test_a_tool_is_looked_at_and_called_with_what_was_typed_into_the_form_of_its_schema(
    tab: Page, gateway: Gateway
) -> None:
    file = gateway.site.root / "files" / "read.me"
    tab.goto("/console/catalog?q=file&readOnly=true")
    expect(tab.get_by_role("article", name="filesystem.read_text_file")).to_be_visible()
    expect(tab.get_by_role("article", name="filesystem.edit_file")).to_be_hidden()
    tab.get_by_label("Read-only").uncheck()
    tab.get_by_role("link", name="edit_file", exact=True).click()
    takes = tab.get_by_role("region", name="Input schema")
    expect(takes.get_by_text("oldText")).to_be_visible()
    tab.get_by_role("tab", name="Try it").click()
    tab.get_by_role("button", name="Add to edits").click()
    tab.get_by_label("oldText").fill("Welcome.")
    tab.get_by_label("newText").fill("Come in.")
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_text("Required.")).to_be_visible()
    tab.get_by_label("path").fill(str(file))
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_role("region", name="Result")).to_contain_text("+Come in.")

    assert file.read_text("utf-8") == "Come in.\n"

    tab.get_by_text("JSON", exact=True).click()
    tab.get_by_label("Arguments", exact=True).fill('{"path": "/etc/hostname", "edits": []}')
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_role("region", name="Result").get_by_text("tool error")).to_be_visible()


def test_a_form_has_every_kind_of_field_and_turns_into_json_and_back(tab: Page) -> None:
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
    got = json.loads(tab.get_by_role("region", name="Result").get_by_label("text", exact=True).inner_text())

    assert got == typed
    assert got == {
        "where": {"lat": 4.5},
        "mode": "slow",
        "day": "2026-11-16",
        "tree": {"value": "root", "children": [{"value": "leaf"}]},
        "extra": {"k": [None]},
    }


def test_a_pending_call_links_to_its_approval(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/catalog/tool?name=filesystem.write_file&tab=try")
    tab.get_by_label("path").fill(str(gateway.site.root / "files" / "note"))
    tab.get_by_label("content").fill("hello")
    tab.get_by_role("button", name="Call tool").click()
    tab.get_by_role("alert").get_by_role("link", name="approval").click()
    expect(tab.get_by_role("button", name="Approve")).to_be_visible()

    (waiting,) = gateway.get("/admin/api/approvals?state=pending")["approvals"]
    expect(tab).to_have_url(f"/console/approvals/{waiting['approval_id']}")
    assert waiting["arguments"]["content"] == "hello"


def test_a_page_without_calls_says_so(tab: Page) -> None:
    def at_a_control(route: Route) -> None:
        me: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**me, "calls_tools": False})

    tab.route("**/api/v1/me", at_a_control)
    tab.goto("/console/catalog/tool?name=git.git_log&tab=try")
    expect(tab.get_by_role("alert")).to_contain_text("Calls are not available here")
    expect(tab.get_by_role("button", name="Call tool")).to_be_hidden()
