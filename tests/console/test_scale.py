"""In a large world no page does more work than it shows: here with some of the servers, tools and events.

How many seconds pages take in a world of full size is measured by `make bench-console`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.console.browser import tab_on
from tests.console.fleet import SERVERS, TOOLS
from tests.console.scale import PLACES, large_world, open_place, type_into
from tests.scenarios.gateway import Gateway

SHARE: Final = 0.12
"""Of the tools there are at most."""
MAX_NODES: Final = 5_000
MAX_REQUESTS: Final = 12
MAX_ANSWER: Final = 3_000_000 * SHARE
MAX_FIRST_LOAD: Final = 400_000


@dataclass
class Traffic:
    """What a tab has asked for, and got."""

    asked: dict[str, None] = field(default_factory=dict)
    """Each once: what is looked at again and again depends on how long that goes on."""
    got: dict[str, int] = field(default_factory=dict)
    """The bytes on the wire, by path, of what has come to its end."""

    def attach(self, tab: Page) -> None:
        tab.on("request", self._on_request)
        tab.on("requestfinished", self._on_finished)

    def detach(self, tab: Page) -> None:
        tab.remove_listener("request", self._on_request)
        tab.remove_listener("requestfinished", self._on_finished)

    def _on_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        what = [one for one in parse_qsl(url.query) if one[0] != "since"]
        self.asked[f"{url.path}?{urlencode(what)}"] = None

    def _on_finished(self, request: Request) -> None:
        self.got[urlsplit(request.url).path] = request.sizes()["responseBodySize"]

    def of(self, *begins: str) -> list[str]:
        return [path for path in self.asked if path.startswith(begins)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    root = tmp_path_factory.mktemp("large") / "site"
    with large_world(root, servers=int(SERVERS * 0.3), tools=int(TOOLS * 0.4), audited=2_000) as found:
        yield found


def test_every_page_makes_few_requests_and_shows_what_fits(tab: Page) -> None:
    wrong = {}
    for name, place in PLACES.items():
        traffic = Traffic()
        traffic.attach(tab)
        open_place(tab, place)
        if place.field:
            type_into(tab, place)
        expect(tab.get_by_role("status").filter(has_text="…")).to_have_count(0)
        nodes = tab.evaluate("document.querySelectorAll('*').length")
        requests = traffic.of("/api/", "/admin/")
        large = {path: size for path, size in traffic.got.items() if size > MAX_ANSWER}
        traffic.detach(tab)
        if nodes > MAX_NODES or len(requests) > MAX_REQUESTS or large:
            wrong[name] = (nodes, requests, large)

    assert wrong == {}


def test_the_first_load_is_small(browser: Browser, gateway: Gateway) -> None:
    with tab_on(browser, gateway.url) as tab:
        traffic = Traffic()
        traffic.attach(tab)
        tab.goto("/console/")
        expect(tab.get_by_text("Slowest tools")).to_be_visible()
        first = {path: size for path, size in traffic.got.items() if path.startswith("/console")}

    assert len(first) > 3
    assert sum(first.values()) <= MAX_FIRST_LOAD
