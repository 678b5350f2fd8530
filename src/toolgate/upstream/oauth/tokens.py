"""The token endpoint: what is asked of it, and what it may answer (RFC 6749, section 5).

Errors show the code the authorization server gave, never its words: those may quote what was sent.

As whom the gateway comes to an authorization server that no operator has registered it at.

By the URL of its own metadata where both sides can do that; else it registers itself, anew for each login
(RFC 7591): what one authorization server gave is never shown to another.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from toolgate.upstream.http.fetch import Fetcher, FetchFailed
from toolgate.upstream.oauth.metadata import AuthorizationServer, OAuthFailed

# RFC 6750, 2.1. Nothing else: it goes into a header of the record, where `${…}` would be a reference.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,16384}={0,64}")
# RFC 6749, A.17.
_REFRESH = re.compile(r"[\x20-\x7e]{1,16384}")
_CODE = re.compile(r"[a-z_]{1,40}")
CLIENT_AUTH_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
"""How a client may prove itself. An authorization server that does not say takes the first (RFC 8414)."""
_MAX_LIFETIME_S: Final = 10 * 365 * 24 * 3600
_FINAL: Final = frozenset({"invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """Who asks: the gateway, by the name the authorization server knows it by."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: str | None = None
    """How it proves itself, where the gateway registered it; None: as the authorization server likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthToken:
    """What a server is shown, until when, and what gets another."""

    access: str = field(repr=False)
    expires_at_s: float | None = None
    """Unix time. None: it was not said."""
    lifetime_s: float = 0.0
    refresh: str | None = field(default=None, repr=False)

    @property
    def renew_at_s(self) -> float | None:
        """A moment before it expires."""
        return None if self.expires_at_s is None else self.expires_at_s - min(60.0, self.lifetime_s / 4)


class _TokenResponse(msgspec.Struct, kw_only=True):
    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None


class TokenEndpoint:
    """Asks one authorization server for tokens."""

    def __init__(
        self, fetcher: Fetcher, authority: AuthorizationServer, *, clock_s: Callable[[], float]
    ) -> None:
        self._fetcher = fetcher
        self._authority = authority
        self._clock_s = clock_s

    async def ask(self, client: OAuthClient, form: Mapping[str, str]) -> OAuthToken:
        """The token that `form` earns. Raises OAuthFailed."""
        proof, authorization = _authenticate(self._authority, client)
        asked_s = self._clock_s()
        fetcher = await self._fetcher.restrict_for(self._authority.issuer)
        try:
            status, document = await fetcher.post_form(
                self._authority.token_endpoint, {**form, **proof}, authorization=authorization
            )
        except FetchFailed as exc:
            raise OAuthFailed(f"the authorization server cannot be asked: {exc}") from exc
        if status != 200:
            raise _refusal(document)
        return _parse(document, asked_s)

    async def revoke(self, client: OAuthClient, token: OAuthToken) -> bool:
        """Give a token back, with all that came of it (RFC 7009). False: it may still be good."""
        if self._authority.revocation_endpoint is None:
            return False
        proof, authorization = _authenticate(self._authority, client)
        form = {"token": token.refresh or token.access, **proof}
        hint = "refresh_token" if token.refresh else "access_token"
        fetcher = await self._fetcher.restrict_for(self._authority.issuer)
        try:
            status, _ = await fetcher.post_form(
                self._authority.revocation_endpoint,
                {**form, "token_type_hint": hint},
                authorization=authorization,
            )
        except FetchFailed:
            return False
        return status == 200


def _authenticate(authority: AuthorizationServer, client: OAuthClient) -> tuple[dict[str, str], str | None]:
    """How a client proves who it is: in the form, and in a header."""
    if client.secret is None:
        return {"client_id": client.id}, None
    methods = authority.token_endpoint_auth_methods_supported or CLIENT_AUTH_METHODS[:1]
    methods = methods if client.method is None else (client.method,)
    if "client_secret_basic" in methods:
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        return {}, f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
    if "client_secret_post" in methods:
        return {"client_id": client.id, "client_secret": client.secret}, None
    raise OAuthFailed("the authorization server takes no client secret, as its metadata says", is_final=True)


def _refusal(document: Any) -> OAuthFailed:
    code = document.get("error") if isinstance(document, dict) else None
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return OAuthFailed("the authorization server refuses, and does not say why")
    return OAuthFailed(f"the authorization server refuses: {code}", is_final=code in _FINAL)


def _parse(document: Any, asked_s: float) -> OAuthToken:
    try:
        answer = msgspec.convert(document, _TokenResponse)
    except msgspec.ValidationError:
        # Not `from` it: the answer holds a token.
        raise OAuthFailed("the authorization server's answer holds no token") from None
    if answer.token_type.lower() != "bearer":
        raise OAuthFailed("the authorization server gives tokens of another type than `TokenBearer`")
    if not _TOKEN.fullmatch(answer.access_token) or not _REFRESH.fullmatch(answer.refresh_token or "-"):
        raise OAuthFailed("the authorization server's token cannot be sent in a header")
    if answer.expires_in is None:
        return OAuthToken(access=answer.access_token, refresh=answer.refresh_token)
    lifetime_s = min(max(0.0, answer.expires_in), _MAX_LIFETIME_S)
    return OAuthToken(
        access=answer.access_token,
        expires_at_s=asked_s + lifetime_s,
        lifetime_s=lifetime_s,
        refresh=answer.refresh_token,
    )


CLIENT_DOCUMENT: Final = "/.well-known/oauth-client"
"""Where the gateway's own metadata is found."""
_NAME: Final = "Toolgate"
_MAX_CHARS: Final = 4_096


