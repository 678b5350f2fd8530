"""A server that everyone uses as themselves, through a gateway that runs: own keys, own tokens, own ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.eventually import eventually
from tests.scenarios.clients import UNTRUSTING, LegacyClient, ModernClient, error_of
from tests.scenarios.gateway import Gateway, Site, running
from tests.upstream.oauth.authority import REDIRECT, OAuthWorld, world_aside

LOGIN = "/api/v1/mcp/servers/there/login"


@dataclass
class Person:
    """Someone with a key of their own, or the administrator of the machine."""

    http: httpx2.Client

    def log_in(self, world: OAuthWorld, **sent: Any) -> str:
        """The token that it earned, which no one here is told."""
        begun = self.http.post(LOGIN, json={"redirect_uri": REDIRECT, **sent}).raise_for_status().json()
        back = world.authority.negotiate(begun["authorization_url"])
        finished = self.http.post(f"{LOGIN}/finish", json={**back, **sent}).raise_for_status()
        token = f"token-{len(world.authority.forms)}-of-many"
        assert token not in finished.text
        return token

    def call(self, client: type[ModernClient | LegacyClient]) -> Any:
        """The way of an agent: the tool by its name."""
        asked = client(self.http, "/mcp/s/there")
        return asked.request("tools/call", {"name": "echo", "arguments": {}})


@contextmanager
def someone(gateway: Gateway, key_id: str) -> Iterator[Person]:
    """An agent with a new key."""
    key = gateway.http.post("/admin/api/keys", json={"key_id": key_id, "role": "agent"}).json()["secret"]
    headers = {"authorization": f"Bearer {key}"}
    with httpx2.Client(
        base_url=gateway.url, headers=headers, trust_env=False, verify=UNTRUSTING, timeout=60
    ) as http:
        yield Person(http)


def tokens(world: OAuthWorld) -> list[str]:
    """What calls showed to the server."""
    return [
        one.headers["authorization"].removeprefix("Bearer ")
        for one in world.serving.requests
        if one.rpc == "tools/call"
    ]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_person_uses_their_own_login_until_logout_or_a_revoked_key(site: Site) -> None:
    with (
        world_aside() as world,
        running(site) as gateway,
        someone(gateway, "ada") as ada,
        someone(gateway, "eve") as eve,
    ):
        world.authority.replaces = False
        oauth = {"grant": "authorization_code", "client_id": "gateway", "per_principal": True}
        record = site.server(
            "there", transport="streamable_http", http={"url": world.serving.url, "oauth": oauth}
        )
        gateway.put("/admin/api/mcp/servers/there", record)
        Person(gateway.http).log_in(world, shared=True)
        eventually(lambda: gateway.health("there")["tools"] == 1)
        strangers = [ada.call(ModernClient), eve.call(LegacyClient)]
        own = [ada.log_in(world), eve.log_in(world)]
        for client in (ModernClient, LegacyClient):
            for person in (ada, eve):
                assert "error" not in person.call(client)
        shown = tokens(world)
        ended = eve.http.delete(LOGIN).json()
        after = eve.call(ModernClient)
        files = sorted(path.name for path in (site.data / "logins").iterdir())
        gateway.http.delete("/admin/api/keys/ada").raise_for_status()
        eventually(lambda: [path.name for path in (site.data / "logins").iterdir()] == ["there.json"])
        gateway.http.delete("/admin/api/mcp/servers/there").raise_for_status()
        eventually(lambda: list((site.data / "logins").iterdir()) == [])
        written = "".join(
            path.read_bytes().decode(errors="replace") for path in site.data.iterdir() if path.is_file()
        )

        assert [error_of(response) for response in (*strangers, after)] == ["mcp_login_required"] * 3
        assert "toolgate servers login" in str(after)
        assert shown == own * 2
        assert ended == {"server_id": "there", "revoked": False}
        assert (len(files), files[-1]) == (2, "there@" + files[-1].removeprefix("there@"))
        assert [token for token in world.authority.valid if token in written + gateway.log] == []
