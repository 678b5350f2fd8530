"""The catalog in the console: tools are found, looked at, tried, and picked for skills and clients."""

import asyncio
import json
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mcp import Client
from playwright.sync_api import Download, Page, expect

from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.gateway import Gateway, Site

PICKED = ["git.git_log", "memory.read_graph"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four servers in as many categories."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.place(
        {**reference.filesystem(site), "category": "Files", "tags": ["local"]},
        {**reference.memory(site), "category": "Knowledge"},
        {**reference.git(site), "category": "Code", "tags": ["local"]},
        site.stage("stage", "tools=echo,pid", category="Stage"),
    )
    return site


@pytest.fixture(autouse=True, scope="module")
def cataloged(gateway: Gateway) -> None:
    """The catalog follows what servers list aside."""
    wanted = {"Files", "Knowledge", "Code", "Stage"}
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
    tab.get_by_label("Find").fill("commit log")
    tab.get_by_label("Pick git.git_log", exact=True).check()
    tab.get_by_label("Find").fill("")
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
    tab.get_by_role("link", name="Try it").click()
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
    expect(tab.get_by_role("region", name="Result", exact=True).get_by_text("tool error")).to_be_visible()


def test_picked_tools_become_a_task_with_its_plan(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/catalog/picked?servers=memory&tools=git.git_log,filesystem.read_text_file")
    tab.get_by_role("link", name="Make a task").click()
    tab.get_by_label("Name", exact=True).fill("standup")
    plan = tab.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("+git/git_log")
    expect(plan).not_to_contain_text("git_diff")
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(tab.get_by_role("heading", name="standup")).to_be_visible()
    listed = set(gateway.modern("/api/mcp/t/standup").tools())
    config = gateway.get("/admin/api/tasks/standup")["config"]

    assert {"git.git_log", "filesystem.read_text_file", "memory.read_graph"} < listed
    assert {one for one in listed if not one.startswith("memory.")} == {
        "git.git_log",
        "filesystem.read_text_file",
    }
    # A package that was picked whole is followed.
    assert json.loads(config["mcp.tool_allowlist"])[-1] == "memory/*"