class _RegisteredClient(msgspec.Struct, kw_only=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def describe_client(client_id: str) -> Mapping[str, Any]:
    """The metadata of the gateway as a client known by a URL. Of a loopback address, the port is open."""
    return {"client_id": client_id, "client_uri": client_id.removesuffix(CLIENT_DOCUMENT)} | _metadata(
        "http://127.0.0.1/callback", "none"
    )


async def find_client(
    fetcher: Fetcher, authority: AuthorizationServer, *, own_url: str | None, redirect_uri: str
) -> OAuthClient:
    """A client of ours at `authority`. Raises OAuthFailed."""
    if own_url is not None and authority.client_id_metadata_document_supported:
        return OAuthClient(id=own_url)
    if authority.registration_endpoint is None:
        raise OAuthFailed(
            "its authorization server does not let clients register themselves: "
            "register one there and name it in `oauth.client_id`"
        )
    return await _register(fetcher, authority, redirect_uri)


async def _register(fetcher: Fetcher, authority: AuthorizationServer, redirect_uri: str) -> OAuthClient:
    assert authority.registration_endpoint is not None
    asked = msgspec.json.encode(_metadata(redirect_uri, _method(authority)))
    beside = await fetcher.restrict_for(authority.issuer)
    try:
        answer = await beside.post_json(authority.registration_endpoint, asked)
    except FetchFailed as exc:
        raise OAuthFailed(f"the authorization server cannot be asked: {exc}") from exc
    if answer.status not in (200, 201):
        raise OAuthFailed(f"the authorization server registers no client (status {answer.status})")
    try:
        found = msgspec.json.decode(answer.body, type=_RegisteredClient)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not `from` it: the answer holds a secret.
        raise OAuthFailed("the authorization server's answer names no client") from None
    return _parse_client(found, authority)


def _parse_client(found: _RegisteredClient, authority: AuthorizationServer) -> OAuthClient:
    method = found.token_endpoint_auth_method or _method(authority)
    secret = None if method == "none" else found.client_secret
    if method not in CLIENT_AUTH_METHODS or (secret is None) != (method == "none"):
        raise OAuthFailed("the authorization server registers clients of a kind that this gateway is not")
    for text in filter(None, (found.client_id, secret)):
        if not text.isascii() or not text.isprintable() or len(text) > _MAX_CHARS:
            raise OAuthFailed("the authorization server names a client that cannot be sent back")
    return OAuthClient(id=found.client_id, secret=secret, method=method)


def _method(authority: AuthorizationServer) -> str:
    """How to prove who we are: by nothing, where that will do, since every login is another client."""
    methods = authority.token_endpoint_auth_methods_supported
    return next(
        (method for method in ("none", *CLIENT_AUTH_METHODS) if methods is None or method in methods), "none"
    )


def _metadata(redirect_uri: str, method: str) -> dict[str, Any]:
    return {
        "client_name": _NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
