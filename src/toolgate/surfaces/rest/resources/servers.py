"""Servers: their records, with their health here and on each node; and logins to them.

A login starts here, gets its consent in a browser, and finishes here. No response contains a token. If the
server's record has `http.oauth.per_principal`, a login is for the caller; else an admin logs in for all
callers. To an agent, a server it cannot reach looks like one that does not exist.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate import errors
from toolgate.gateway.auth.identity import reaches
from toolgate.govern.changes.commit import audit_change
from toolgate.govern.changes.permissions import may_act_on_server
from toolgate.govern.changes.records import find_record, show_record
from toolgate.govern.control import Control
from toolgate.model.principals import Principal
from toolgate.model.reports import HealthState, NodeReport
from toolgate.model.revisions import StoredRecord
from toolgate.model.servers import ServerRecord
from toolgate.policy.compose import OfferCount
from toolgate.redaction.shapes import redact_text
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import parse_server
from toolgate.registry.records.fields import OAuthScope, ServerId
from toolgate.registry.records.server_bodies import ServerBody
from toolgate.surfaces.rest.data_plane.scopes import count_reachable_tools
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import ANYONE, delete, get, post
from toolgate.surfaces.rest.resources.collection import RecordCollection, build_shapes
from toolgate.upstream.oauth.authority import CLIENT_DOCUMENT, describe_client
from toolgate.upstream.oauth.grants import LoginKey
from toolgate.upstream.oauth.logins import Login, PendingLogin
from toolgate.upstream.pool.health import STDERR_TAIL_BYTES, ServerHealth

LISTED_STDERR_CHARS: Final = 1_024
"""Of each server's stderr, in lists: a page of 500 stays below a megabyte."""


class ServerOnNode(ResponseShape, frozen=True, kw_only=True):
    """A server on a node, as of the node's last report."""

    node_id: str
    state: HealthState
    last_error: str
    hint: str
    """What a start is waiting for, or what to do about the last error."""
    tools: int
    restarts: int
    since_ms: int
    """When it entered this state, by the node's clock."""
    verified_ms: int
    """When the server last listed its tools, by the node's clock. 0: never."""


