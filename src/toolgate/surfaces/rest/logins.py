"""Logging in to a server: begun here, agreed to in a browser, finished here. No answer holds a token."""

from typing import Any, Final

from toolgate.errors import InvalidRequest, NotFound, ServerUnavailable
from toolgate.govern.changes import note
from toolgate.govern.control import Control
from toolgate.govern.records import find_record
from toolgate.registry.records import parse_server
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.record_shapes import (
    LoginBegun,
    LoginEnded,
    LoginFinished,
    LoginFinishSent,
    LoginSent,
)
from toolgate.surfaces.rest.routing import Call, Endpoint, checked
from toolgate.surfaces.rest.servers import SERVERS
from toolgate.upstream.oauth.logins import LOGIN_S, Logins

_LOGIN: Final = f"{SERVERS.path}/{{server_id}}/login"


async def begin_login(control: Control, call: Call[LoginSent]) -> Answer:
    """Where to agree that the gateway may use the server on your behalf, for every caller of this gateway.

    Its authorization server is asked first. The browser comes back to `redirect_uri` with a code.
    """
    server_id = call.ids["server_id"]
    stored = await find_record(control, "server", server_id)
    begun = await _logins(control).begin(
        parse_server(stored.body, strict=False),
        principal=call.caller.id,
        redirect_uri=call.body.redirect_uri,
    )
    return Answer(LoginBegun(authorization_url=begun.url, state=begun.state, expires_in_s=LOGIN_S))


async def finish_login(control: Control, call: Call[LoginFinishSent]) -> Answer:
    """Hand in what the browser came back with. The server is connected to with the token that it earns."""
    server_id = call.ids["server_id"]
    await find_record(control, "server", server_id)
    sent = call.body
    login = await _logins(control).finish(
        server_id, principal=call.caller.id, state=sent.state, code=sent.code, issuer=sent.iss
    )
    note(control, call.caller, operation="login", kind="server", record_id=server_id)
    await control.gateway.servers.refresh(server_id)
    return Answer(LoginFinished(server_id=server_id, login=login))


async def end_login(control: Control, call: Call[None]) -> Answer:
    """Forget the token. A connection that is open may show it until it ends."""
    server_id = call.ids["server_id"]
    await find_record(control, "server", server_id)
    if not _logins(control).end(server_id):
        raise NotFound(f"nobody is logged in to server `{server_id}`")
    note(control, call.caller, operation="logout", kind="server", record_id=server_id)
    return Answer(LoginEnded(server_id=server_id))


def _logins(control: Control) -> Logins:
    if control.logins is None:
        raise InvalidRequest(
            "nobody can log in here: this process calls no servers",
            hint="use the grant `client_credentials` where nodes run apart from control",
        )
    return control.logins


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="POST",
        path=_LOGIN,
        role="admin",
        summary="Begin to log in to a server",
        handler=begin_login,
        body=checked(LoginSent),
        answer=LoginBegun,
        errors=(NotFound, ServerUnavailable),
    ),
    Endpoint(
        method="POST",
        path=f"{_LOGIN}/finish",
        role="admin",
        summary="Finish logging in to a server",
        handler=finish_login,
        body=checked(LoginFinishSent),
        answer=LoginFinished,
        errors=(NotFound, ServerUnavailable),
    ),
    Endpoint(
        method="DELETE",
        path=_LOGIN,
        role="admin",
        summary="Log out of a server",
        handler=end_login,
        answer=LoginEnded,
        errors=(NotFound,),
    ),
)
