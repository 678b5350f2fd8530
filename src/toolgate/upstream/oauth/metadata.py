"""Finds the authorization server of an MCP server, from the metadata of both (RFC 9728, RFC 8414, OpenID).

Requests go only to fixed paths at the server's own address and at the issuer's, and to an address in a 401 if
that is at the server's own address.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from toolgate.model.http import is_loopback
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, NoDocument, parse_secure_target
from toolgate.upstream.http.responses import NO_CHALLENGE, BearerChallenge, parse_scopes

_OF_SERVER: Final = "/.well-known/oauth-protected-resource"
_OF_ISSUER: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_PORTS: Final = {"http": 80, "https": 443}


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
        raise OAuthFailed(f"a token is not sent there: {exc}", is_final=True) from exc
    try:
        found = await _find_resource(fetcher, url, challenge.resource_metadata)
    except FetchFailed as exc:
        raise OAuthFailed(f"what it says about its authorization cannot be read: {exc}") from exc
    if issuer is None:
        if found is None or not found.authorization_servers:
            raise OAuthFailed("it does not say who gives tokens for it: set `oauth.issuer`", is_final=True)
        issuer = found.authorization_servers[0]
        _check_address(issuer, by=url, who="it")
        fetcher = await fetcher.restrict_for(url)
    elif found is not None and found.authorization_servers and issuer not in found.authorization_servers:
        raise OAuthFailed(f"it does not take tokens of its record's `issuer`, `{_host(issuer)}`")
    resource = _without_query(url) if found is None else found.resource
    scopes = challenge.scopes or parse_scopes(() if found is None else found.scopes_supported)
    return TokenParties(resource, await find_authority(fetcher, issuer), scopes)


async def find_authority(fetcher: Fetcher, issuer: str) -> AuthorizationServer:
    """The metadata of the authorization server `issuer`, which must name exactly this issuer."""
    for address in _list_issuer_urls(issuer):
        try:
            document = await fetcher.get_json(address)
        except NoDocument:
            continue
        except FetchFailed as exc:
            raise OAuthFailed(f"the authorization server cannot be asked: {exc}") from exc
        return _parse_authority(document, issuer)
    raise OAuthFailed(f"there is no metadata of an authorization server at `{_host(issuer)}`")


def covers_url(resource: str, url: str) -> bool:
    """Whether a token for `resource` may be sent to `url`: the same URL, or one below it."""
    inner, outer = _split(url), _split(resource)
    if inner is None or outer is None or _origin(inner) != _origin(outer):
        return False
    above = outer.path.rstrip("/")
    return inner.path == outer.path or inner.path.rstrip("/") == above or inner.path.startswith(f"{above}/")


async def _find_resource(fetcher: Fetcher, url: str, named: str | None) -> ProtectedResource | None:
    """The server's metadata; None if it has none. `named` is the address from its challenge."""
    for address in _list_server_urls(url, named):
        try:
            document = await fetcher.get_json(address)
        except NoDocument:
            continue
        found: ProtectedResource = _convert(document, ProtectedResource)
        if not covers_url(found.resource, url):
            raise OAuthFailed("its metadata is about another server than the one of its record")
        return found
    return None


def _parse_authority(document: Any, issuer: str) -> AuthorizationServer:
    authority: AuthorizationServer = _convert(document, AuthorizationServer)
    if authority.issuer != issuer:
        raise OAuthFailed(f"the authorization server at `{_host(issuer)}` says it is another one")
    endpoints = (
        *(authority.token_endpoint, authority.authorization_endpoint),
        *(authority.registration_endpoint, authority.revocation_endpoint),
    )
    for endpoint in filter(None, endpoints):
        _check_address(endpoint, by=issuer, who="the authorization server")
    return authority


def _check_address(url: str, *, by: str, who: str) -> None:
    """Check an address in a document. Only this machine may name itself. Raises OAuthFailed."""
    try:
        target = parse_secure_target(url)
    except EgressRefused as exc:
        raise OAuthFailed(f"{who} names an unfit address: {exc}") from exc
    if is_loopback(target.host) and not is_loopback(urlsplit(by).hostname or ""):
        raise OAuthFailed(f"{who} names an unfit address: `{target.host}` is this machine")


def _convert(document: Any, shape: Any) -> Any:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as exc:
        raise OAuthFailed("its metadata is not what the standards say") from exc


def _list_server_urls(url: str, named: str | None) -> list[str]:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    addresses = [_build_url(parts, _OF_SERVER + end) for end in (path, "")]
    own = _split(named) if named is not None else None
    if own is not None and _origin(own) == _origin(parts):
        addresses.insert(0, _build_url(own, own.path))
    return list(dict.fromkeys(addresses))


def _list_issuer_urls(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    addresses = [_build_url(parts, known + path) for known in _OF_ISSUER]
    return [*addresses, _build_url(parts, path + _OF_ISSUER[1])] if path else addresses


def _build_url(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return _build_url(parts, parts.path)


def _split(url: str) -> SplitResult | None:
    try:
        parse_secure_target(url)
    except EgressRefused:
        return None
    return urlsplit(url)


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


def _host(url: str) -> str:
    """For people: without path or query, and without control characters."""
    return ascii(urlsplit(url).netloc[:80])[1:-1]
