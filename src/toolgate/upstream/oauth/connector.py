"""Opens links to servers that want a token, over the opener of their transport, and keeps the token fresh.

A server whose record has no `oauth` gets the link of its transport, and nothing in between.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import Era
from toolgate.upstream.background import Background
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    ClientSide,
    Link,
    LinkListener,
    Opener,
    Params,
    Reply,
    StartFailed,
    Told,
)
from toolgate.upstream.oauth.authorizer import Authorizer
from toolgate.upstream.oauth.renewal import Renewal
from toolgate.upstream.oauth.tokens import Token


class TokenLink(Link, Protocol):
    """A link that can be given another token while it lives."""

    def authorize(self, token: str) -> None:
        """Show the server `token` with every request from now on."""


class TokenLinkOpener(Protocol):
    """The opener of a transport whose links can."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> TokenLink:
        """As every opener."""


class AuthorizedOpener(Opener):
    """An opener of records with and without `oauth`."""

    def __init__(
        self, opener: TokenLinkOpener, authorizer: Authorizer, *, clock_s: Callable[[], float]
    ) -> None:
        self._opener = opener
        self._authorizer = authorizer
        self._clock_s = clock_s

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> Link:
        open_link = partial(self._opener, known_era=known_era, capabilities=capabilities)
        if record.http is None or record.http.oauth is None:
            return await open_link(record, listener)
        if self._must_do_without(record):
            return await _without_token(open_link(_with_token(record, None), listener), record.server_id)
        token = await self._authorizer.token(record)
        link = await open_link(_with_token(record, token), listener)
        obtain = partial(self._authorizer.token, record)
        renewal = Renewal(token, obtain=obtain, clock_s=self._clock_s)
        return AuthorizedLink(link, listener, renewal, record=record)

    def _must_do_without(self, record: ServerRecord) -> bool:
        """Whether a link shows no token: none is lent by whoever logged in, for what others are shown."""
        assert record.http is not None
        assert record.http.oauth is not None
        oauth = record.http.oauth
        return oauth.per_principal and not oauth.owner and not self._authorizer.has_login(record)


async def _without_token(opening: Awaitable[Link], server_id: str) -> Link:
    try:
        return await opening
    except StartFailed as exc:
        raise StartFailed(
            f"{exc}; to have it listed, log in with `toolgate servers login {server_id} --shared`",
            state=exc.state,
            fatal=exc.fatal,
            retry_after_s=exc.retry_after_s,
        ) from exc


class AuthorizedLink:
    """A link whose token is renewed for as long as it lives."""

    def __init__(
        self, link: TokenLink, listener: LinkListener, renewal: Renewal, *, record: ServerRecord
    ) -> None:
        self._link = link
        self._record = record
        self._listener = listener
        self._renewal = renewal
        self._background = Background()
        self._background.start(renewal.run(self))
        self.hello = link.hello
        self.pid = link.pid

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientSide | None = None,
    ) -> Reply:
        try:
            return await self._link.request(
                method, params, timeout_s=timeout_s, headers=headers, client=client
            )
        except ServerUnavailable as exc:
            if exc.data.get("status") == 401:
                self._renewal.on_refused()
            if scopes := exc.data.get("scopes"):
                raise _want_of(self._record, scopes, exc) from exc
            raise

    def watch(self, uris: frozenset[str]) -> Told:
        return self._link.watch(uris)

    async def aclose(self) -> None:
        await self._background.aclose()
        await self._link.aclose()

    def take(self, token: Token) -> None:
        self._link.authorize(token.access)

    def fail(self, reason: str) -> None:
        """As if the server had gone: the pool opens another link, and tells why it cannot."""
        self._listener.on_closed(reason)


def _with_token(record: ServerRecord, token: Token | None) -> ServerRecord:
    """`record` as its transport gets it: one that has a header more, and nothing to do with OAuth."""
    assert record.http is not None
    shown = {} if token is None else {"Authorization": f"Bearer {token.access}"}
    headers = MappingProxyType({**record.http.headers, **shown})
    return replace(record, http=replace(record.http, headers=headers, oauth=None))


def _want_of(record: ServerRecord, scopes: Sequence[str], refusal: ServerUnavailable) -> ToolgateError:
    """What to say of a token that may not do this. A server's word alone gets it no other."""
    assert record.http is not None
    assert record.http.oauth is not None
    oauth = record.http.oauth
    if oauth.grant == "client_credentials":
        hint = "add the scopes in `data.scopes` to `oauth.scopes` of the server's record, if it may have them"
        return ServerUnavailable(str(refusal), hint=hint, data=refusal.data)
    more = " ".join(f"--scope {shlex.quote(scope)}" for scope in scopes)
    hint = f"log in again with `toolgate servers login {record.server_id} {more}`"
    if not oauth.owner:
        return ServerUnavailable(str(refusal), hint=f"have an administrator {hint}", data=refusal.data)
    said = f"server `{record.server_id}` wants a login that may do more than yours"
    return LoginRequired(said, hint=hint, data=refusal.data)
