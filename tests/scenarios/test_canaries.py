"""SEC-1: another secret in every field that takes one, every door used and misused, everything read again.

Exempt are only the files whose purpose is to hold a secret: the registry (`registry.db`), what people logged
in with (`logins/`), server files, the secrets directory, key files; and backups and exports, which are
registries. Even the registry has only what is in records, and what a run is given until it is run.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import pytest

from tests.eventually import eventually, eventually_equal
from tests.guests.built import example
from tests.scenarios.canaries import MARK, leaks, written_by
from tests.scenarios.clients import LegacyClient, ModernClient
from tests.scenarios.gateway import Gateway, Json, Site, running
from tests.scenarios.gossip import Gossip, open_gossip
from tests.scenarios.in_process import cli
from tests.scenarios.test_own_logins import Person
from tests.scenarios.test_sse import connected
from tests.upstream.oauth.authority import OAuthWorld, world_aside

pytestmark = pytest.mark.xdist_group("scenario-canaries")

SERVERS: Final = ("child", "guarded", "gossip", "named", "environ", "closed", "dead", "there", "machine")
EXEMPT: Final = ("registry.db", "logins")
STREAMS: Final = ("/admin/api/watch", "/admin/api/audit/events")


def canary(place: str) -> str:
    """The secret of one place: long enough for a key, and like nothing in particular."""
    return f"{MARK}-{place}-0123456789abcdef"


ARGUMENTS: Final = {
    "text": "hi",
    "password": canary("argument"),
    "deep": [{"api_key": canary("deep-argument")}],
    "url": f"https://ada:{canary('url-argument')}@host/?token={canary('query-argument')}",
    "header": f"Authorization: Bearer {canary('text-argument')}",
    "customer": canary("hidden-argument"),
    "command": f"mysql -p{canary('flag-argument')} db",
    "note": f"the password is {canary('told-argument')}.",
    "encoded": f"https%3A%2F%2Fada%3A{canary('encoded-argument')}%40host",
}
ENVIRON: Final = {
    "REFERRED_TOKEN": canary("referred-variable"),
    "INHERITED_SECRET": canary("inherited-variable"),
    "HEADER_TOKEN": canary("referred-header"),
    "NAMED_IN_ENVIRON": canary("named-in-environment"),
    "MODEL_TOKEN": canary("referred-model-header"),
    "AWS_SECRET_ACCESS_KEY": canary("of-the-gateway"),
}
FILES: Final = {name: canary(f"file-{name}") for name in ("named-secret", "client-secret", "model-secret")}


@dataclass
class Place:
    """A gateway with a secret everywhere, and all that was ever read of it."""

    gateway: Gateway
    gossip: Gossip
    world: OAuthWorld
    keys: list[str] = field(default_factory=list)
    """The secrets of keys, which their creation tells, once."""
    texts: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, text: str) -> None:
        self.texts[f"{len(self.texts)} {what}"] = text

    def leaking(self) -> dict[str, str]:
        """Every text with a secret in it."""
        secrets = [MARK, *self.keys, *self.world.authority.valid, self._signing_key()]
        return {what: text for what, text in self.texts.items() if any(one in text for one in secrets)}

    def _signing_key(self) -> str:
        files = self.gateway.site.data.glob("registry.db*")
        found = [re.search(rb'"hex":\s*"([0-9a-f]{64})"', file.read_bytes()) for file in files]
        return next(match[1].decode() for match in found if match)


def settings(site: Site, gossip: Gossip) -> dict[str, str]:
    """Every setting that leads to a secret."""
    secrets = site.root / "secrets"
    secrets.mkdir()
    for name, value in FILES.items():
        (secrets / name).write_text(value)
    for name in ("admin.key", "webhook.key"):
        (site.root / name).write_text(canary(f"file-{name}"))
    (site.root / "otlp.headers").write_text(f"Authorization: Bearer {canary('collector')}\n")
    webhook = {"url": f"{gossip.url}/webhook", "secret_file": str(site.root / "webhook.key")}
    otlp = {"endpoint": gossip.url, "headers_file": str(site.root / "otlp.headers"), "audit": True}
    return {
        "TOOLGATE_SECRETS_DIR": str(secrets),
        "TOOLGATE_ADMIN_KEY_FILE": str(site.root / "admin.key"),
        "TOOLGATE_APPROVAL_WEBHOOK": json.dumps(webhook),
        "TOOLGATE_OTLP": json.dumps(otlp),
        "TOOLGATE_REDACT_ARGUMENTS": "customer",
        **ENVIRON,
    }


def records(site: Site, gossip: Gossip, world: OAuthWorld) -> Iterator[Json]:
    """Servers with a secret in each of their fields."""
    env = {
        "API_TOKEN": canary("variable"),
        "REFERRED": "${ENV:REFERRED_TOKEN}",
        "DEFAULTED_PASSWORD": f"${{ENV:UNSET_TOKEN:-{canary('default')}}}",
    }
    words = ("--api-key", canary("flag"), f"LOGIN_TOKEN={canary('assignment')}", "tools=echo,complain,fail")
    yield site.stage("child", *words, stdio={"env": env, "env_from": ["INHERITED_SECRET"]})
    yield site.stage("guarded", approval_policy={"default": "always"})
    headers = {"Authorization": f"Bearer {canary('header')}", "X-Team": "${ENV:HEADER_TOKEN}"}
    url = f"{gossip.url}/mcp?api_key={canary('query')}"
    yield remote(site, "gossip", url=url, headers=headers)
    yield remote(site, "named", url=f"{gossip.url}/mcp", auth_ref="named-secret")
    yield remote(site, "environ", url=f"{gossip.url}/mcp", auth_ref="NAMED_IN_ENVIRON")
    yield remote(site, "closed", url=f"{gossip.url}/closed?token={canary('refused-query')}", headers=headers)
    yield remote(site, "dead", url=f"http://127.0.0.1:9/?sig={canary('unreachable-query')}", headers=headers)
    oauth = {"client_id": "gateway", "issuer": world.authority.issuer}
    there = {**oauth, "grant": "authorization_code"}
    machine = {**oauth, "grant": "client_credentials", "client_secret_ref": "client-secret"}
    yield remote(site, "there", url=world.serving.url, oauth=there)
    yield remote(site, "machine", url=world.serving.url, oauth=machine)


def remote(site: Site, server_id: str, **http: Any) -> Json:
    return site.server(server_id, http=http) | {"transport": "streamable_http"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("canaries"))
    with open_gossip() as gossip, world_aside() as world:
        gossip.arguments = ARGUMENTS
        world.authority.replaces = False
        world.authority.response = {"refresh_token": canary("refresh-token")}
        site.place(*records(site, gossip, world))
        with running(site, environ=settings(site, gossip)) as gateway:
            place = Place(gateway, gossip, world)

            def note(response: httpx2.Response) -> None:
                if "event-stream" not in response.headers.get("content-type", ""):
                    place.note(
                        f"{response.request.method} {response.request.url.path}", response.read().decode()
                    )

            gateway.http.event_hooks["response"].append(note)
            furnish(place)
            yield place


def furnish(place: Place) -> None:
    """What can only be written over the API: models, tasks with workloads, keys, logins."""
    gateway, http = place.gateway, place.gateway.http
    model: Json = {"base_url": f"{place.gossip.url}/v1", "auth_ref": "model-secret"}
    model["headers"] = {"X-Api-Key": canary("model-header"), "X-Team": "${ENV:MODEL_TOKEN}"}
    gateway.put(
        "/admin/api/chat-upstreams/m", {"upstream_id": "m", "models": ["scripted", "closed"], **model}
    )
    module = http.post(
        "/admin/api/modules",
        content=example("mcp_direct").read_bytes(),
        headers={"content-type": "application/wasm"},
    ).json()["sha256"]
    workload = {
        "module": module,
        "args": ["child", "echo", "--token", canary("guest-argument")],
        "env": {"GUEST_SECRET": canary("guest-variable")},
    }
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["child", "gossip"]'}
    gateway.put("/admin/api/tasks/work", {"task_id": "work", "config": config, "workload": workload})
    for role in ("agent", "viewer"):
        place.keys.append(http.post("/admin/api/keys", json={"key_id": role, "role": role}).json()["secret"])
    for what in [what for what in place.texts if what.endswith("POST /admin/api/keys")]:
        del place.texts[what]
    Person(http).log_in(place.world)
    eventually_equal(
        lambda: {gateway.health(name)["state"] for name in ("gossip", "named", "there")}, {"connected"}
    )


def test_every_credential_was_used(place: Place) -> None:
    """What was never sent could not leak."""
    drive(place)
    used = [
        *(canary(name) for name in ("header", "query", "refused-query", "model-header", "collector")),
        *(ENVIRON[name] for name in ("HEADER_TOKEN", "NAMED_IN_ENVIRON", "MODEL_TOKEN")),
        *(FILES[name] for name in ("named-secret", "model-secret")),
    ]
    eventually(lambda: all(any(one in received for received in place.gossip.received) for one in used))

    assert ("gateway", FILES["client-secret"]) in place.world.authority.clients


def drive(place: Place) -> None:
    """Every door, well used and misused; all that is answered is noted."""
    gateway, http = place.gateway, place.gateway.http
    selection = "/api/mcp?servers=child,gossip,guarded,named,closed,dead,there"
    clients: list[ModernClient | LegacyClient] = [gateway.modern(selection), gateway.legacy(selection)]
    for client in clients:
        client.tools()
        for name in ("child.echo", "child.fail", "gossip.echo", "gossip.fail", "gossip.refuse", "dead.x"):
            client.call(name, **ARGUMENTS)
        client.call("guarded.echo", **ARGUMENTS)
        client.call("child.complain", text=f"api_token={canary('variable')}")
    with connected(gateway, "/api/mcp?tools=child.echo,gossip.fail") as stream:
        for number, name in enumerate(("child.echo", "gossip.fail")):
            stream.call(number, name, **ARGUMENTS)
            place.note(f"sse {name}", json.dumps(stream.respond()))
    for name in ("child.echo", "gossip.fail", "gossip.refuse", "guarded.echo", "closed.x"):
        http.post(
            "/api/v1/mcp/call?servers=child,gossip,guarded", json={"name": name, "arguments": ARGUMENTS}
        )
    for model in ("scripted", "closed"):
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        http.post("/t/work/v1/chat/completions", json=body)
        http.post("/t/work/v1/chat/completions", json={**body, "stream": True})
        http.post("/t/work/v1/responses", json={"model": model, "input": "hi"})
    given = json.dumps({"text": "hi", "password": canary("guest-input")})
    http.post("/api/v1/tasks/work/invocations", json={"mode": "sync", "input": given})
    wrong = (f"Bearer {canary('wrong-key')}", f"Basic {canary('wrong-password')}", place.keys[0])
    for credential in (*wrong, f"Bearer {place.keys[0]}"):
        headers = {"authorization": credential, "x-api-key": canary("header-of-a-caller")}
        for path in ("/api/mcp", "/v1/chat/completions", "/api/v1/mcp/call"):
            http.post(path, headers=headers, json={})
    for name in SERVERS:
        for verb in ("test", "refresh"):
            http.post(f"/admin/api/mcp/servers/{name}/{verb}", json={})
        shown = gateway.get(f"/admin/api/mcp/servers/{name}")
        http.post("/admin/api/plan", json={"kind": "server", "id": name, "body": {**shown, "tags": ["seen"]}})
    http.put("/admin/api/mcp/servers/bad", json={"stdio": {"command": canary("bad"), "env": canary("bad")}})
    http.post("/admin/api/chat-upstreams/m/test", json={})
    http.post("/admin/api/registry/reload", json={})


def test_no_answer_of_any_door_shows_a_secret(place: Place) -> None:
    assert len(place.texts) > 80
    assert place.leaking() == {}


def test_nothing_that_can_be_read_over_rest_shows_a_secret(place: Place) -> None:
    gateway = place.gateway
    approval = gateway.get("/admin/api/approvals")["approvals"][0]["approval_id"]
    event = gateway.get("/admin/api/audit?type=call")["events"][0]["event_id"]
    run = gateway.get("/api/v1/tasks/work/invocations")["invocations"][0]["invocation_id"]
    ids = {
        "task_id": "work",
        "upstream_id": "m",
        "key_id": "agent",
        "approval_id": approval,
        "event_id": event,
    }
    ids |= {"invocation_id": run, "namespace": "toolgate.local", "server_version": "latest"}
    asked = 0
    for path, methods in gateway.get("/openapi.json")["paths"].items():
        if "get" in methods and not path.endswith(("/events", "/watch")):
            for server in SERVERS if "{server_" in path else SERVERS[:1]:
                named = {**ids, "server_id": server, "server_name": server}
                gateway.http.get(re.sub(r"{(\w+)}", lambda match: named.get(match[1], "none"), path))  # noqa: B023
                asked += 1
    for page in (
        "/console/",
        "/console/servers",
        "/admin/api/audit?limit=1000",
        "/admin/api/audit/export?format=csv",
    ):
        gateway.http.get(page)
    for path in (*STREAMS, f"/api/v1/tasks/work/invocations/{run}/events"):
        place.note(path, "\n".join(streamed(gateway, path)))

    assert asked > 100
    assert canary("argument") not in json.dumps(gateway.get(f"/admin/api/approvals/{approval}"))
    assert place.leaking() == {}


def streamed(gateway: Gateway, path: str) -> Iterator[str]:
    """What a stream tells until it has nothing more to tell, from its beginning on."""
    headers = {"last-event-id": "0"} if path == STREAMS[0] else {}
    with (
        suppress(httpx2.ReadTimeout),
        gateway.http.stream("GET", path, headers=headers, timeout=httpx2.Timeout(60, read=1)) as stream,
    ):
        yield from stream.iter_lines()


def test_no_command_prints_a_secret(place: Place) -> None:
    for words in (
        *(("servers", "get", name) for name in ("child", "gossip", "dead")),
        ("servers", "list"),
        ("servers", "get", "child", "--json"),
        ("tasks", "get", "work"),
        ("chat-upstreams", "list"),
        ("keys", "list"),
        ("approvals", "list", "--json"),
        ("audit", "--limit", "500"),
        ("audit", "--limit", "500", "--json"),
        ("audit", "--export", "csv"),
        ("invocations", "list", "work"),
        ("explain",),
        ("doctor",),
    ):
        ran = cli(place.gateway, *words)
        place.note(" ".join(words), ran.out + ran.err)
        assert ran.out, (words, ran.err)

    assert place.leaking() == {}


def test_nothing_that_is_written_down_holds_a_secret(place: Place) -> None:
    data, outputs = place.gateway.site.data, place.gateway.log_file.parent
    files = [path for path in data.rglob("*") if path.is_file()]
    plain = [path for path in files if not path.relative_to(data).parts[0].startswith(EXEMPT)]
    for path in {*plain, *written_by(data, outputs)}:
        place.note(str(path), path.read_bytes().decode(errors="replace"))

    assert {"audit.jsonl", "audit.db"} <= {path.name for path in plain}
    calls = [one for one in map(json.loads, place.gateway.audit.splitlines()) if one["type"] == "call"]
    hidden = {one["door"] for one in calls if one.get("arguments", {}).get("password") == "***"}
    assert hidden == {"mcp", "rest", "chat", "hostcall"}
    assert leaks(plain) == []
    assert place.leaking() == {}


def test_the_registry_has_no_secret_that_is_in_no_record(place: Place) -> None:
    registry = b"".join(path.read_bytes() for path in place.gateway.site.data.glob("registry.db*"))
    elsewhere = [*ENVIRON.values(), *FILES.values(), *place.keys, *place.world.authority.valid]
    elsewhere += [canary(name) for name in ("collector", "wrong-key", "header-of-a-caller", "refresh-token")]
    elsewhere += re.findall(rf"{MARK}-[a-z-]+-0123456789abcdef", json.dumps(ARGUMENTS))
    elsewhere += [canary(f"file-{name}") for name in ("admin.key", "webhook.key")]

    assert canary("variable").encode() in registry
    assert [one for one in elsewhere if one.encode() in registry] == []
