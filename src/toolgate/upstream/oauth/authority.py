"""The authorization server of an MCP server: metadata, client registration, token endpoint.

It is found from the metadata of both servers (RFC 9728, RFC 8414, OpenID). Requests go only to fixed paths at
the server's own address and at the issuer's, and to an address in a 401 if that is at the server's own.

The client is known by the URL of its own metadata if both sides support that; else the gateway registers a
new one for each login (RFC 7591), so no authorization server ever sees what another one issued. Errors of the
token endpoint (RFC 6749, section 5) show the server's error code, never its message, which may quote what was
sent.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, quote_plus, urlsplit, urlunsplit

import msgspec

from toolgate.model.http import is_loopback
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, NoDocument, parse_secure_target
from toolgate.upstream.http.responses import NO_CHALLENGE, BearerChallenge, parse_scopes

_OF_SERVER: Final = "/.well-known/oauth-protected-resource"
_OF_ISSUER: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class OAuthFailed(Exception):
    """There is no token. The message is for operators, and holds no credential."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Retrying is pointless until a person changes something."""


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an MCP server."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False


@dataclass(frozen=True, slots=True)
class TokenParties:
    """The resource that a token is for, and who issues it."""

    resource: str
    authority: AuthorizationServer
    scopes: tuple[str, ...] = ()
    """The scopes that the server claims to require; see `BearerChallenge`."""


async def find_parties(
    fetcher: Fetcher, url: str, issuer: str | None, challenge: BearerChallenge = NO_CHALLENGE
) -> TokenParties:
    """The parties for the server at `url`, which may have sent `challenge`. Raises OAuthFailed.

    If `issuer` is set, no other authorization server will do.
    """
    try:
        parse_secure_target(url)
    except EgressRefused as exc:
        raise OAuthFailed(f"the gateway sends no token to its URL: {exc}", is_final=True) from exc
    try:
        found = await _find_resource(fetcher, url, challenge.resource_metadata)
    except FetchFailed as exc:
        raise OAuthFailed(f"its authorization metadata cannot be read: {exc}") from exc
    if issuer is None:
        if found is None or not found.authorization_servers:
            raise OAuthFailed("its metadata names no authorization server: set `oauth.issuer`", is_final=True)
        issuer = found.authorization_servers[0]
        _check_address(issuer, by=url, owner="it")
        fetcher = await fetcher.restrict_for(url)
    elif found is not None and found.authorization_servers and issuer not in found.authorization_servers:
        raise OAuthFailed(f"it does not accept tokens of its record's `issuer`, `{_host(issuer)}`")
    parts = urlsplit(url)
    resource = _build_url(parts, parts.path) if found is None else found.resource
    scopes = challenge.scopes or parse_scopes(() if found is None else found.scopes_supported)
    return TokenParties(resource, await find_authority(fetcher, issuer), scopes)


async def find_authority(fetcher: Fetcher, issuer: str) -> AuthorizationServer:
    """The metadata of the authorization server `issuer`, which must name exactly this issuer."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    addresses = [_build_url(parts, known + path) for known in _OF_ISSUER]
    if path:
        addresses.append(_build_url(parts, path + _OF_ISSUER[1]))
    for address in addresses:
        try:
            document = await fetcher.get_json(address)
        except NoDocument:
            continue
        except FetchFailed as exc:
            raise _unreachable(exc) from exc
        authority: AuthorizationServer = _convert(document, AuthorizationServer)
        if authority.issuer != issuer:
            raise OAuthFailed(
                f"the metadata of the authorization server at `{_host(issuer)}` names another issuer"
            )
        endpoints = (
            *(authority.token_endpoint, authority.authorization_endpoint),
            *(authority.registration_endpoint, authority.revocation_endpoint),
        )
        for endpoint in filter(None, endpoints):
            _check_address(endpoint, by=issuer, owner="the authorization server")
        return authority
    raise OAuthFailed(f"no metadata of an authorization server at `{_host(issuer)}`")


def covers_url(resource: str, url: str) -> bool:
    """Whether a token for `resource` may be sent to `url`: the same URL, or one below it."""
    if not _have_same_origin(url, resource):
        return False
    inner, outer = urlsplit(url).path, urlsplit(resource).path
    above = outer.rstrip("/")
    return inner == outer or inner.rstrip("/") == above or inner.startswith(f"{above}/")


async def _find_resource(fetcher: Fetcher, url: str, named: str | None) -> ProtectedResource | None:
    """The server's metadata; None if it has none. `named` is the address from its challenge."""
    parts = urlsplit(url)
    addresses = [_build_url(parts, _OF_SERVER + end) for end in (parts.path.rstrip("/"), "")]
    if named is not None and _have_same_origin(named, url):
        addresses.insert(0, _build_url(urlsplit(named), urlsplit(named).path))
    for address in dict.fromkeys(addresses):
        try:
            document = await fetcher.get_json(address)
        except NoDocument:
            continue
        found: ProtectedResource = _convert(document, ProtectedResource)
        if not covers_url(found.resource, url):
            raise OAuthFailed("its metadata describes another server than its record")
        return found
    return None


