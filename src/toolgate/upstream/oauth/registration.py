"""As whom the gateway comes to an authorization server that no operator has registered it at.

By the URL of its own metadata where both sides can do that; else it registers itself, anew for each login
(RFC 7591): what one authorization server gave is never shown to another.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolgate.upstream.http.fetch import Fetcher, FetchFailed
from toolgate.upstream.oauth.metadata import Authority, OAuthFailed
from toolgate.upstream.oauth.tokens import METHODS, Client

CLIENT_DOCUMENT: Final = "/.well-known/oauth-client"
"""Where the gateway's own metadata is found."""
_NAME: Final = "Toolgate"
_MAX_CHARS: Final = 4_096


class _Registered(msgspec.Struct, kw_only=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def describe_client(client_id: str) -> Mapping[str, Any]:
    """The metadata of the gateway as a client known by a URL. Of a loopback address, the port is open."""
    return {"client_id": client_id, "client_uri": client_id.removesuffix(CLIENT_DOCUMENT)} | _metadata(
        "http://127.0.0.1/callback", "none"
    )


async def find_client(
    fetcher: Fetcher, authority: Authority, *, own_url: str | None, redirect_uri: str
) -> Client:
    """A client of ours at `authority`. Raises OAuthFailed."""
    if own_url is not None and authority.client_id_metadata_document_supported:
        return Client(id=own_url)
    if authority.registration_endpoint is None:
        raise OAuthFailed(
            "its authorization server does not let clients register themselves: "
            "register one there and name it in `oauth.client_id`"
        )
    return await _register(fetcher, authority, redirect_uri)


async def _register(fetcher: Fetcher, authority: Authority, redirect_uri: str) -> Client:
    assert authority.registration_endpoint is not None
    asked = msgspec.json.encode(_metadata(redirect_uri, _method(authority)))
    beside = await fetcher.beside(authority.issuer)
    try:
        answer = await beside.post_json(authority.registration_endpoint, asked)
    except FetchFailed as exc:
        raise OAuthFailed(f"the authorization server cannot be asked: {exc}") from exc
    if answer.status not in (200, 201):
        raise OAuthFailed(f"the authorization server registers no client (status {answer.status})")
    try:
        found = msgspec.json.decode(answer.body, type=_Registered)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not `from` it: the answer holds a secret.
        raise OAuthFailed("the authorization server's answer names no client") from None
    return _parse_client(found, authority)


def _parse_client(found: _Registered, authority: Authority) -> Client:
    method = found.token_endpoint_auth_method or _method(authority)
    secret = None if method == "none" else found.client_secret
    if method not in METHODS or (secret is None) != (method == "none"):
        raise OAuthFailed("the authorization server registers clients of a kind that this gateway is not")
    for text in filter(None, (found.client_id, secret)):
        if not text.isascii() or not text.isprintable() or len(text) > _MAX_CHARS:
            raise OAuthFailed("the authorization server names a client that cannot be sent back")
    return Client(id=found.client_id, secret=secret, method=method)


def _method(authority: Authority) -> str:
    """How to prove who we are: by nothing, where that will do, since every login is another client."""
    methods = authority.token_endpoint_auth_methods_supported
    return next((method for method in ("none", *METHODS) if methods is None or method in methods), "none")


def _metadata(redirect_uri: str, method: str) -> dict[str, Any]:
    return {
        "client_name": _NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
