"""A browser client on a page of another origin: what it may ask the gateway, and what it gets to read."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.scenarios.gateway import Gateway, Site, running

REMOTE = "https://app.example.com"
EVERY_ENDPOINT = """async ([gateway, key]) => {
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
    "last-event-id": "",
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ...(key ? { authorization: `Bearer ${key}` } : {}),
  };
  const clientInfo = { name: "page", version: "1" };
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  const ask = async (path, init) => {
    try {
      const response = await fetch(gateway + path, { headers, ...init });
      return [response.status, Object.fromEntries(response.headers), await response.json()];
    } catch (error) {
      return [0, {}, String(error)];
    }
  };
  return {
    mcp: await ask("/api/mcp", { method: "POST", body }),
    server: await ask("/api/mcp/s/one", { method: "POST", body }),
    chat: await ask("/v1/models", {}),
    rest: await ask("/api/v1/mcp/tools", {}),
    deleted: await ask("/admin/api/tasks/none", { method: "DELETE" }),
    metadata: await ask("/.well-known/oauth-protected-resource/api/mcp", {}),
  };
}"""


@contextmanager
def page_origin(root: Path) -> Iterator[str]:
    """An origin with one empty page."""
    (root / "index.html").write_text("<!doctype html><title>a client</title>", "utf-8")
    handler = functools.partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """One that is allowed, and one that is not."""
    root = tmp_path_factory.mktemp("pages")
    with page_origin(root) as allowed, page_origin(root) as other:
        yield allowed, other


@pytest.fixture(scope="module")
def gateway(origins: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("cross-origin"))
    site.place(site.stage("one", "tools=echo"))
    with running(site, environ={"TOOLGATE_ALLOWED_ORIGINS": f"{origins[0]},{REMOTE}"}) as gateway:
        yield gateway


def ask_all(browser: Browser, origin: str, gateway: Gateway, key: str = "") -> dict[str, Any]:
    page = browser.new_page()
    try:
        page.goto(origin)
        found: dict[str, Any] = page.evaluate(EVERY_ENDPOINT, [gateway.url, key])
    finally:
        page.close()
    return found


def test_a_page_of_an_allowed_origin_reads_every_endpoint_and_the_headers_it_needs(
    browser: Browser, gateway: Gateway, origins: tuple[str, str]
) -> None:
    found = ask_all(browser, origins[0], gateway)
    refused = ask_all(browser, origins[0], gateway, "not-a-key-of-this-gateway")["mcp"]

    statuses = {name: status for name, (status, _, _) in found.items()}
    assert statuses == {"mcp": 200, "server": 200, "chat": 200, "rest": 401, "deleted": 401, "metadata": 404}
    assert found["mcp"][1]["mcp-session-id"]
    assert (refused[0], refused[1]["www-authenticate"][:6]) == (401, "Bearer")


def test_a_page_of_another_origin_reads_nothing(
    browser: Browser, gateway: Gateway, origins: tuple[str, str]
) -> None:
    found = ask_all(browser, origins[1], gateway)

    assert {status for status, _, _ in found.values()} == {0}


@pytest.mark.parametrize("credential", [{}, {"authorization": "Bearer none"}], ids=["no key", "none"])
def test_the_trust_in_loopback_is_not_for_a_page_elsewhere_on_any_endpoint(
    gateway: Gateway, credential: dict[str, str]
) -> None:
    """It comes over loopback, as everything that a browser on this machine sends."""
    paths = ["/api/mcp", "/v1/models", "/api/v1/mcp/tools", "/admin/api/tasks", "/healthz"]
    headers = {"origin": REMOTE, "accept": "text/event-stream", **credential}

    responses = {path: gateway.http.get(path, headers=headers) for path in paths}

    anyone = {"/healthz": 401 if credential else 200}
    assert {path: one.status_code for path, one in responses.items()} == dict.fromkeys(paths, 401) | anyone
    assert {one.headers["access-control-allow-origin"] for one in responses.values()} == {REMOTE}


def test_a_local_page_of_another_origin_is_no_administrator_without_a_key(
    gateway: Gateway, origins: tuple[str, str]
) -> None:
    """It may call tools as a local program may. A script that got into it must not register a command."""
    record = {"transport": "stdio", "stdio": {"command": "sh", "args": ["-c", "id"]}}
    put = functools.partial(gateway.http.put, "/admin/api/mcp/servers/two", json=record)

    responses = [put(headers={"origin": origins[0]}), put(headers={"origin": gateway.url})]

    assert [one.status_code for one in responses] == [401, 201]
