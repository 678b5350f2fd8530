"""Tasks with a program of their own in the console: a module is uploaded, run, followed, and cancelled."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import ROOT
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.test_invocations import LONG, add_task

GUEST = ROOT / "build" / "guests" / "mcp_direct.wasm"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("runs"))
    site.place(site.stage("one"))
    with running(site) as found:
        yield found


def upload(tab: Page, file: Path) -> None:
    with tab.expect_file_chooser() as chooser:
        tab.get_by_role("button", name="Upload module").click()
    chooser.value.set_files(file)


def padded(module: bytes, size: int) -> bytes:
    """The same module, with a custom section of so many bytes behind it (WebAssembly, section 5.5.3)."""
    length = size + 2  # of its content, its name and the length of that
    encoded = bytes((length >> shift & 0x7F) | 0x80 for shift in (0, 7, 14, 21)) + bytes([length >> 28])
    return module + b"\0" + encoded + b"\1p" + bytes(size)


def test_a_module_is_uploaded_and_what_it_does_as_a_task_is_seen(tab: Page, gateway: Gateway) -> None:
    tab.goto("/console/runs?tab=modules")
    upload(tab, GUEST)
    expect(tab.get_by_text("Module uploaded")).to_be_visible()
    (module,) = gateway.get("/admin/api/modules")["modules"]
    workload = {"module": module["sha256"], "args": ["one", "echo"]}
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["one"]}
    gateway.put("/admin/api/tasks/parrot", {"display_name": "Parrot", "config": config, "workload": workload})

    tab.get_by_role("tab", name="Tasks").click()
    tab.get_by_role("row", name="parrot").click()
    tab.get_by_label("Input").fill('{"text": "hello from the console"}')
    tab.get_by_role("button", name="Run", exact=True).click()
    expect(tab.get_by_text("succeeded").first).to_be_visible()
    expect(tab.get_by_label("output", exact=True)).to_contain_text("hello from the console")
    expect(tab.get_by_role("region", name="Tool calls")).to_contain_text("one.echo")
    expect(tab.get_by_role("heading", level=1)).to_contain_text("Run of ")
    tab.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="WASM tasks").click()
    tab.get_by_role("tab", name="Modules").click()
    tab.get_by_role("searchbox", name="Find").fill("parrot")
    expect(tab.get_by_role("row", name=module["sha256"][:16])).to_contain_text("parrot")
    (run,) = gateway.get("/api/v1/tasks/parrot/invocations")["invocations"]

    assert (run["state"], run["exit_code"]) == ("succeeded", 0)


def test_a_run_is_followed_while_it_goes_on_and_cancelled(tab: Page, gateway: Gateway) -> None:
    add_task(gateway.http, "sleeper", LONG)
    tab.goto("/console/runs/sleeper")
    tab.get_by_role("button", name="Run", exact=True).click()
    expect(tab.get_by_role("log")).to_contain_text("begun")
    tab.get_by_role("button", name="Cancel run").click()
    expect(tab.get_by_text("cancelled", exact=True).first).to_be_visible()
    (run,) = gateway.get("/api/v1/tasks/sleeper/invocations")["invocations"]

    assert run["state"] == "cancelled"


def test_what_is_no_module_is_refused_and_a_large_one_is_sent_in_parts_and_deleted(
    tab: Page, gateway: Gateway, tmp_path: Path
) -> None:
    broken, large = tmp_path / "broken.wasm", tmp_path / "large.wasm"
    broken.write_bytes(b"no module")
    large.write_bytes(padded(GUEST.read_bytes(), 5 * 1024 * 1024))
    tab.goto("/console/runs?tab=modules")
    upload(tab, broken)
    expect(tab.get_by_role("alert")).to_be_visible()
    upload(tab, large)
    expect(tab.get_by_text("Module uploaded")).to_be_visible()
    sha256 = hashlib.sha256(large.read_bytes()).hexdigest()
    assert gateway.get(f"/admin/api/modules/{sha256}")["size"] == large.stat().st_size

    tab.get_by_role("row", name=sha256[:16]).get_by_role("button", name="Delete").click()
    tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(tab.get_by_role("row", name=sha256[:16])).to_be_hidden()

    assert gateway.http.get(f"/admin/api/modules/{sha256}").status_code == 404
