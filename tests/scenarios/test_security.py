"""Smoke on the real listener: no foreign page gets in, and no secret gets out."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.gateway import Gateway, Site, running
from toolgate.upstream.connection.secrets import BASE_ENVIRONMENT, NETWORK_ENVIRONMENT

pytestmark = pytest.mark.xdist_group("scenario-security")

ENV_CANARY = "canary-" + secrets.token_hex(8)
HEADER_CANARY = "canary-" + secrets.token_hex(8)
REFERRED_CANARY = "canary-" + secrets.token_hex(8)
AUTH_CANARY = "canary-" + secrets.token_hex(8)
CANARIES = (ENV_CANARY, HEADER_CANARY, REFERRED_CANARY, AUTH_CANARY)
OWN_SECRET = {"SOME_TOKEN": "canary-" + secrets.token_hex(8)}
"""In the gateway's own environment, and no business of any server."""


class Indiscreet(BaseHTTPRequestHandler):
    """An upstream that refuses everyone and repeats the credentials it was given."""

    received: list[str]

    def do_POST(self) -> None:
        shown = json.dumps(dict(self.headers))
        self.received.append(shown)
        body = f"these are not welcome here: {shown}".encode()
        self.send_response(401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@contextmanager
def open_indiscreet_upstream() -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the headers of every request it got."""
    received: list[str] = []
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (Indiscreet,), {"received": received})
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp", received
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With a secret in every place that takes one, at the most talkative log level."""
    site = Site(tmp_path_factory.mktemp("security"))
    with open_indiscreet_upstream() as (url, received):
        env = {"API_TOKEN": ENV_CANARY, "REFERRED_KEY": "${ENV:REFERRED}", "PLAIN": "plain"}
        site.place(
            site.stage("child", stdio={"env": env, "env_from": ["INHERITED"]}),
            remote(site, "literal", http={"url": url, "headers": {"X-Api-Key": HEADER_CANARY}}),
            remote(site, "named", http={"url": url, "auth_ref": "AUTH"}),
        )
        environ = {"REFERRED": REFERRED_CANARY, "INHERITED": "inherited", "AUTH": AUTH_CANARY, **OWN_SECRET}
        with running(site, "--log-level", "debug", environ=environ) as gateway:
            gateway.modern("/api/mcp?servers=child").tools()
            eventually(
                lambda: all(any(one in text for text in received) for one in (HEADER_CANARY, AUTH_CANARY))
            )
            eventually_equal(
                lambda: {gateway.health(name)["state"] for name in ("literal", "named")}, {"down"}
            )
            yield gateway


def remote(site: Site, server_id: str, **fields: object) -> dict[str, object]:
    return site.server(server_id, **fields) | {"transport": "streamable_http"}


def routes(gateway: Gateway) -> list[tuple[str, str]]:
    """Every route there is, and some that there are not."""
    documented = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in gateway.get("/openapi.json")["paths"].items()
        for method in methods
    ]
    doors = [
        (method, path)
        for method in ("GET", "POST", "DELETE")
        for path in ("/api/mcp", "/mcp", "/api/mcp/s/child")
    ]
    return [
        *documented,
        *doors,
        ("GET", "/"),
        ("GET", "/console"),
        ("OPTIONS", "/api/mcp"),
        ("GET", "/nowhere"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"host": "evil.example"}, id="foreign host"),
        pytest.param({"host": "127.0.0.1.evil.example"}, id="host that begins like ours"),
        pytest.param({"host": "evil.example@127.0.0.1"}, id="host with a user"),
        pytest.param({"host": "127.0.0.1#evil.example"}, id="host with more behind it"),
        pytest.param({"origin": "https://evil.example"}, id="foreign origin"),
        pytest.param({"origin": "null"}, id="no origin to speak of"),
        pytest.param({"origin": "file://"}, id="a file's origin"),
    ],
)
def test_sco_18_no_route_answers_a_foreign_page(gateway: Gateway, headers: dict[str, str]) -> None:
    responses = {
        (method, path): gateway.http.request(method, path, headers=headers)
        for method, path in routes(gateway)
    }

    assert len(responses) > 25
    assert {
        route: response.status_code for route, response in responses.items() if response.status_code != 403
    } == {}
    assert {response.json()["error"]["code"] for response in responses.values()} == {"foreign_origin"}


