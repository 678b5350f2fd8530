"""Two hundred hostile strings in every field that strangers write: all are shown, none does anything.

`tab_on` checks that meanwhile no script came as far as a dialog, nothing was fetched from anyone else, and
the browser had nothing to refuse.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import tab_on, visit
from tests.console.payloads import FORMULAS, PAYLOADS, joined
from tests.console.strangers import TITLES, hostile_gateway
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway

LOOK: Final = Path(__file__).with_name("look.js").read_text("utf-8")
TYPED: Final = quote(" ".join(TITLES)[:3_000], safe="")
SCOPES = (
    f"scope?task=task-3&why={TYPED}",
    "scope?why=hostile.t1",
    "scope?kind=prompt",
    "scope?kind=resource",
)
PLAYGROUND = (
    "playground",
    "playground?tool=hostile.t1",
    f"playground?tool=hostile.{TYPED}&task={TYPED}",
    f"playground?q={TYPED}&server={TYPED}",
    f"playground/chat?task={TYPED}&model={TYPED}",
)
UNUSED = ("unused", "unused?of=key", "unused?of=server", "unused/task/task-3", f"unused/task/{TYPED}")
LOGINS = [f"{path}?state=x&error={TYPED}&error_description={TYPED}" for path in ("login", "servers/-/login")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with hostile_gateway(tmp_path_factory.mktemp("hostile")) as found:
        yield found


@pytest.fixture(scope="module")
def paths(gateway: Gateway) -> list[str]:
    """Every page there is, where it shows what strangers wrote, or what is in its address."""
    (waiting,) = gateway.get("/admin/api/approvals?state=pending")["approvals"]
    (run,) = gateway.get("/api/v1/tasks/runs/invocations")["invocations"]
    denied = "/admin/api/audit?type=call&outcome=denied&limit=200"
    event = eventually(lambda: gateway.get(denied)["events"])[-1]
    asking = "/admin/api/audit?type=call&code=mcp_approval_required"
    (asked,) = eventually(lambda: gateway.get(asking)["events"])
    assert asked["arguments"]
    return [
        "",
        *(
            "servers",
            "servers/hostile",
            "servers/hostile/tools",
            "servers/hostile/history",
            "servers/hostile/edit",
        ),
        *("servers/broken", "servers/broken/edit", f"servers?q={TYPED}", f"servers/{TYPED}"),
        *(
            "tasks",
            "tasks/task-3",
            "tasks/task-3/edit",
            "tasks/task-3?tab=learn",
            "profiles",
            "profiles/p",
            "profiles/p/edit",
        ),
        *SCOPES,
        *(
            "catalog",
            f"catalog?q={TYPED}",
            f"catalog/in/{TYPED}",
            "catalog/packages/hostile",
            "catalog/packages/packed",
            f"catalog/packages/{TYPED}",
        ),
        *(
            "catalog/tool?name=hostile.t1",
            f"catalog/tool?name=hostile.{TYPED}",
        ),
        *("catalog/picked?tools=hostile.t1,hostile.t2", f"catalog/picked?tools={TYPED}"),
        *("approvals", f"approvals/{waiting['approval_id']}", f"approvals/{TYPED}", "approvals?state=all"),
        *("pins", "pins/turning", f"pins/{TYPED}"),
        *(
            "activity",
            "activity?outcome=denied",
            f"activity?tool={TYPED}",
            f"activity/{quote(event['event_id'], safe='')}",
            f"activity/{quote(asked['event_id'], safe='')}",
            "activity?type=spawn",
        ),
        *("runs", "runs/runs", f"runs/runs/{run['invocation_id']}", "runs?tab=modules", f"runs/{TYPED}"),
        *PLAYGROUND,
        *UNUSED,
        *("models", "models/asked", "models/asked/edit", "keys", f"keys/{TYPED}", f"nowhere/{TYPED}"),
        *LOGINS,
    ]


def found_in(tab: Page) -> list[str]:
    """What must not be on a page, and is."""
    found: list[str] = tab.evaluate(LOOK)
    return found


def settled(tab: Page) -> None:
    """Returns when nothing on the page is still being loaded."""
    expect(tab.get_by_role("heading").or_(tab.get_by_role("alert")).first).to_be_visible()
    expect(tab.get_by_role("status").filter(has_text="…")).to_have_count(0)


def test_xss_1_nothing_on_any_page_runs_is_fetched_or_hides(
    browser: Browser, gateway: Gateway, paths: list[str]
) -> None:
    """XSS-1, XSS-3, XSS-4, XSS-6"""
    wrong = {}
    titles = set()
    with tab_on(browser, gateway.url, viewport={"width": 1280, "height": 3_000}) as tab:
        for path in paths:
            visit(tab, path)
            settled(tab)
            wrong[path[:60]] = found_in(tab)
            titles.add(tab.title())

    assert len(titles) > 20, "it was not on as many pages as it went to"
    assert {path: found for path, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("tool", "role", "shown"),
    [
        ("links", "region", "Link to a resource, not active"),
        ("t2", "region", "<details open"),
        ("fails", "alert", "<script>alert(1)</script>"),
    ],
)
def test_xss_1_what_a_tool_answers_is_only_shown(tab: Page, tool: str, role: str, shown: str) -> None:
    """XSS-1, XSS-3, XSS-4, XSS-6"""
    tab.goto(f"/console/playground?tool=hostile.{tool}")
    settled(tab)
    in_form = found_in(tab)
    tab.get_by_role("button", name="Call tool").click()
    expect(tab.get_by_role(role).filter(has_text=shown).first).to_be_visible()  # type: ignore[arg-type]

    assert (in_form, found_in(tab)) == ([], [])


def test_xss_1_dialogs_only_show(tab: Page) -> None:
    """XSS-1, XSS-3"""
    tab.goto("/console/pins/turning")
    tab.get_by_role("button", name="Approve all").click()
    expect(tab.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_visible()
    wrong = {"pins": found_in(tab)}
    tab.goto("/console/servers/hostile/edit")
    tab.get_by_role("button", name="Delete").click()
    expect(tab.get_by_role("dialog").get_by_label("Name")).to_be_visible()
    wrong["delete"] = found_in(tab)
    tab.keyboard.press("Escape")
    tab.get_by_role("textbox", name="Display name").fill(TITLES[3])
    tab.get_by_role("button", name="Review and save").click()
    expect(tab.get_by_role("dialog").get_by_role("button", name="Save")).to_be_visible()
    wrong["review"] = found_in(tab)

    assert wrong == {"pins": [], "delete": [], "review": []}


def test_xss_1_definitions_that_are_imported_are_only_shown(tab: Page) -> None:
    """XSS-1, XSS-3"""
    tab.goto("/console/servers/-/import")
    servers = {text: {"command": text, "args": [text], "env": {"A": text}} for text in joined(1_000)}
    tab.get_by_role("textbox", name="Definitions").fill(json.dumps({"mcpServers": servers}))
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("region", name="Definitions").get_by_role("row").nth(3)).to_be_visible()

    assert found_in(tab) == []


def test_xss_5_an_export_has_every_name_and_no_formula(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/activity?type=call")
    files = []
    for form in ("CSV", "JSON lines"):
        tab.get_by_role("button", name="Export").click()
        with tab.expect_download() as downloading:
            tab.get_by_role("menuitem", name=form).click()
        files.append(downloading.value.path().read_text("utf-8"))
    cells = [cell for row in csv.reader(files[0].splitlines(keepends=True)) for cell in row]
    tools = [row["tool"] for row in csv.DictReader(io.StringIO(files[0], newline=""))]
    events = [json.loads(line) for line in files[1].splitlines()]

    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    assert sum("cmd|'/c calc'" in tool for tool in tools) == sum("cmd|" in text for text in FORMULAS)
    assert len(events) >= len(PAYLOADS)


@pytest.mark.parametrize(
    "words",
    [("audit", "--limit", "1000"), ("approvals", "list"), ("servers", "list"), ("pins", "review", "turning")],
)
def test_xss_3_a_terminal_gets_nothing_that_hides_either(gateway: Gateway, words: tuple[str, ...]) -> None:
    ran = gateway.cli(*words)
    kept = "".join(char for char in ran.out if char != "\n")

    assert ran.code == 0
    assert "alert(1)" in kept
    assert [char for char in kept if not char.isprintable() or char in "\u2800\u3164\ufe0f"] == []
