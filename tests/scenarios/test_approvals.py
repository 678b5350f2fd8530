"""Calls that wait for a person, with real clients, a real receiver of the webhook, and processes that end."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client import Transport
from mcp.client.sse import sse_client

from tests.eventually import eventually
from tests.scenarios.agreeing import Person, call_all
from tests.scenarios.askable import AskableClient, Received
from tests.scenarios.clients import error_of
from tests.scenarios.gateway import ROOT, Gateway, Json, Site, run, running
from tests.scenarios.stage_sse import LEGACY_PYTHON, check_legacy_python
from tests.scenarios.tally import executed, tally_child, wait_listed
from toolgate.govern.approvals import SIGNATURE, BodySigner

# The handshake era is tried here as well.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SECRET = "receiver-" + "0123456789abcdef" * 3
ALWAYS = {"approval_policy": {"default": "always"}}


def meet(server: str | Transport, mode: str, words: str) -> Json:
    """The official client, and the person at it."""

    async def talk() -> Json:
        person = Person()
        async with Client(server, mode=mode, elicitation_callback=person.elicit) as client:
            return await call_all(client, person, words)

    return asyncio.run(talk())


def meet_at_older_sdk(url: str, words: str) -> Json:
    """The one before it, in its own environment."""
    check_legacy_python()
    command = [str(LEGACY_PYTHON), "-m", "tests.scenarios.agreeing", url, words]
    ran = run(command, {"PYTHONPATH": str(ROOT)})
    assert ran.code == 0, ran.err
    came: Json = ran.json
    return came


CLIENTS: dict[str, Callable[[str], Json]] = {
    "modern": lambda url: meet(url, "2026-07-28", "modern"),
    "legacy": lambda url: meet(url, "legacy", "legacy"),
    "sse": lambda url: meet(sse_client(url), "legacy", "sse"),
    "older": lambda url: meet_at_older_sdk(url, "older"),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("agreeing"))
    site.place(tally_child(site, "guarded", f"log={site.root / 'calls.log'}") | ALWAYS)
    with running(site) as gateway:
        wait_listed(gateway, "guarded")
        yield gateway


@pytest.mark.parametrize("client", CLIENTS)
def test_a_person_at_a_client_of_the_official_sdks_decides_in_place(gateway: Gateway, client: str) -> None:
    came = CLIENTS[client](f"{gateway.url}/api/mcp/s/guarded")
    first, declined, closed, last = came["texts"]
    log: Path = gateway.site.root / "calls.log"
    calls = {text: times for text, times in executed(log).items() if text.startswith(client)}
    known = gateway.get("/admin/api/approvals")["approvals"]
    decided = [one for one in known if one["arguments"]["text"].startswith(client)]

    assert (first, last) == (f"{client}-0", f"{client}-3")
    assert "declined by elicitation" in declined
    assert "/console/approvals/" in closed
    assert calls == {f"{client}-0": 1, f"{client}-3": 1}
    assert len(came["asked"]) == 4
    for number, message in enumerate(came["asked"]):
        assert f'"text": "{client}-{number}"' in message
        assert "approval_policy default: always" in message
    assert Counter((one["state"], one["decided_by"], one["reason"]) for one in decided) == {
        ("used", "local", "approved by elicitation"): 2,
        ("denied", "local", "declined by elicitation"): 1,
        ("pending", None, None): 1,
    }


@dataclass
class Receiver:
    """The program of an operator that is told, and takes note."""

    url: str
    notified: list[tuple[bytes, str]] = field(default_factory=list)

    def body(self) -> Json | None:
        body: Json | None = json.loads(self.notified[0][0]) if self.notified else None
        return body


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.notified.append((body, self.headers[SIGNATURE]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def test_what_was_asked_before_a_kill_is_decided_by_the_webhook_and_used_once_after_it(site: Site) -> None:
    log, secret_file = site.root / "calls.log", site.root / "secret"
    secret_file.write_text(SECRET)
    site.place(tally_child(site, "guarded", f"log={log}") | ALWAYS)
    with receiving() as receiver:
        config = json.dumps({"url": receiver.url, "secret_file": str(secret_file)})
        environ = {"TOOLGATE_APPROVAL_WEBHOOK": config}
        with running(site, environ=environ) as first:
            wait_listed(first, "guarded")
            notified = first.modern("/api/mcp/s/guarded").call("echo", text="once")
            body = eventually(receiver.body)
            person, received = AskableClient("ada", first.address, "modern"), Received()
            params = person.params("guarded.echo", "in-place", token=1)
            asked = asyncio.run(person.request(params, 1, received))
            kept = first.get(f"/admin/api/approvals/{body['approval_id']}")
            first.kill()
        signer = BodySigner(SECRET, lambda: kept["created_ms"])
        decision = json.dumps(
            {"approval_id": body["approval_id"], "decision": "approved", "by": "bob"}
        ).encode()
        with running(site, listen=first.address, environ=environ) as second:
            wait_listed(second, "guarded")
            client = second.modern("/api/mcp/s/guarded")
            forged = _post(body["decision_url"], decision, BodySigner("x" * 40, signer.clock_ms))
            decided = _post(body["decision_url"], decision, signer)
            again = _post(body["decision_url"], decision, signer)
            changed = client.call("echo", text="other")
            responses = [client.call("echo", text="once") for _ in range(2)]
            used = second.get(f"/admin/api/approvals/{body['approval_id']}")
            asyncio.run(person.go_on(params, asked, 2, received))

    assert error_of(notified) == "mcp_approval_required"
    assert signer.is_signed(*receiver.notified[0])
    assert (forged.status_code, decided.status_code, again.status_code) == (401, 200, 409)
    assert error_of(changed) == "mcp_approval_required"
    assert [one["result"].get("isError", False) for one in responses] == [False, True]
    assert (used["state"], used["decided_by"]) == ("used", "webhook:bob")
    assert (len(received.questions), received.text) == (1, "in-place")
    assert executed(log) == {"once": 1, "in-place": 1}
    assert [json.loads(one)["approval_id"] for one, _ in receiver.notified].count(body["approval_id"]) == 1


def _post(url: str, body: bytes, signer: BodySigner) -> httpx2.Response:
    headers = {"content-type": "application/json", SIGNATURE: signer.sign(body)}
    return httpx2.post(url, content=body, headers=headers, trust_env=False, timeout=60)
