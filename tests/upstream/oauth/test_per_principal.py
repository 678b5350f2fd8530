"""Each principal's own login: its calls show its own token, no one else's do, and none is lent for lists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.link_clients import SilentClient
from tests.upstream.faulty_http import Peer, Request
from tests.upstream.oauth.authority import NOW_S, REDIRECT, OAuthWorld, authorizer, open_oauth_world
from tests.upstream.stdio_stage import tool
from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.oauth.connector import OAuthConnector
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey
from toolgate.upstream.oauth.logins import Logins
from toolgate.upstream.pool.pool import CallOrigin, Pool

pytestmark = pytest.mark.anyio


@dataclass
class Stage:
    """A pool with the world's server, to which everyone logs in for itself."""

    world: OAuthWorld
    pool: Pool
    logins: Logins
    record: ServerRecord

    async def log_in(self, owner: str) -> str:
        """The token that it earned."""
        record = self.record.owned_by(owner) if owner else self.record
        begun = await self.logins.begin(record, principal=owner or "admin", redirect_uri=REDIRECT)
        back = self.world.authority.negotiate(begun.authorization_url)
        response = {"state": back["state"], "code": back["code"], "issuer": back["iss"]}
        await self.logins.finish(LoginKey("there", owner), principal=owner or "admin", **response)
        self.pool.reconnect("there", owner)
        return f"token-{len(self.world.authority.forms)}-of-many"

    async def call(self, principal_id: str | None, *, session: str = "", text: str = "") -> None:
        client = None if principal_id is None else SilentClient(principal_id)
        await self.pool.call(
            "there", "tools/call", tool("echo", text=text), client=client, origin=CallOrigin(session)
        )

    def tokens(self, rpc: str = "tools/call") -> list[str]:
        """What requests of a method showed, in their order."""
        return [
            one.headers.get("authorization", "").removeprefix("Bearer ")
            for one in self.world.serving.requests
            if one.rpc == rpc
        ]


@asynccontextmanager
async def open_stage(directory: Path, era: str = "modern", **record: Any) -> AsyncIterator[Stage]:
    grants = GrantFiles(directory)
    tokens = authorizer(grants)
    opener = OAuthConnector(
        StreamableConnector(EndpointResolver(Secrets({}), Egress(allow_private=True))),
        tokens,
    )
    async with (
        open_oauth_world(era) as world,
        Pool({"streamable_http": opener}, on_change=lambda _: None) as pool,
    ):
        world.authority.replaces = False
        base = world.record("authorization_code", client_secret_ref=None, issuer=None, per_principal=True)
        server = replace(base, **record)
        pool.apply({"there": server})
        await pool.settled(["there"])
        yield Stage(world, pool, Logins(tokens, grants, clock_s=lambda: NOW_S), server)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_calls_of_each_principal_show_its_own_token(era: str, tmp_path: Path) -> None:
    async with open_stage(tmp_path, era) as stage:
        ada, eve = await stage.log_in("key:ada"), await stage.log_in("key:eve")
        for principal_id in ("key:ada", "key:eve", "key:ada"):
            await stage.call(principal_id)

        assert stage.tokens() == [ada, eve, ada]
        assert stage.pool.health()["there"].session_links == 2


@pytest.mark.parametrize("sharing", ["shared", "per_session"])
async def test_sco_17_no_call_ever_shows_the_token_of_someone_else(sharing: str, tmp_path: Path) -> None:
    async with open_stage(tmp_path, sharing=sharing) as stage:
        whose = {name: await stage.log_in(name) for name in ("key:ada", "key:eve", "oidc:x")}
        # The ids of sessions are the same for all: who calls decides, whatever else collides.
        await asyncio.gather(
            *(stage.call(name, session=f"s{n % 2}", text=name) for n in range(20) for name in whose)
        )
        shown = [
            (one.message["params"]["arguments"]["text"], one.headers["authorization"])
            for one in stage.world.serving.requests
            if one.rpc == "tools/call"
        ]

    assert len(shown) == 60
    assert set(shown) == {(name, f"Bearer {token}") for name, token in whose.items()}


async def test_a_caller_without_a_login_gets_a_hint_and_nothing_is_sent(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.log_in("key:ada")
        await stage.log_in("")
        await stage.pool.refresh("there")
        for principal_id in ("key:eve", None, ""):
            with pytest.raises(LoginRequired) as refused:
                await stage.call(principal_id)
            assert not refused.value.retryable

        assert stage.tokens() == []
        assert "you have not" not in stage.pool.health()["there"].last_error
        with pytest.raises(LoginRequired, match="you must log in first: run `toolgate servers login there`"):
            await stage.call("key:eve")
        token = await stage.log_in("key:eve")
        await stage.call("key:eve")

        assert stage.tokens() == [token]


async def test_no_ones_login_lists_for_others_but_the_one_that_is_shared(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.log_in("key:ada")
        await stage.call("key:ada")
        await stage.pool.refresh("there")
        before = stage.pool.health()["there"]
        shared = await stage.log_in("")
        await stage.pool.refresh("there")
        after = stage.pool.health()["there"]

        assert (before.tools, after.tools) == (0, 1)
        assert "`toolgate servers login there --shared`" in before.last_error
        assert set(stage.tokens("tools/list")) == {shared}
        assert set(stage.tokens("server/discover")[:1]) == {""}


async def test_a_server_that_lets_anyone_list_needs_no_shared_login(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        guarded = stage.world.serve

        async def serve(request: Request, peer: Peer) -> None:
            if request.rpc in {"server/discover", "tools/list"}:
                await stage.world.mcp(request, peer)
            else:
                await guarded(request, peer)

        stage.world.serve = serve  # type: ignore[method-assign]
        await stage.pool.refresh("there")
        with pytest.raises(LoginRequired):
            await stage.call("key:ada")

        assert (stage.pool.health()["there"].tools, set(stage.tokens("tools/list"))) == (1, {""})


async def test_a_login_or_logout_closes_the_links_that_show_what_was_good_before(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        first, eve = await stage.log_in("key:ada"), await stage.log_in("key:eve")
        await stage.call("key:ada")
        await stage.call("key:eve")
        second = await stage.log_in("key:ada")
        await stage.call("key:ada")
        assert await stage.logins.end(stage.record.owned_by("key:ada")) is not None
        stage.pool.reconnect("there", "key:ada")
        with pytest.raises(LoginRequired):
            await stage.call("key:ada")
        await stage.call("key:eve")

        assert stage.tokens() == [first, eve, second, eve]


async def test_a_principal_that_is_gone_keeps_no_link(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        for name in ("key:ada", "key:eve"):
            await stage.log_in(name)
            await stage.call(name)
        stage.pool.end_principal("key:ada")

        assert stage.pool.health()["there"].session_links == 1


async def test_a_token_that_is_good_no_more_is_the_matter_of_its_principal_alone(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        ada, eve = await stage.log_in("key:ada"), await stage.log_in("key:eve")
        await stage.call("key:ada")
        stage.world.authority.valid.remove(ada)
        with pytest.raises(ServerUnavailable, match="401"):
            await stage.call("key:ada")
        await stage.call("key:eve")

        assert stage.tokens() == [ada, ada, eve]


async def test_tokens_stand_in_no_error_and_no_health(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        content: list[object] = []
        token = await stage.log_in("key:ada")
        stage.world.authority.valid.clear()
        for name in ("key:ada", "key:eve"):
            try:
                await stage.call(name)
            except ToolgateError as exc:
                content.append((exc.detail, repr(exc.__cause__)))
        content.append(stage.pool.health())

        assert len(content) == 3
        assert token not in str(content)
