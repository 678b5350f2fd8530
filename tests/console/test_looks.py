"""What holds for all pages: they can be read, reached and left by everyone, on any screen."""

from collections.abc import Iterator
from itertools import product
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.console.browser import serious_findings, show_in, tab_on, visit
from tests.console.furnished import furnished, pages
from tests.scenarios.gateway import Gateway
from tests.scenarios.soak import rounds

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 800}
LOOKS: Final[tuple[tuple[ViewportSize, Literal["light", "dark"], tuple[str, ...]], ...]] = (
    (WIDE, "dark", ("color-contrast",)),
    (NARROW, "light", ()),
    (NARROW, "dark", ()),
    (WIDE, "light", ()),
)
"""The screen, the colours, and the rules that alone are looked at. None: all."""

ALONGSIDE: Final = {
    "server-history": ("servers/git/history", "revision"),
    "task-connect": ("tasks/review?tab=connect", "Claude Code"),
    "profile-edit": ("profiles/reading/edit", "What this change would do"),
    "catalog-bundle": ("catalog/picked?servers=git,notes&tab=connect", "Frozen list"),
    "catalog-quality": ("catalog/quality?all=true", "billing"),
    "catalog-category": ("catalog/in/files", "Shared files"),
    "approvals-all": ("approvals?state=all", "shop.refund_order"),
    "unused-keys": ("unused?of=key", "assistant"),
    "unused-servers": ("unused?of=server", "billing"),
    "runs-modules": ("runs?tab=modules", "Upload"),
    "task-runs": ("runs/stock", "Run"),
    "model": ("models/ollama", "Response timeout"),
    "model-edit": ("models/ollama/edit", "What this change would do"),
    "key": ("keys/ci", "Ceiling"),
    "key-new": ("keys/-/new", "Create key"),
    "hand-over": ("keys/-/hand-over?task=review", "tools offered, about"),
}
"""Pages of which there is no picture."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with furnished() as found:
        yield found


def _story(gateway: Gateway) -> dict[str, tuple[str, str]]:
    (event, *_) = gateway.get("/admin/api/audit?code=mcp_approval_required&limit=1")["events"]
    return {"story": (f"activity/{event['event_id']}", "order_id")}


def test_every_page_can_be_read_by_everyone_on_any_screen(tab: Page, gateway: Gateway) -> None:
    findings = {}
    tab.goto("/console/")
    for size, scheme, rules in LOOKS[: rounds(suite=2, soak=4)]:
        tab.set_viewport_size(size)
        show_in(tab, scheme)
        for name, (path, shown) in (pages(gateway) | ALONGSIDE | _story(gateway)).items():
            visit(tab, path)
            expect(tab.get_by_role("main").get_by_text(shown).first).to_be_attached()
            expect(tab.get_by_role("status").filter(has_text="…")).to_have_count(0)
            too_wide = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            wide = [f"{too_wide} px too wide"] if too_wide > 0 else []
            findings[f"{name}, {scheme}, {size['width']} px"] = wide + serious_findings(tab, *rules)

    assert {name: found for name, found in findings.items() if found} == {}


def test_xss_2_every_page_has_the_headers_that_hold_it_to_its_own_files(gateway: Gateway) -> None:
    for path, _ in pages(gateway).values():
        headers = gateway.http.get(f"/console/{path}").raise_for_status().headers
        policy = headers["content-security-policy"]

        assert "unsafe" not in policy
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(
            policy.split("; ")
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_keyboard_alone_skips_the_menu_opens_a_row_and_leaves_a_dialog(tab: Page) -> None:
    tab.goto("/console/servers")
    expect(tab.get_by_role("row").filter(has_text="git")).to_be_visible()
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to content")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()
    tab.get_by_role("row").filter(has_text="git").get_by_role("link").first.focus()
    tab.keyboard.press("Enter")
    expect(tab).to_have_url("/console/servers/git")
    opens = tab.get_by_role("button", name="Delete")
    opens.press("Enter")
    dialog = tab.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_be_visible()
    for key, _ in product(("Tab", "Shift+Tab"), range(8)):
        tab.keyboard.press(key)
        expect(dialog.locator(":focus")).to_have_count(1)
    tab.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opens).to_be_focused()


def test_the_menu_of_a_phone_opens_and_closes_with_the_page_that_is_chosen(
    browser: Browser, gateway: Gateway
) -> None:
    with tab_on(browser, gateway.url, viewport=NARROW) as tab:
        tab.goto("/console/")
        link = tab.get_by_role("navigation", name="Pages").get_by_role("link", name="Keys")
        expect(link).not_to_be_in_viewport()
        tab.get_by_role("button", name="Menu").press("Enter")
        expect(link).to_be_in_viewport()
        link.press("Enter")
        expect(tab.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
        expect(link).not_to_be_in_viewport()
