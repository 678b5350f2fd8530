"""Keys on a real listener: what they open ends with them, and wrong ones get nowhere."""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.clients import LegacyClient, ModernClient
from tests.scenarios.gateway import Gateway, Site, running
from toolgate.gateway.auth.identity import MAX_ATTEMPTS

pytestmark = pytest.mark.xdist_group("scenario-keys")

KEYS = "/admin/api/keys"
ERAS = ("legacy", "modern")
LIFE_S = 6
"""Of a key that expires: until then its streams must be open."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("keys"))
    site.place(site.stage("one"))
    with running(site) as found:
        eventually(lambda: found.health("one")["tools"])  # from here on no stream tells of a change
        yield found


@contextmanager
def calling_as(gateway: Gateway, secret: str, *, peer: str = "127.0.0.1") -> Iterator[httpx2.Client]:
    """A client of its own that shows this key, and calls from the address `peer`."""
    headers, transport = {"authorization": f"Bearer {secret}"}, httpx2.HTTPTransport(local_address=peer)
    with httpx2.Client(base_url=gateway.url, timeout=60, transport=transport, headers=headers) as http:
        yield http


def make_key(gateway: Gateway, **fields: Any) -> tuple[str, str]:
    """Id and secret of a new key."""
    key_id = "key-" + secrets.token_hex(4)
    made = gateway.http.post(KEYS, json={"key_id": key_id, "role": "agent", **fields})
    return key_id, made.raise_for_status().json()["secret"]


def status_of(http: httpx2.Client) -> int:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    return http.post("/api/mcp", json=message).status_code


def client_of(era: str, http: httpx2.Client) -> LegacyClient | ModernClient:
    url = f"{str(http.base_url).rstrip('/')}/api/mcp"
    return LegacyClient(http, url) if era == "legacy" else ModernClient(http, url)


LAST_WORDS = {"legacy": [], "modern": ["notifications/subscriptions/acknowledged", "result"]}


@pytest.mark.parametrize("era", ERAS)
def test_revoking_a_key_ends_its_streams_and_sessions_at_once(gateway: Gateway, era: str) -> None:
    key_id, secret = make_key(gateway)
    with calling_as(gateway, secret) as http:
        client = client_of(era, http)
        assert client.tools()
        with client.changes() as changes:
            gateway.http.delete(f"{KEYS}/{key_id}").raise_for_status()

            assert list(changes) == LAST_WORDS[era]  # which is over before the client's patience is
        assert "result" not in client.request("tools/list")
        assert status_of(http) == 401


def test_a_key_that_expires_ends_its_streams(gateway: Gateway) -> None:
    _, secret = make_key(gateway, expires_at_s=int(time.time()) + LIFE_S)
    with calling_as(gateway, secret) as http, ExitStack() as stack:
        streams = [stack.enter_context(client_of(era, http).changes()) for era in ERAS]

        assert [list(stream) for stream in streams] == [LAST_WORDS[era] for era in ERAS]
        eventually_equal(lambda: status_of(http), 401)


def test_a_nodes_key_opens_no_route(gateway: Gateway) -> None:
    _, secret = make_key(gateway, role="node")
    with calling_as(gateway, secret) as http:
        asked = ["/admin/api/mcp/servers", "/admin/api/keys", "/api/v1/mcp/tools", "/metrics"]

        assert [http.get(path).status_code for path in asked] == [403] * len(asked)
        assert status_of(http) == 403


def test_adm_10_wrong_keys_have_to_wait_whatever_they_claim_and_right_ones_pass(gateway: Gateway) -> None:
    _, secret = make_key(gateway)
    with calling_as(gateway, secret, peer="127.0.0.2") as http:
        responses = [
            http.get(
                "/admin/api/tasks",
                headers={"authorization": f"Bearer wrong-{number}", "x-forwarded-for": f"203.0.113.{number}"},
            )
            for number in range(MAX_ATTEMPTS + 2)
        ]

        assert [response.status_code for response in responses] == [401] * MAX_ATTEMPTS + [429] * 2
        assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
        assert responses[-1].json()["error"]["code"] == "too_many_attempts"
        assert status_of(http) == 200
        assert http.get("/healthz").status_code == 200
    expected = ["unauthenticated"] * MAX_ATTEMPTS
    eventually_equal(
        lambda: [one["code"] for one in audited(gateway) if one.get("peer") == "127.0.0.2"], expected
    )
    assert "wrong-1" not in json.dumps(audited(gateway)) + gateway.log


def audited(gateway: Gateway) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.audit.splitlines()]


def test_many_streams_of_a_key_all_end_with_it(gateway: Gateway) -> None:
    key_id, secret = make_key(gateway)
    with calling_as(gateway, secret) as http, ExitStack() as stack:
        streams = [stack.enter_context(client_of(era, http).changes()) for era in ERAS * 20]
        gateway.http.delete(f"{KEYS}/{key_id}").raise_for_status()

        assert [len(list(stream)) for stream in streams] == [0, 2] * 20
    eventually_equal(lambda: "toolgate_streams 0.0" in gateway.http.get("/metrics").text, expected=True)