def test_sco_18_our_own_pages_are_not_foreign(gateway: Gateway) -> None:
    port = gateway.address.rpartition(":")[2]

    responses = [
        gateway.http.get("/healthz", headers={"host": f"{host}:{port}", "origin": f"http://{host}:{port}"})
        for host in ("127.0.0.1", "localhost")
    ]

    assert [response.status_code for response in responses] == [200, 200]


def test_sec_2_a_child_sees_the_base_list_and_what_its_record_declares(gateway: Gateway) -> None:
    environment = json.loads(gateway.modern().text("child.environment"))

    declared = {
        name: value
        for name, value in environment.items()
        if name not in {*BASE_ENVIRONMENT, *NETWORK_ENVIRONMENT}
    }
    # The interpreter itself adds this one where the locale says nothing.
    declared.pop("LC_CTYPE", None)
    assert declared == {
        "API_TOKEN": ENV_CANARY,
        "REFERRED_KEY": REFERRED_CANARY,
        "PLAIN": "plain",
        "INHERITED": "inherited",
    }


def test_sec_1_no_secret_is_in_any_answer_of_the_api(gateway: Gateway) -> None:
    gateway.modern().call("child.complain", text=f"api_token={ENV_CANARY}")
    pages = [
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/admin/api/mcp/servers",
        *(f"/admin/api/mcp/servers/{name}" for name in ("child", "literal", "named")),
        "/admin/api/lint",
        "/admin/api/mcp/tasks-overview",
        "/api/v1/mcp/servers",
        "/api/v1/mcp/tools",
        "/api/v1/mcp/explain",
    ]
    texts = {page: gateway.http.get(page).raise_for_status().text for page in pages}
    for name in ("child", "literal", "named"):
        for verb in ("test", "refresh"):
            response = gateway.http.post(f"/admin/api/mcp/servers/{name}/{verb}", json={})
            texts[f"{verb} {name}"] = response.raise_for_status().text
    texts["reload"] = gateway.http.post("/admin/api/registry/reload", json={}).raise_for_status().text

    assert leaks(texts) == {}


def test_sec_1_no_secret_is_in_what_the_command_line_prints(gateway: Gateway) -> None:
    texts = {}
    for words in (
        ("servers", "list"),
        ("servers", "get", "child"),
        ("servers", "get", "literal"),
        ("doctor",),
    ):
        for form in ((), ("--json",)):
            ran = gateway.cli(*words, *form)
            texts[" ".join([*words, *form])] = ran.out + ran.err

    assert leaks(texts) == {}


def test_sec_9_no_error_shows_a_secret(gateway: Gateway) -> None:
    client = gateway.modern()
    texts = {
        "list": json.dumps(client.request("tools/list")),
        "call": json.dumps(client.call("literal.anything")),
        "discover": json.dumps(client.request("server/discover")),
    }

    assert leaks(texts) == {}


def test_sec_1_no_secret_is_in_the_log_or_the_audit(gateway: Gateway) -> None:
    gateway.put(
        "/admin/api/mcp/servers/child", gateway.get("/admin/api/mcp/servers/child") | {"tags": ["seen"]}
    )
    eventually(lambda: '"operation":"put"' in gateway.audit)
    outputs = gateway.log_file.with_name("stdout").read_text("utf-8")
    texts = {
        "log": gateway.log,
        "stdout": outputs,
        "audit": gateway.audit,
    }

    assert leaks(texts) == {}


def test_sec_3_no_secret_is_in_the_process_table(gateway: Gateway) -> None:
    texts = {f"process {process.pid}": " ".join(process.cmdline()) for process in gateway.tree()}

    assert len(texts) >= 3
    assert leaks(texts) == {}


def test_fil_9_what_holds_secrets_is_readable_by_its_owner_alone(gateway: Gateway) -> None:
    data = gateway.site.data

    def is_for_others(path: Path) -> bool:
        return path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)

    assert [path for path in (data, *data.iterdir()) if is_for_others(path)] == []


def leaks(texts: dict[str, str]) -> dict[str, str]:
    """Every text with a secret in it."""
    return {
        name: text
        for name, text in texts.items()
        if any(one in text for one in (*CANARIES, *OWN_SECRET.values()))
    }