async def show_servers(control: Control, records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """Records with the health and the login of each server."""
    try:
        reports = await control.store.reports.list_reports()
    except errors.StorageUnavailable:
        reports = []  # so that a write is still acknowledged
    # In a thread: a page of records takes longer than the loop may block.
    return await asyncio.to_thread(_show_servers, control, reports, records)


def _show_servers(
    control: Control, reports: Sequence[NodeReport], records: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
    """Records with the reports of all live nodes."""
    on_nodes: dict[str, list[ServerOnNode]] = defaultdict(list)
    for node in reports:
        for server in () if node.is_lost(control.clock_ms()) else node.servers:
            error, hint = redact_text(server.last_error), redact_text(server.hint)
            shown = ServerOnNode.of(server, node_id=node.node_id, last_error=error, hint=hint)
            on_nodes[server.server_id].append(shown)
    known, offers = control.gateway.servers.health(), control.gateway.count_offers()
    tail_chars = STDERR_TAIL_BYTES if len(records) == 1 else LISTED_STDERR_CHARS
    return [
        {
            **show_record(stored),
            "updated_at_ms": stored.updated_at_ms,
            "health": show_health(known[stored.id], tail_chars) if stored.id in known else None,
            "nodes": on_nodes[stored.id],
            "login": control.logins.of(LoginKey(stored.id)),
            "offer": offers.get(stored.id),
        }
        for stored in records
    ]


def show_health(health: ServerHealth, tail_chars: int = STDERR_TAIL_BYTES) -> ServerHealth:
    """`health` without texts that look like secrets."""
    return replace(
        health,
        last_error=redact_text(health.last_error),
        hint=redact_text(health.hint),
        stderr_tail=redact_text(health.stderr_tail[-tail_chars:]),
    )


_HEALTH: Final = Field(description="The health of the server in this process. Null: unknown.")
_USED_LOGIN: Final = Field(description="The gateway's login to the server. Null: none.")
_OFFER: Final = Field(
    description="How many of its tools are offered to callers without a task. Null: unknown."
)
_ADDED: Final[Mapping[str, Any]] = {
    "updated_at_ms": int,
    "health": Annotated[ServerHealth | None, _HEALTH],
    "nodes": list[ServerOnNode],
    "login": Annotated[Login | None, _USED_LOGIN],
    "offer": Annotated[OfferCount | None, _OFFER],
}
SERVERS: Final = RecordCollection(
    kind="server",
    path="/admin/api/mcp/servers",
    shapes=build_shapes("server", ServerBody, ServerId, added=_ADDED),
    show=show_servers,
    query=(Parameter("tag", "Only servers with this tag."),),
    matches_query=lambda query, stored: "tag" not in query or query["tag"] in stored.body.get("tags", ()),
)
SERVER_ENDPOINTS: Final = SERVERS.endpoints()


_LOGIN: Final = "/api/v1/mcp/servers/{server_id}/login"


class LoginSent(StrictBody):
    """A login to begin."""

    redirect_uri: Annotated[str, Field(max_length=200)]
    """Where the browser returns to: `http://127.0.0.1:PORT/callback`, on the machine of the browser."""
    shared: bool = False
    """Log in for the gateway as a whole, even if each principal has its login. Needs the role `admin`."""
    scopes: list[OAuthScope] = Field(default_factory=list, max_length=64)
    """OAuth scopes to request in addition to those of the previous login."""


class LoginFinishSent(StrictBody):
    """The parameters of the browser's redirect."""

    state: Annotated[str, Field(max_length=200)]
    code: Annotated[str, Field(min_length=1, max_length=4_096)]
    iss: Annotated[str, Field(max_length=4_096)] | None = None
    """The issuer in the redirect (RFC 9207)."""
    shared: bool = False
    """The same value as at the begin of the login."""


class ClientShown(ResponseShape, frozen=True, kw_only=True):
    """The metadata of an OAuth client (RFC 7591). Its URL is the client id."""

    client_id: str
    client_name: str
    client_uri: str
    application_type: str
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: str


class LoginFinished(ResponseShape, frozen=True, kw_only=True):
    """A finished login: the gateway may use the server."""

    server_id: str
    login: Login


class LoginEnded(ResponseShape, frozen=True, kw_only=True):
    """An ended login: the gateway may no longer use the server."""

    server_id: str
    revoked: bool
    """Whether the authorization server confirmed the revocation. If not, the token may still be valid."""


_BEGIN_ERRORS: Final = (errors.ServerBusy, errors.ServerUnavailable)
_FINISH_ERRORS: Final = (errors.ServerUnavailable, errors.StorageFailed)


@post(_LOGIN, "agent", "Begin a login to a server", errors=_BEGIN_ERRORS)
async def begin_login(control: Control, call: RestCall[LoginSent]) -> PendingLogin:
    """Begin a login, and return the URL at which you consent that the gateway uses the server.

    If the server's record has `http.oauth.per_principal`, the login is for you, else for all callers. The
    browser returns to `redirect_uri` with a code.
    """
    sent, principal = call.body, call.caller.id
    record = await _find_server(control, call, is_shared=sent.shared)
    return await control.logins.begin(
        record, principal=principal, redirect_uri=sent.redirect_uri, scopes=sent.scopes
    )


@post(f"{_LOGIN}/finish", "agent", "Finish a login to a server", errors=_FINISH_ERRORS)
async def finish_login(control: Control, call: RestCall[LoginFinishSent]) -> LoginFinished:
    """Exchange the code of the redirect for a token, and connect to the server with it."""
    sent = call.body
    record = await _find_server(control, call, is_shared=sent.shared)
    login_key = _login_owner(record)
    login = await control.logins.finish(
        login_key, principal=call.caller.id, state=sent.state, code=sent.code, issuer=sent.iss
    )
    _audit_login(control, call.caller, "login", login_key)
    if not login_key.owner:
        await control.gateway.servers.refresh(login_key.server_id)
    return LoginFinished(server_id=login_key.server_id, login=login)


_SHARED: Final = Parameter("shared", "End the login of the gateway as a whole.", "flag")


@delete(_LOGIN, "agent", "Log out of a server", query=(_SHARED,), errors=(errors.StorageFailed,))
async def end_login(control: Control, call: RestCall[None]) -> LoginEnded:
    """Delete the token, revoke it at its authorization server, and close the connections that use it."""
    record = await _find_server(control, call, is_shared=call.flag("shared"))
    login_key = _login_owner(record)
    revoke = await control.logins.end(record)
    if revoke is None:
        whose = "you have" if login_key.owner else "the gateway has"
        raise errors.NotFound(f"{whose} no login to server `{login_key.server_id}`")
    _audit_login(control, call.caller, "logout", login_key)
    return LoginEnded(server_id=login_key.server_id, revoked=await revoke())


@get(CLIENT_DOCUMENT, ANYONE, "Show the OAuth client metadata", ClientShown, errors=(errors.NotFound,))
async def show_client(control: Control, _call: RestCall[None]) -> Mapping[str, Any]:
    """The client metadata of this gateway. This URL is its `client_id` at authorization servers."""
    url = control.logins.own_url
    if url is None:
        hint = "set `public_url` to its `https` URL"
        raise errors.NotFound("this gateway has no client metadata document", hint=hint)
    return describe_client(url)


async def _find_server(control: Control, call: RestCall[Any], *, is_shared: bool) -> ServerRecord:
    """The record, with the owner of the login. Raises NotFound and Forbidden."""
    server_id, caller = call.ids["server_id"], call.caller
    is_admin = reaches(caller.role, "admin") and may_act_on_server(caller, server_id)
    if not is_admin and server_id not in count_reachable_tools(control.gateway, caller):
        raise errors.NotFound(f"no server `{server_id}`", hint="list those you can reach")
    record = parse_server((await find_record(control, "server", server_id)).body, strict=False)
    if record.is_per_principal and not is_shared:
        return record.owned_by(caller.id)
    if not is_admin:
        raise errors.Forbidden("logging in for all callers of a server needs the role `admin`")
    return record


def _login_owner(record: ServerRecord) -> LoginKey:
    oauth = record.http.oauth if record.http is not None else None
    return LoginKey(record.server_id, "" if oauth is None else oauth.owner)


def _audit_login(control: Control, caller: Principal, operation: str, login_key: LoginKey) -> None:
    """Audit the change, and replace the connections that use the previous token."""
    audit_change(control, caller, operation=operation, kind="server", record_id=login_key.server_id)
    control.gateway.servers.reconnect(*login_key)
