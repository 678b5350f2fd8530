"""What the tests of the console share: one gateway with real servers a file, one browser, a tab a test."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.console.browser import chromium_running, tab_on
from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.gateway import Gateway, Site, running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The installation of a file's tests, with real servers to govern; a module may place more at first."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.place(reference.filesystem(site), reference.memory(site), reference.git(site))
    return site


@pytest.fixture(scope="module")
def gateway(world: Site) -> Iterator[Gateway]:
    """A real gateway, all of whose servers have told what they offer."""
    with running(world) as gateway:
        eventually(lambda: _are_listed(gateway), 120)
        yield gateway


def _are_listed(gateway: Gateway) -> bool:
    healths = [one["health"] or {} for one in gateway.get("/admin/api/mcp/servers")["servers"]]
    return all(one.get("state") == "connected" and one["tools"] for one in healths)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser, gateway: Gateway) -> Iterator[Page]:
    """A tab, on no page yet."""
    with tab_on(browser, gateway.url) as page:
        yield page
