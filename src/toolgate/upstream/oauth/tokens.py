"""The token endpoint: what is asked of it, and what it may answer (RFC 6749, section 5).

Errors show the code the authorization server gave, never its words: those may quote what was sent.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from toolgate.upstream.http.fetch import Fetcher, FetchFailed
from toolgate.upstream.oauth.metadata import Authority, OAuthFailed

# RFC 6750, 2.1. Nothing else: it goes into a header of the record, where `${…}` would be a reference.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,16384}={0,64}")
# RFC 6749, A.17.
_REFRESH = re.compile(r"[\x20-\x7e]{1,16384}")
_CODE = re.compile(r"[a-z_]{1,40}")
METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
"""How a client may prove itself. An authorization server that does not say takes the first (RFC 8414)."""
_MAX_LIFETIME_S: Final = 10 * 365 * 24 * 3600
_FINAL: Final = frozenset({"invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who asks: the gateway, by the name the authorization server knows it by."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: str | None = None
    """How it proves itself, where the gateway registered it; None: as the authorization server likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
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


class _Answer(msgspec.Struct, kw_only=True):
    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None


class TokenEndpoint:
    """Asks one authorization server for tokens."""

    def __init__(self, fetcher: Fetcher, authority: Authority, *, clock_s: Callable[[], float]) -> None:
        self._fetcher = fetcher
        self._authority = authority
        self._clock_s = clock_s

    async def ask(self, client: Client, form: Mapping[str, str]) -> Token:
        """The token that `form` earns. Raises OAuthFailed."""
        proof, authorization = _authenticate(self._authority, client)
        asked_s = self._clock_s()
        fetcher = await self._fetcher.beside(self._authority.issuer)
        try:
            status, document = await fetcher.post_form(
                self._authority.token_endpoint, {**form, **proof}, authorization=authorization
            )
        except FetchFailed as exc:
            raise OAuthFailed(f"the authorization server cannot be asked: {exc}") from exc
        if status != 200:
            raise _refusal(document)
        return _parse(document, asked_s)

    async def revoke(self, client: Client, token: Token) -> bool:
        """Give a token back, with all that came of it (RFC 7009). False: it may still be good."""
        if self._authority.revocation_endpoint is None:
            return False
        proof, authorization = _authenticate(self._authority, client)
        form = {"token": token.refresh or token.access, **proof}
        hint = "refresh_token" if token.refresh else "access_token"
        fetcher = await self._fetcher.beside(self._authority.issuer)
        try:
            status, _ = await fetcher.post_form(
                self._authority.revocation_endpoint,
                {**form, "token_type_hint": hint},
                authorization=authorization,
            )
        except FetchFailed:
            return False
        return status == 200


def _authenticate(authority: Authority, client: Client) -> tuple[dict[str, str], str | None]:
    """How a client proves who it is: in the form, and in a header."""
    if client.secret is None:
        return {"client_id": client.id}, None
    methods = authority.token_endpoint_auth_methods_supported or METHODS[:1]
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


def _parse(document: Any, asked_s: float) -> Token:
    try:
        answer = msgspec.convert(document, _Answer)
    except msgspec.ValidationError:
        # Not `from` it: the answer holds a token.
        raise OAuthFailed("the authorization server's answer holds no token") from None
    if answer.token_type.lower() != "bearer":
        raise OAuthFailed("the authorization server gives tokens of another type than `Bearer`")
    if not _TOKEN.fullmatch(answer.access_token) or not _REFRESH.fullmatch(answer.refresh_token or "-"):
        raise OAuthFailed("the authorization server's token cannot be sent in a header")
    if answer.expires_in is None:
        return Token(access=answer.access_token, refresh=answer.refresh_token)
    lifetime_s = min(max(0.0, answer.expires_in), _MAX_LIFETIME_S)
    return Token(
        access=answer.access_token,
        expires_at_s=asked_s + lifetime_s,
        lifetime_s=lifetime_s,
        refresh=answer.refresh_token,
    )
