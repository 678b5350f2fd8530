#!/usr/bin/env python
"""Takes the pictures of the console that its guide shows: `make screenshots`.

Every page is taken in light and in dark, and two of them also as a phone shows them.
"""

from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, ViewportSize, expect
from tests.console.browser import chromium_running, tab_on
from tests.console.furnished import furnished, pages
from tests.scenarios.gateway import Gateway

OUT: Final = Path(__file__).with_name("screenshots")
MAX_BYTES: Final = 150_000
"""Of a picture."""
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 800}
PHONE: Final = frozenset({"overview", "scope"})
FURTHER_DOWN: Final = {"overview-tokens": "tokens", "scope-why": "why"}
"""Where what is of interest is not at the top: the id of what is."""
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")


def take(browser: Browser, gateway: Gateway, scheme: Literal["light", "dark"]) -> None:
    """Every page, in these colours."""
    with tab_on(browser, gateway.url, viewport=WIDE, color_scheme=scheme, reduced_motion="reduce") as tab:
        for name, (path, shown) in pages(gateway).items():
            tab.goto(f"/console/{path}")
            expect(tab.get_by_role("main").get_by_text(shown).first).to_be_visible()
            expect(tab.get_by_role("status").filter(has_text="…")).to_have_count(0)
            if name in FURTHER_DOWN:
                tab.evaluate("id => document.getElementById(id).scrollIntoView()", FURTHER_DOWN[name])
            picture = tab.screenshot(animations="disabled")
            assert len(picture) <= MAX_BYTES, f"{name} has {len(picture):,} bytes"
            (OUT / f"{name}-{scheme}.png").write_bytes(picture)
            if name in PHONE:
                tab.set_viewport_size(NARROW)
                tab.screenshot(animations="disabled", path=OUT / f"{name}-phone-{scheme}.png")
                tab.set_viewport_size(WIDE)


def main() -> None:
    """Take them all."""
    OUT.mkdir(exist_ok=True)
    with furnished() as gateway, chromium_running() as browser:
        for scheme in SCHEMES:
            take(browser, gateway, scheme)


if __name__ == "__main__":
    main()
