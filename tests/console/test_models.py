"""Chat upstreams in the console: written with every field, tried before they are saved, and deleted."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.scenarios.gateway import Gateway, Site, running

LISTED = {"object": "list", "data": [{"id": "small-1"}, {"id": "small-2"}, {"id": "<b>large</b>\u202e"}]}


class Lists(BaseHTTPRequestHandler):
    """A server of models, as far as it is asked which it has."""

    def do_GET(self) -> None:
        body = json.dumps(LISTED).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def models_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Lists) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(Site(tmp_path_factory.mktemp("models"))) as found:
        yield found


def test_a_chat_upstream_is_tried_saved_changed_and_deleted(
    tab: Page, gateway: Gateway, models_url: str
) -> None:
    tab.goto("/console/models")
    expect(tab.get_by_role("heading", name="No chat upstreams yet")).to_be_visible()
    tab.get_by_role("link", name="New chat upstream").click()
    tab.get_by_role("textbox", name="Name", exact=True).fill("own")
    tab.get_by_role("textbox", name="URL").fill(models_url)
    tab.get_by_role("combobox", name="Models").fill("small-*")
    tab.get_by_role("combobox", name="Models").press("Enter")
    tab.get_by_role("button", name="Add a header").click()
    tab.get_by_role("textbox", name="Header", exact=True).fill("x-team")
    tab.get_by_role("textbox", name="Value").fill("tools")
    tab.get_by_role("textbox", name="Tool rounds").fill("3")
    tab.get_by_role("button", name="Test connection").click()
    answered = tab.get_by_role("status").filter(has_text="Connected in")
    expect(answered).to_contain_text("Callers get 2: small-1, small-2")
    expect(answered).to_contain_text("Callers do not get 1: <b>large</b>U+202E")
    assert gateway.get("/admin/api/chat-upstreams")["chat_upstreams"] == []

    tab.get_by_role("button", name="Help: Tool rounds").click()
    expect(tab.get_by_role("dialog", name="Help: Tool rounds")).to_contain_text("rounds with tool calls")
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Review and save").click()
    review = tab.get_by_role("dialog", name="Create this chat upstream")
    review.get_by_role("button", name="Save", exact=True).click()
    expect(tab.get_by_role("heading", name="own")).to_be_visible()
    saved = gateway.get("/admin/api/chat-upstreams/own")
    assert (saved["models"], saved["headers"], saved["budgets"]["max_iterations"]) == (
        ["small-*"],
        {"x-team": "tools"},
        3,
    )

    tab.get_by_role("link", name="Edit").click()
    tab.get_by_role("switch", name="Enabled").uncheck()
    tab.get_by_role("button", name="Review and save").click()
    tab.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(tab.get_by_text("disabled", exact=True)).to_be_visible()
    assert gateway.get("/admin/api/chat-upstreams/own")["enabled"] is False

    tab.get_by_role("button", name="Delete").click()
    asked = tab.get_by_role("dialog")
    asked.get_by_label("Name").fill("own")
    asked.get_by_role("button", name="Delete").click()
    expect(tab.get_by_role("heading", name="No chat upstreams yet")).to_be_visible()

    assert gateway.get("/admin/api/chat-upstreams")["chat_upstreams"] == []
