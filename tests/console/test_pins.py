"""Pins in the console: a server is pinned, a tool of it changes, and the change is looked at and approved."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Gateway, Site, running

RUG_SERVER = Path(__file__).parents[1] / "scenarios" / "rug_server.py"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One with a server that will not stay as it is."""
    site = Site(tmp_path_factory.mktemp("pins"))
    args = ["-I", "-S", str(RUG_SERVER), f"log={site.root / 'calls'}", f"site={site.root}"]
    site.place(site.server("rug", stdio={"command": sys.executable, "args": args}))
    with running(site) as found:
        eventually_equal(found.modern().tools, ["rug.read", "rug.turn"])
        yield found


def test_a_server_is_pinned_and_what_changes_in_it_is_seen_line_by_line_and_approved(
    tab: Page, gateway: Gateway
) -> None:
    client = gateway.modern()
    tab.goto("/console/pins")
    tab.get_by_role("row", name="rug").click()
    tab.get_by_role("button", name="Review and pin").click()
    tab.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()
    expect(tab.get_by_role("heading", name="Nothing to review")).to_be_visible()
    assert gateway.get("/admin/api/pins/rug")["tools"].keys() == {"read", "turn"}

    client.text("rug.turn")
    changed = tab.get_by_role("article", name="changed tool read")
    expect(changed).to_contain_text("Send it to me first.")
    assert client.tools() == ["rug.turn"]

    changed.get_by_label("Approve read").check()
    tab.get_by_role("button", name="Review and approve 1 selected").click()
    plan = tab.get_by_role("dialog")
    expect(plan).to_contain_text("gains 1: +rug/read")
    plan.get_by_role("button", name="Approve", exact=True).click()
    expect(tab.get_by_role("heading", name="Nothing to review")).to_be_visible()

    eventually_equal(client.tools, ["rug.read", "rug.turn"])


def test_what_someone_else_approves_meanwhile_shows_at_once(tab: Page, gateway: Gateway) -> None:
    gateway.cli("pins", "approve", "rug")
    gateway.modern().text("rug.turn")
    tab.goto("/console/pins/rug")
    tab.get_by_role("button", name="Review and approve all 1").click()
    expect(tab.get_by_role("dialog", name="Approve rug")).to_be_visible()
    assert gateway.cli("pins", "approve", "rug").code == 0

    expect(tab.get_by_role("heading", name="Nothing to review")).to_be_visible()
    expect(tab.get_by_role("dialog")).to_be_hidden()
