"""Keeps the token of one link fresh, beside its calls. It must never make a call wait.

Opens links to servers that want a token, over the opener of their transport, and keeps the token fresh.

A server whose record has no `oauth` gets the link of its transport, and nothing in between.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Connector,
    Params,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.connection.tasks import BackgroundTasks
from toolgate.upstream.oauth.authorizer import Authorizer
from toolgate.upstream.oauth.tokens import OAuthToken

MIN_GAP_S: Final = 5.0
"""Between two requests for a token, whatever a server says to the one it is shown."""


class TokenBearer(Protocol):
    """Who shows the token to the server."""

    def take(self, token: OAuthToken) -> None:
        """Show this one from now on."""

    def fail(self, reason: str) -> None:
        """There is none any more."""


class ObtainToken(Protocol):
    """Gets another token."""

    async def __call__(self, *, refused: str | None) -> OAuthToken:
        """`refused` is the one that the server takes no more. Raises StartFailed."""


class TokenRenewal:
    """Gets another token before one expires, and when the server refuses it."""

    def __init__(self, token: OAuthToken, *, obtain: ObtainToken, clock_s: Callable[[], float]) -> None:
        self._token = token
        self._obtain = obtain
        self._clock_s = clock_s
        self._refused = asyncio.Event()

    def on_refused(self) -> None:
        """The server answered with 401."""
        self._refused.set()

    async def run(self, bearer: TokenBearer) -> None:
        """Until the link ends, or there is no token to be had."""
        while True:
            await self._until_due()
            try:
                refused = self._token.access if self._refused.is_set() else None
                self._token = await self._obtain(refused=refused)
            except StartFailed as exc:
                if exc.fatal or self._has_expired:
                    bearer.fail(str(exc))
                    return
            else:
                self._refused.clear()
                bearer.take(self._token)

    @property
    def _has_expired(self) -> bool:
        expires_at_s = self._token.expires_at_s
        return expires_at_s is not None and expires_at_s <= self._clock_s()

    async def _until_due(self) -> None:
        await asyncio.sleep(MIN_GAP_S)
        due_s = self._token.renew_at_s
        left_s = None if due_s is None else max(0.0, due_s - self._clock_s())
        try:
            async with asyncio.timeout(left_s):
                await self._refused.wait()
        except TimeoutError:
            return


class TokenConnection(ServerConnection, Protocol):
    """A link that can be given another token while it lives."""

    def authorize(self, token: str) -> None:
        """Show the server `token` with every request from now on."""


class TokenConnector(Protocol):
    """The opener of a transport whose links can."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> TokenConnection:
        """As every opener."""


class OAuthConnector(Connector):
    """An opener of records with and without `oauth`."""

    def __init__(
        self, opener: TokenConnector, authorizer: Authorizer, *, clock_s: Callable[[], float]
    ) -> None:
        self._opener = opener
        self._authorizer = authorizer
        self._clock_s = clock_s

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> ServerConnection:
        open_link = partial(self._opener, known_revision=known_revision, capabilities=capabilities)
        if record.http is None or record.http.oauth is None:
            return await open_link(record, listener)
        if self._must_do_without(record):
            return await _without_token(open_link(_with_token(record, None), listener), record.server_id)
        token = await self._authorizer.token(record)
        link = await open_link(_with_token(record, token), listener)
        obtain = partial(self._authorizer.token, record)
        renewal = TokenRenewal(token, obtain=obtain, clock_s=self._clock_s)
        return OAuthConnection(link, listener, renewal, record=record)

    def _must_do_without(self, record: ServerRecord) -> bool:
        """Whether a link shows no token: none is lent by whoever logged in, for what others are shown."""
        assert record.http is not None
        assert record.http.oauth is not None
        oauth = record.http.oauth
        return oauth.per_principal and not oauth.owner and not self._authorizer.has_login(record)


async def _without_token(opening: Awaitable[ServerConnection], server_id: str) -> ServerConnection:
    try:
        return await opening
    except StartFailed as exc:
        raise StartFailed(
            f"{exc}; to have it listed, log in with `toolgate servers login {server_id} --shared`",
            state=exc.state,
            fatal=exc.fatal,
            retry_after_s=exc.retry_after_s,
        ) from exc


class OAuthConnection:
    """A link whose token is renewed for as long as it lives."""

    def __init__(
        self,
        link: TokenConnection,
        listener: ConnectionListener,
        renewal: TokenRenewal,
        *,
        record: ServerRecord,
    ) -> None:
        self._link = link
        self._record = record
        self._listener = listener
        self._renewal = renewal
        self._background = BackgroundTasks()
        self._background.start(renewal.run(self))
        self.server_info = link.server_info
        self.pid = link.pid

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        try:
            return await self._link.request(
                method, params, timeout_s=timeout_s, headers=headers, client=client
            )
        except ServerUnavailable as exc:
            if exc.data.get("status") == 401:
                self._renewal.on_refused()
            if scopes := exc.data.get("scopes"):
                raise _explain_missing_scopes(self._record, scopes, exc) from exc
            raise

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._link.watch(uris)

    async def aclose(self) -> None:
        await self._background.aclose()
        await self._link.aclose()

    def take(self, token: OAuthToken) -> None:
        self._link.authorize(token.access)

    def fail(self, reason: str) -> None:
        """As if the server had gone: the pool opens another link, and tells why it cannot."""
        self._listener.on_closed(reason)


def _with_token(record: ServerRecord, token: OAuthToken | None) -> ServerRecord:
    """`record` as its transport gets it: one that has a header more, and nothing to do with OAuth."""
    assert record.http is not None
    shown = {} if token is None else {"Authorization": f"Bearer {token.access}"}
    headers = MappingProxyType({**record.http.headers, **shown})
    return replace(record, http=replace(record.http, headers=headers, oauth=None))


def _explain_missing_scopes(
    record: ServerRecord, scopes: Sequence[str], refusal: ServerUnavailable
) -> ToolgateError:
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
