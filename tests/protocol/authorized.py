"""A client that the conformance suite runs, with the gateway between the two, where the server wants a login.

A login follows the suite's authorization server as a browser would, and agrees at once. When the gateway
refuses, that is a result: many of the suite's servers are there to be refused.
"""

import json
import os
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from tests.eventually import eventually
from tests.scenarios.clients import ModernClient

GATEWAY = "SANDWICH_GATEWAY"
SECRETS = {
    "pre-registered-secret": "SUITE_PRE_REGISTERED",
    "conformance-test-secret": "SUITE_CREDENTIALS",
}
"""Secrets that the suite hands out, to the variables of the gateway that hold them."""
REDIRECT = "http://127.0.0.1:9/callback"
CLIENT_URL = "https://conformance-test.local/client-metadata.json"
"""What the suite wants a client with a URL of its own to be called."""
MAX_LOGINS = 3
BUSY = 503
"""Too many logins are being begun at once: the suite runs its scenarios side by side."""

Json = dict[str, Any]


def oauth_for(scenario: str, context: Json, upstream: str) -> Json:
    """What an operator would write into the record, who knows what the scenario says beforehand."""
    secret = SECRETS.get(context.get("client_secret", ""))
    if secret is not None:
        is_login = scenario == "auth/pre-registration"
        return {
            "grant": "authorization_code" if is_login else "client_credentials",
            "client_id": context["client_id"],
            "client_secret_ref": secret,
            "issuer": context.get("issuer") or issuer_of(upstream),
        }
    login = {"grant": "authorization_code"}
    return {**login, "client_id": CLIENT_URL} if scenario == "auth/basic-cimd" else login


def issuer_of(upstream: str) -> str:
    """Looked up by the operator: the gateway shows a secret to no one whom its record does not name."""
    with httpx2.Client(trust_env=False, timeout=60) as http:
        found = http.get(upstream.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")).json()
    return str(found["authorization_servers"][0])


def log_in(http: httpx2.Client, server_id: str, scopes: list[str]) -> bool:
    """Whether the gateway has got its token."""
    path = f"/api/v1/mcp/servers/{server_id}/login"

    def begin() -> httpx2.Response | None:
        response = http.post(path, json={"redirect_uri": REDIRECT, "scopes": scopes})
        return None if response.status_code == BUSY else response

    begun = eventually(begin)
    if begun.is_error:
        return False
    with httpx2.Client(trust_env=False, timeout=60) as browser:
        agreed = browser.get(begun.json()["authorization_url"])
    response = dict(parse_qsl(urlsplit(agreed.headers["location"]).query))
    return http.post(f"{path}/finish", json=response).is_success


def call(http: httpx2.Client, server_id: str) -> Json:
    """What comes of the suite's tool: a result, or why not."""
    response = ModernClient(http, f"/mcp/s/{server_id}").request(
        "tools/call", {"name": "test-tool", "arguments": {}}
    )
    result: Json = response.get("result", {"isError": True})
    return result


def use(http: httpx2.Client, server_id: str) -> None:
    """Log in and call; log in again as long as that is what it takes."""
    scopes: list[str] = []
    for _ in range(MAX_LOGINS):
        if not log_in(http, server_id, scopes):
            return
        result = call(http, server_id)
        if not result.get("isError"):
            return
        scopes = result.get("_meta", {}).get("toolgate/error", {}).get("data", {}).get("scopes", [])


def main(upstream: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if not scenario.startswith("auth/"):
        return
    server_id = f"suite-{urlsplit(upstream).port}"
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    oauth = oauth_for(scenario, context, upstream)
    record = {
        "server_id": server_id,
        "transport": "streamable_http",
        "http": {"url": upstream, "oauth": oauth},
        "allowed_tools": ["*"],
    }
    with httpx2.Client(base_url=os.environ[GATEWAY], trust_env=False, timeout=60) as http:
        path = f"/admin/api/mcp/servers/{server_id}"
        http.put(path, json=record).raise_for_status()
        if oauth["grant"] == "authorization_code":
            use(http, server_id)
        else:
            http.post(f"{path}/refresh").raise_for_status()
            call(http, server_id)
        http.delete(path).raise_for_status()


if __name__ == "__main__":
    main(sys.argv[1])
