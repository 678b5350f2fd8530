"""A small authorization server on loopback, and an MCP server that takes its tokens and no others."""

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlsplit

from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from toolgate.model.servers import Grant, HttpEndpoint, OAuth, ServerRecord
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.oauth.connector import Authorizer
from toolgate.upstream.oauth.grants import GrantFiles

SECRET = "s3cret/of the client+0123456789"
NOW_S = 1_700_000_000.0
FETCHER = Fetcher(Egress(allow_private=True))
REDIRECT = "http://127.0.0.1:9/callback"


@dataclass
class Authority:
    """What it says and does can be changed while it serves."""

    issuer: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Next to the usual; None leaves a member out."""
    place: str = "/.well-known/oauth-authorization-server"
    response: dict[str, Any] = field(default_factory=dict)
    """Of the token endpoint, next to the usual."""
    refusal: str | None = None
    forms: list[dict[str, str]] = field(default_factory=list)
    clients: list[tuple[str, str | None]] = field(default_factory=list)
    """Who asked for a token, with the secret they showed."""
    valid: set[str] = field(default_factory=set)
    """The tokens that are good at the MCP server."""
    replaces: bool = True
    """Whether a new token ends the one before."""
    revoked: list[dict[str, str]] = field(default_factory=list)
    """The forms that asked to take a token back."""
    held: asyncio.Event | None = None
    """Set it, and renewals are answered only once it is set."""
    renewing: asyncio.Event = field(default_factory=asyncio.Event)
    """A renewal has been asked for."""
    registrations: list[dict[str, Any]] = field(default_factory=list)
    registered: dict[str, Any] = field(default_factory=dict)
    """What a client that registers is told, next to its id."""
    challenges: dict[str, str] = field(default_factory=dict)
    """Codes given out, to the PKCE challenge each was asked for with."""

    async def __call__(self, request: Request, peer: Peer) -> None:
        if request.path == self.place:
            usual = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "code_challenge_methods_supported": ["S256"],
                "client_id_metadata_document_supported": True,
            } | self.metadata
            document = {name: value for name, value in usual.items() if value is not None}
            await peer.respond(json.dumps(document).encode())
        elif request.path == "/token":
            await self._give(request, peer)
        elif request.path == "/register":
            self.registrations.append(json.loads(request.body))
            usual = {"client_id": f"registered-{len(self.registrations)}"}
            await peer.respond(json.dumps(usual | self.registered).encode(), status=201)
        elif request.path == "/revoke":
            self.revoked.append(dict(parse_qsl(request.body.decode())))
            await peer.respond(b"")
        else:
            await peer.respond(b"{}", status=404)

    async def _give(self, request: Request, peer: Peer) -> None:
        form = dict(parse_qsl(request.body.decode()))
        self.forms.append(form)
        self.clients.append(_client_of(request, form))
        if self.refusal is not None or not self._is_proven(form):
            await peer.respond(json.dumps({"error": self.refusal or "invalid_grant"}).encode(), status=400)
            return
        token = f"token-{len(self.forms)}-of-many"
        if form["grant_type"] == "refresh_token":
            self.renewing.set()
            if self.held is not None:
                await self.held.wait()
        self.valid = {token} if self.replaces else {token, *self.valid}
        usual = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        await peer.respond(json.dumps(usual | self.response).encode())

    def _is_proven(self, form: Mapping[str, str]) -> bool:
        if form["grant_type"] != "authorization_code":
            return True
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return self.challenges.pop(form["code"], None) == challenge

    def negotiate(self, url: str) -> dict[str, str]:
        """What the browser is sent back with when someone agrees at `url`."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["code_challenge_method"] == "S256"
        assert asked["response_type"] == "code"
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = asked["code_challenge"]
        return {"code": code, "state": asked["state"], "iss": self.issuer}


