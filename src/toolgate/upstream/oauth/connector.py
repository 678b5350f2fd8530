"""Connects to servers that require a token, through the connector of their transport, and renews the token.

A server whose record has no `oauth` gets the connection of its transport, with nothing in between. Renewal
runs next to the calls and never makes one wait.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import EMPTY, HttpEndpoint, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    Acknowledgement,
    BackgroundTasks,
    ClientChannel,
    ConnectionListener,
    Connector,
    Params,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.http.stateless import StreamableConnection
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.oauth.authorizer import Authorizer
from toolgate.upstream.oauth.tokens import OAuthToken

MIN_GAP_S: Final = 5.0
"""Between two token requests, whatever the server answers to the token."""


class TokenRenewal:
    """Requests another token before one expires, and when the server rejects it."""

    def __init__(
        self,
        token: OAuthToken,
        *,
        obtain: Callable[[str | None], Awaitable[OAuthToken]],
        on_token: Callable[[OAuthToken], None],
        on_failed: Callable[[str], None],
        clock_s: Callable[[], float],
    ) -> None:
        """`obtain` takes the token that the server rejects, if any; it raises StartFailed."""
        self._token = token
        self._obtain = obtain
        self._on_token = on_token
        self._on_failed = on_failed
        self._clock_s = clock_s
        self._rejected = asyncio.Event()

    def on_rejected(self) -> None:
        """The server answered with 401."""
        self._rejected.set()

    async def run(self) -> None:
        """Until it is cancelled, or there is no token to be had."""
        while True:
            await self._wait_until_due()
            try:
                self._token = await self._obtain(self._token.access if self._rejected.is_set() else None)
            except StartFailed as exc:
                expires_at_s = self._token.expires_at_s
                if exc.fatal or (expires_at_s is not None and expires_at_s <= self._clock_s()):
                    self._on_failed(str(exc))
                    return
            else:
                self._rejected.clear()
                self._on_token(self._token)

    async def _wait_until_due(self) -> None:
        await asyncio.sleep(MIN_GAP_S)
        due_s = self._token.renew_at_s
        left_s = None if due_s is None else max(0.0, due_s - self._clock_s())
        try:
            async with asyncio.timeout(left_s):
                await self._rejected.wait()
        except TimeoutError:
            return


class OAuthConnector(Connector):
    """A connector for records with and without `oauth`."""

    def __init__(
        self, connector: StreamableConnector, authorizer: Authorizer, *, clock_s: Callable[[], float]
    ) -> None:
        self._connector = connector
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
        connect = partial(self._connector, known_revision=known_revision, capabilities=capabilities)
        if record.http is None or record.http.oauth is None:
            return await connect(record, listener)
        oauth = record.http.oauth
        # What all callers see comes from a shared login or none: no principal lends its own.
        if oauth.per_principal and not oauth.owner and not self._authorizer.has_login(record):
            plain = _with_token(record, record.http, None)
            return await _connect_without_token(connect(plain, listener), record.server_id)
        token = await self._authorizer.token(record)
        connection = await connect(_with_token(record, record.http, token), listener)
        return OAuthConnection(
            connection, listener, token, record=record, authorizer=self._authorizer, clock_s=self._clock_s
        )


async def _connect_without_token(opening: Awaitable[ServerConnection], server_id: str) -> ServerConnection:
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
    """A connection whose token is renewed as long as it lives."""

    def __init__(
        self,
        connection: StreamableConnection,
        listener: ConnectionListener,
        token: OAuthToken,
        *,
        record: ServerRecord,
        authorizer: Authorizer,
        clock_s: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._record = record
        self._renewal = TokenRenewal(
            token,
            obtain=partial(authorizer.token, record),
            on_token=lambda renewed: self.authorize(renewed.access),
            # As if the server were gone: the pool opens another connection and reports why it cannot.
            on_failed=listener.on_closed,
            clock_s=clock_s,
        )
        self._background = BackgroundTasks()
        self._background.start(self._renewal.run())
        self.server_info = connection.server_info
        self.pid = connection.pid

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
            return await self._connection.request(
                method, params, timeout_s=timeout_s, headers=headers, client=client
            )
        except ServerUnavailable as exc:
            if exc.data.get("status") == 401:
                self._renewal.on_rejected()
            if scopes := exc.data.get("scopes"):
                raise _explain_missing_scopes(self._record, scopes, exc) from exc
            raise

    def authorize(self, token: str) -> None:
        self._connection.authorize(token)

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._connection.watch(uris)

    async def aclose(self) -> None:
        await self._background.aclose()
        await self._connection.aclose()


def _with_token(record: ServerRecord, endpoint: HttpEndpoint, token: OAuthToken | None) -> ServerRecord:
    """`record` for its transport: with the token as a header, and without `oauth`."""
    added = {} if token is None else {"Authorization": f"Bearer {token.access}"}
    headers = MappingProxyType({**endpoint.headers, **added})
    return replace(record, http=replace(endpoint, headers=headers, oauth=None))


def _explain_missing_scopes(
    record: ServerRecord, scopes: Sequence[str], rejection: ServerUnavailable
) -> ToolgateError:
    """The error of a token without enough scopes. The server's claim alone gets it no other token."""
    oauth = None if record.http is None else record.http.oauth
    assert oauth is not None
    if oauth.grant == "client_credentials":
        hint = "add the scopes in `data.scopes` to `oauth.scopes` of the server's record, if it may have them"
        return ServerUnavailable(str(rejection), hint=hint, data=rejection.data)
    more = " ".join(f"--scope {shlex.quote(scope)}" for scope in scopes)
    hint = f"log in again with `toolgate servers login {record.server_id} {more}`"
    if not oauth.owner:
        return ServerUnavailable(str(rejection), hint=f"have an administrator {hint}", data=rejection.data)
    message = f"server `{record.server_id}` wants a login that may do more than yours"
    return LoginRequired(message, hint=hint, data=rejection.data)
