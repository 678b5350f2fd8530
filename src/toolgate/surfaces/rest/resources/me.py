"""Who calls, as the gateway knows it, and how a person with a browser becomes somebody.

Logging in stores nothing and sets no cookie: the token that it earns is in the answer, and nowhere else.
"""

from typing import Any, Final

from toolgate import __version__
from toolgate.errors import InvalidRequest, NotFound
from toolgate.gateway.auth.issuer import OidcLogin
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import ANYONE, Call, Endpoint, checked
from toolgate.surfaces.rest.me_shapes import (
    CeilingShown,
    CodeSent,
    LoginShown,
    MeShown,
    OidcShown,
    TokenShown,
)

LOGIN: Final = "/api/v1/login"
COMES_BACK_TO: Final = "/console/login"
"""The path of the console that the issuer sends browsers back to."""


async def show_me(control: Control, call: Call[None]) -> Answer:
    """Who you are here, how far you reach, and which gateway this is.

    Where the gateway trusts its own machine, it answers without a key.
    """
    caller, ceiling = call.caller, call.caller.ceiling
    credential = control.identities.credential(call.authorization)
    snapshot = control.gateway.snapshot
    return Answer(
        MeShown(
            principal=caller.id,
            role=caller.role,
            by=credential.kind,
            default_task=caller.default_task,
            ceiling=CeilingShown(
                tasks=ceiling.tasks, servers=ceiling.servers, allow=ceiling.allow, deny=ceiling.deny
            ),
            expires_at_s=credential.expires_at_s,
            version=__version__,
            environment=snapshot.environment,
            revision=snapshot.revision,
            calls_tools=control.calls_tools,
            require_plan=control.terms.requires_plan,
        )
    )


async def show_login(control: Control, _call: Call[None]) -> Answer:
    """How a person can log in with a browser, beside showing a key."""
    login = control.oidc_login
    if login is None:
        return Answer(LoginShown(oidc=None))
    client = login.client
    return Answer(
        LoginShown(
            oidc=OidcShown(
                issuer=client.issuer,
                authorization_endpoint=await login.authorization_endpoint(),
                client_id=client.client_id,
                scope=" ".join(client.scopes),
            )
        )
    )


async def log_in(control: Control, call: Call[CodeSent]) -> Answer:
    """Exchange the code that the issuer sent the browser back with for a token that is good here."""
    login, sent = _login(control), call.body
    _check_came_back_here(control, call)
    earned = await login.redeem(sent.code, code_verifier=sent.code_verifier, redirect_uri=sent.redirect_uri)
    return Answer(TokenShown(token=earned.token, expires_in_s=earned.expires_in_s))


def _login(control: Control) -> OidcLogin:
    if control.oidc_login is None:
        raise NotFound(
            "nobody can log in here with a browser", hint="set `oidc.client_id`; or call with a key"
        )
    return control.oidc_login


def _check_came_back_here(control: Control, call: Call[CodeSent]) -> None:
    """The code was sent to this console, by the name it is called by; a proxy may speak TLS for it."""
    own = {call.base_url, call.base_url.replace("http://", "https://", 1)}
    if control.discovery is not None and control.discovery.public_url is not None:
        own.add(control.discovery.public_url.rstrip("/"))
    if call.body.redirect_uri not in {url + COMES_BACK_TO for url in own}:
        raise InvalidRequest(
            f"`redirect_uri` is not `{COMES_BACK_TO}` of this gateway",
            hint="open the console by the URL that `public_url` says",
        )


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/api/v1/me",
        role="agent",
        summary="Who you are here",
        handler=show_me,
        answer=MeShown,
    ),
    Endpoint(
        method="GET",
        path=LOGIN,
        role=ANYONE,
        summary="How to log in with a browser",
        handler=show_login,
        answer=LoginShown,
    ),
    Endpoint(
        method="POST",
        path=LOGIN,
        role=ANYONE,
        summary="Log in with a browser",
        handler=log_in,
        body=checked(CodeSent),
        answer=TokenShown,
        errors=(NotFound,),
    ),
)
