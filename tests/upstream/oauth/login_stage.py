"""Where tests log in to a server."""

from typing import Any

from tests.upstream.oauth.authority import NOW_S, REDIRECT, OAuthWorld, authorizer
from toolgate.model.servers import ServerRecord
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey
from toolgate.upstream.oauth.logins import Login, Logins


def personal(world: OAuthWorld, **fields: Any) -> ServerRecord:
    """A record someone logs in to, with a client that has no secret."""
    return world.record("authorization_code", **{"client_secret_ref": None, "issuer": None} | fields)


class LoginStage:
    """Logins at a time of their own."""

    def __init__(self, grants: GrantFiles, own_url: str | None = None) -> None:
        self.now_s = NOW_S
        self.authorizer = authorizer(grants, own_url=own_url)
        self.logins = Logins(self.authorizer, grants, clock_s=lambda: self.now_s)

    async def begin(
        self, record: ServerRecord, *, redirect_uri: str = REDIRECT, scopes: tuple[str, ...] = ()
    ) -> str:
        begun = await self.logins.begin(record, principal="ada", redirect_uri=redirect_uri, scopes=scopes)
        return begun.authorization_url

    async def finish(
        self, response: dict[str, str], *, principal: str = "ada", server: str = "there", owner: str = ""
    ) -> Login:
        state, code, issuer = response["state"], response["code"], response.get("iss")
        key = LoginKey(server, owner)
        return await self.logins.finish(key, principal=principal, state=state, code=code, issuer=issuer)

    async def log_in(self, world: OAuthWorld, record: ServerRecord) -> Login:
        return await self.finish(world.authority.negotiate(await self.begin(record)))