def _check_address(url: str, *, by: str, owner: str) -> None:
    """Check an address in a document. Only this machine may name itself. Raises OAuthFailed."""
    try:
        target = parse_secure_target(url)
    except EgressRefused as exc:
        raise OAuthFailed(f"{owner} names an address that is not allowed: {exc}") from exc
    if is_loopback(target.host) and not is_loopback(urlsplit(by).hostname or ""):
        raise OAuthFailed(f"{owner} names an address that is not allowed: `{target.host}` is this machine")


def _convert(document: Any, shape: Any) -> Any:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as exc:
        raise OAuthFailed("its metadata is not valid (RFC 9728, RFC 8414)") from exc


def _build_url(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _have_same_origin(url: str, other: str) -> bool:
    try:
        return parse_secure_target(url).origin == parse_secure_target(other).origin
    except EgressRefused:
        return False


def _host(url: str) -> str:
    """For people: without path or query, and without control characters."""
    return ascii(urlsplit(url).netloc[:80])[1:-1]


def _unreachable(exc: FetchFailed) -> OAuthFailed:
    return OAuthFailed(f"the request to the authorization server failed: {exc}")


CLIENT_DOCUMENT: Final = "/.well-known/oauth-client"
"""The path of the gateway's client metadata."""
CLIENT_AUTH_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
"""How a client may authenticate. By default, an authorization server supports the first (RFC 8414)."""

# RFC 6750, 2.1. Nothing else: it goes into a header of the record, where `${…}` would be a reference.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,16384}={0,64}")
# RFC 6749, A.17.
_REFRESH = re.compile(r"[\x20-\x7e]{1,16384}")
_CODE = re.compile(r"[a-z_]{1,40}")
_MAX_LIFETIME_S: Final = 10 * 365 * 24 * 3600  # a choice: ten years; keeps infinite and absurd numbers out
_MAX_CHARS: Final = 4_096  # of a client id or secret. A choice: both must fit into one request head
_FINAL: Final = frozenset({"invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The gateway, as an authorization server knows it."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: str | None = None
    """How it authenticates if the gateway registered it; None: as the authorization server prefers."""


class OAuthToken(msgspec.Struct, frozen=True, kw_only=True):
    """An access token, its expiry, and what renews it."""

    access: str
    expires_at_s: float | None = None
    """Unix time. None: unknown."""
    lifetime_s: float = 0.0
    refresh: str | None = None

    def __repr__(self) -> str:
        return f"<token until {self.expires_at_s}>"

    @property
    def renew_at_s(self) -> float | None:
        """A moment before it expires."""
        return None if self.expires_at_s is None else self.expires_at_s - min(60.0, self.lifetime_s / 4)


class _TokenResponse(msgspec.Struct, kw_only=True):
    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Requests tokens from one authorization server, and revokes them."""

    fetcher: Fetcher
    authority: AuthorizationServer
    clock_s: Callable[[], float]

    async def request(self, client: OAuthClient, form: Mapping[str, str]) -> OAuthToken:
        """The token for `form`. Raises OAuthFailed."""
        began_s = self.clock_s()
        try:
            status, document = await self._post(self.authority.token_endpoint, client, form)
        except FetchFailed as exc:
            raise _unreachable(exc) from exc
        if status != 200:
            code = document.get("error") if isinstance(document, dict) else None
            if not isinstance(code, str) or not _CODE.fullmatch(code):
                raise OAuthFailed("the authorization server rejected the request without an error code")
            raise OAuthFailed(
                f"the authorization server rejected the request: {code}", is_final=code in _FINAL
            )
        return _parse_token(document, began_s)

    async def revoke(self, client: OAuthClient, token: OAuthToken) -> bool:
        """Revoke a token and all tokens derived from it (RFC 7009). False: it may still be valid."""
        if self.authority.revocation_endpoint is None:
            return False
        hint = "refresh_token" if token.refresh else "access_token"
        form = {"token": token.refresh or token.access, "token_type_hint": hint}
        try:
            status, _ = await self._post(self.authority.revocation_endpoint, client, form)
        except FetchFailed:
            return False
        return status == 200

    async def _post(self, url: str, client: OAuthClient, form: Mapping[str, str]) -> tuple[int, Any]:
        credentials, authorization = _authenticate(self.authority, client)
        fetcher = await self.fetcher.restrict_for(self.authority.issuer)
        return await fetcher.post_form(url, {**form, **credentials}, authorization=authorization)


def _authenticate(authority: AuthorizationServer, client: OAuthClient) -> tuple[dict[str, str], str | None]:
    """The form fields and the header by which a client authenticates."""
    if client.secret is None:
        return {"client_id": client.id}, None
    methods = authority.token_endpoint_auth_methods_supported or CLIENT_AUTH_METHODS[:1]
    methods = methods if client.method is None else (client.method,)
    if "client_secret_basic" in methods:
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        return {}, f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
    if "client_secret_post" in methods:
        return {"client_id": client.id, "client_secret": client.secret}, None
    raise OAuthFailed("the authorization server's metadata allows no client secret", is_final=True)


def _parse_token(document: Any, began_s: float) -> OAuthToken:
    try:
        response = msgspec.convert(document, _TokenResponse)
    except msgspec.ValidationError:
        # Not `from` it: the response holds a token.
        raise OAuthFailed("the authorization server's response holds no token") from None
    access, refresh = response.access_token, response.refresh_token
    if response.token_type.lower() != "bearer":
        raise OAuthFailed("the authorization server issues tokens of another type than `Bearer`")
    if not _TOKEN.fullmatch(access) or not _REFRESH.fullmatch(refresh or "-"):
        raise OAuthFailed("the authorization server's token cannot be sent in a header")
    if response.expires_in is None:
        return OAuthToken(access=access, refresh=refresh)
    lifetime_s = min(max(0.0, response.expires_in), _MAX_LIFETIME_S)
    until_s = began_s + lifetime_s
    return OAuthToken(access=access, expires_at_s=until_s, lifetime_s=lifetime_s, refresh=refresh)


class _RegisteredClient(msgspec.Struct, kw_only=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def describe_client(client_id: str) -> Mapping[str, Any]:
    """The metadata of the gateway as a client known by a URL. Loopback redirects may use any port."""
    own = {"client_id": client_id, "client_uri": client_id.removesuffix(CLIENT_DOCUMENT)}
    return own | _build_metadata("http://127.0.0.1/callback", "none")


async def find_client(
    fetcher: Fetcher, authority: AuthorizationServer, *, own_url: str | None, redirect_uri: str
) -> OAuthClient:
    """The gateway's client at `authority`, registered if necessary. Raises OAuthFailed."""
    if own_url is not None and authority.client_id_metadata_document_supported:
        return OAuthClient(id=own_url)
    if authority.registration_endpoint is None:
        raise OAuthFailed(
            "its authorization server has no dynamic client registration: "
            "register a client there and set `oauth.client_id`"
        )
    # No authentication if the server allows that, since every login has its own client.
    methods = authority.token_endpoint_auth_methods_supported
    ranked = ("none", *CLIENT_AUTH_METHODS)
    method = next((one for one in ranked if methods is None or one in methods), "none")
    body = msgspec.json.encode(_build_metadata(redirect_uri, method))
    restricted = await fetcher.restrict_for(authority.issuer)
    try:
        response = await restricted.post_json(authority.registration_endpoint, body)
    except FetchFailed as exc:
        raise _unreachable(exc) from exc
    if response.status not in (200, 201):
        raise OAuthFailed(f"the authorization server registered no client (status {response.status})")
    try:
        found = msgspec.json.decode(response.body, type=_RegisteredClient)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not `from` it: the response holds a secret.
        raise OAuthFailed("the authorization server's response names no client") from None
    return _check_client(found, found.token_endpoint_auth_method or method)


def _check_client(found: _RegisteredClient, method: str) -> OAuthClient:
    secret = None if method == "none" else found.client_secret
    if method not in CLIENT_AUTH_METHODS or (secret is None) != (method == "none"):
        raise OAuthFailed(
            "the authorization server registered a kind of client that this gateway does not support"
        )
    for text in filter(None, (found.client_id, secret)):
        if not text.isascii() or not text.isprintable() or len(text) > _MAX_CHARS:
            raise OAuthFailed("the authorization server registered a client that cannot be sent in a request")
    return OAuthClient(id=found.client_id, secret=secret, method=method)


def _build_metadata(redirect_uri: str, method: str) -> dict[str, Any]:
    return {
        "client_name": "Toolgate",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
