"""A real Chromium that looks at the console of a real gateway, and watches what the page does meanwhile."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    expect,
    sync_playwright,
)

# As long as others are waited for: nothing here is about how busy the machine is.
PATIENCE_MS: Final = 60_000
expect.set_options(timeout=PATIENCE_MS)
ROOT: Final = Path(__file__).parents[2]
AXE: Final = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
QUIET: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ON_VIOLATION: Final = (
    "document.addEventListener('securitypolicyviolation',"
    " one => window.reportViolation(`${one.effectiveDirective} ${one.blockedURI}`))"
)
_GO: Final = """async path => {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
  for (let frames = 0; frames < 2; frames += 1) await new Promise(requestAnimationFrame);
}"""
"""As the browser itself does for who goes back; what the page makes of it is there two frames later."""
_UNTIL_STILL: Final = (
    "Promise.allSettled(document.getAnimations().filter(one => one instanceof CSSTransition)"
    ".map(one => one.finished)).then(() => null)"
)
"""Colours that change are of no use to who measures contrast."""


@contextmanager
def chromium_running() -> Iterator[Browser]:
    """Debian's Chromium, for as long as the block lasts; no event loop runs in this thread afterwards."""
    program = shutil.which("chromium")
    assert program is not None, "Debian's package `chromium` is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(QUIET), timeout=2 * PATIENCE_MS
        )
        yield browser
        browser.close()


@dataclass
class Watched:
    """What a page did that no our page may do."""

    origin: str
    friends: tuple[str, ...] = ()
    """Other origins that it may lead to."""
    errors: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        # An answer that is no success is logged by the browser itself: that is no fault of the page.
        # A warning is one: about a header, a deprecated feature, a missing key.
        if message.type in {"error", "warning"} and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        known = {self.origin, *self.friends}
        if f"{parts.scheme}://{parts.netloc}" not in known and parts.scheme not in {"data", "blob"}:
            self.foreign.append(request.url)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def check(self) -> None:
        assert (self.errors, self.violations, self.foreign, self.dialogs) == ([], [], [], [])


@contextmanager
def tab_on(browser: Browser, url: str, *, friends: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A tab of its own, without anything kept from others. At its end it is checked what the page did."""
    context = browser.new_context(base_url=url, **{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(PATIENCE_MS)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    watched = _watch(context, url, friends)
    page = context.new_page()
    watched.attach(page)
    yield page
    context.close()
    watched.check()


def _watch(context: BrowserContext, url: str, friends: tuple[str, ...]) -> Watched:
    watched = Watched(url, friends)
    context.expose_function("reportViolation", lambda reply: watched.violations.append(reply))  # noqa: PLW0108
    context.add_init_script(_ON_VIOLATION)
    return watched


def visit(page: Page, path: str) -> None:
    """Another page of the console, without loading all of it again where it is open already."""
    if urlsplit(page.url).path.startswith("/console/"):
        page.evaluate(_GO, f"/console/{path}")
    else:
        page.goto(f"/console/{path}")


def serious_findings(page: Page, *only: str) -> list[str]:
    """What axe finds wrong with the page as it is, moderate or worse; or by these rules alone."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    rules = {"runOnly": {"type": "rule", "values": only}} if only else {}
    options = {"resultTypes": ["violations"], "selectors": False, **rules}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        if one["impact"] in {"moderate", "serious", "critical"}
        for node in one["nodes"][:3]
    ]


def findings_in_both_schemes(page: Page) -> list[str]:
    """The same in light colours, and what is wrong with those in the dark."""
    show_in(page, "light")
    found = serious_findings(page)
    show_in(page, "dark")
    return found + serious_findings(page, "color-contrast")


def show_in(page: Page, scheme: Literal["light", "dark"]) -> None:
    """Returns when the page has these colours."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_selector(f"html[data-mantine-color-scheme={scheme}]", state="attached")
    page.evaluate(_UNTIL_STILL)