def _client_of(request: Request, form: Mapping[str, str]) -> tuple[str, str | None]:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme == "Basic":
        name, _, secret = base64.b64decode(encoded).decode().partition(":")
        return unquote_plus(name), unquote_plus(secret)
    return form["client_id"], form.get("client_secret")


@dataclass
class OAuthWorld:
    """An authorization server and a server that trusts it."""

    authority: Authority
    issuing: FaultyHttp
    serving: FaultyHttp
    mcp: FakeMcp
    resource: dict[str, Any] | None
    """What the MCP server says about itself; None: nothing."""
    place: str = ""
    """The only place where it says so, if not at the usual ones."""
    challenge: str = ""
    """What it says to who shows no token, or the wrong one."""
    wanted: str = ""
    """What it says to who may not call tools: everyone, where there is anything."""

    def record(
        self,
        grant: Grant = "client_credentials",
        *,
        client_secret_ref: str | None = "client-secret",
        issuer: str | None = "",
        **fields: Any,
    ) -> ServerRecord:
        """A record for the server; its issuer is the authority unless said otherwise."""
        oauth = OAuth(
            grant=grant,
            client_id=fields.pop("client_id", "gateway"),
            client_secret_ref=client_secret_ref,
            issuer=self.authority.issuer if issuer == "" else issuer,
            scopes=fields.pop("scopes", ()),
            per_principal=fields.pop("per_principal", False),
        )
        url = fields.pop("url", self.serving.url)
        return ServerRecord(
            server_id="there", transport="streamable_http", http=HttpEndpoint(url=url, oauth=oauth)
        )

    async def serve(self, request: Request, peer: Peer) -> None:
        if request.path.startswith("/.well-known/") or request.path == self.place:
            if self.resource is None or self.place not in ("", request.path):
                await peer.respond(b"{}", status=404)
            else:
                await peer.respond(json.dumps(self.resource).encode())
        elif request.headers.get("authorization", "").removeprefix("Bearer ") not in self.authority.valid:
            await peer.respond(b"", status=401, headers=_challenging(self.challenge))
        elif self.wanted and request.rpc == "tools/call":
            await peer.respond(b"", status=403, headers=_challenging(self.wanted))
        else:
            await self.mcp(request, peer)


def _challenging(challenge: str) -> list[str]:
    return [f"WWW-Authenticate: {challenge}"] if challenge else []


def authorizer(
    grants: GrantFiles | None = None, *, now_s: float = NOW_S, own_url: str | None = None
) -> Authorizer:
    secrets = Secrets({"client-secret": SECRET, "ISSUER": "x"})
    return Authorizer(secrets, FETCHER, clock_s=lambda: now_s, grants=grants, own_url=own_url)


async def _list(request: Request, peer: Peer) -> None:
    echo = {"name": "echo", "inputSchema": {"type": "object"}}
    await peer.result(
        request, {"tools": [echo], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    )


@asynccontextmanager
async def open_oauth_world(era: str = "modern", *, deadline_s: float = 10) -> AsyncIterator[OAuthWorld]:
    """Both servers, until the deadline at most."""
    authority = Authority()
    async with asyncio.timeout(deadline_s), FaultyHttp(authority) as issuing:
        authority.issuer = f"http://127.0.0.1:{issuing.port}"

        async def serve(request: Request, peer: Peer) -> None:
            await world.serve(request, peer)

        async with FaultyHttp(serve) as serving:
            resource = {"resource": serving.url, "authorization_servers": [authority.issuer]}
            world = OAuthWorld(
                authority, issuing, serving, FakeMcp(era, faults={"tools/list": _list}), resource
            )
            yield world


@contextmanager
def world_aside(*, deadline_s: float = 60) -> Iterator[OAuthWorld]:
    """Both servers on a loop of their own, for tests that have none."""
    ready, worlds = threading.Event(), list[OAuthWorld]()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with open_oauth_world(deadline_s=deadline_s) as world:
            worlds.append(world)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield worlds[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
