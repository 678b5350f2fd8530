"""The caller as the gateway knows it, and how a person logs in with a browser.

Logging in stores nothing and sets no cookie: only the response holds the token.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toolgate import __version__
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern.control import Control
from toolgate.model.principals import Role
from toolgate.model.tasks import Environment
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint, get, post

Text = Annotated[str, Field(min_length=1, max_length=4_096)]


class CeilingShown(ResponseShape, frozen=True, kw_only=True):
    """The most a caller may ever reach. Null does not restrict; an empty list lets nothing pass."""

    tasks: tuple[str, ...] | None
    """Tasks it may act for."""
    servers: tuple[str, ...] | None
    """Servers it may reach."""
    allow: tuple[str, ...] | None
    """Patterns of which a tool must match one."""
    deny: tuple[str, ...]
    """Patterns of which a tool may match none."""


class MeShown(ResponseShape, frozen=True, kw_only=True):
    """The caller, as the gateway knows it, and the gateway it has reached."""

    principal: str
    role: Role
    by: Literal["key", "token", "loopback"]
    """What proved it. `loopback`: nothing did, and this gateway trusts its own machine."""
    default_task: str | None
    """The task of its requests that name none."""
    ceiling: CeilingShown
    expires_at_s: float | None
    """When its key or token ends, in seconds since 1970. Null: not by itself."""
    version: str
    """Of Toolgate."""
    environment: Environment
    revision: Revision
    """The registry revision served."""
    calls_tools: bool
    """Whether tools can be called here. Else at the nodes."""
    require_plan: bool
    """Whether a change of a server, task or profile must name the plan that showed it."""


class OidcShown(ResponseShape, frozen=True, kw_only=True):
    """What a browser needs to send a person to the issuer: authorization code flow, with PKCE (S256)."""

    issuer: str
    authorization_endpoint: str
    """Where the issuer asks who it is."""
    client_id: str
    scope: str


class LoginShown(ResponseShape, frozen=True, kw_only=True):
    """The ways to log in without a key."""

    oidc: OidcShown | None
    """Null: only keys."""


class CodeSent(StrictBody):
    """What the browser came back with from the issuer."""

    code: Text
    code_verifier: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{43,128}$")]
    """What the challenge was made of that the browser left with (RFC 7636)."""
    redirect_uri: Text
    """Where the issuer sent it back to: `/console/login` of this gateway."""


class TokenShown(ResponseShape, frozen=True, kw_only=True):
    """A token to call this gateway with."""

    token: str
    expires_in_s: int


LOGIN: Final = "/api/v1/login"
CONSOLE_LOGIN_PATH: Final = "/console/login"
"""The path of the console that the issuer sends browsers back to."""


@get("/api/v1/me", "agent", "Who you are here")
async def show_me(control: Control, call: RestCall[None]) -> MeShown:
    """Who you are here, how far you reach, and which gateway this is.

    Where the gateway trusts its own machine, it answers without a key.
    """
    caller, ceiling = call.caller, call.caller.ceiling
    credential = control.identities.credential(call.authorization)
    snapshot = control.gateway.snapshot
    return MeShown(
        principal=caller.id,
        role=caller.role,
        by=credential.kind,
        default_task=caller.default_task,
        ceiling=CeilingShown.of(ceiling),
        expires_at_s=credential.expires_at_s,
        version=__version__,
        environment=snapshot.environment,
        revision=snapshot.revision,
        calls_tools=control.calls_tools,
        require_plan=control.operator_policy.requires_plan,
    )


@get(LOGIN, ANYONE, "How to log in with a browser")
async def show_login(control: Control, _call: RestCall[None]) -> LoginShown:
    """How a person can log in with a browser instead of a key."""
    page = await control.oidc_login.describe()
    return LoginShown(oidc=None if page is None else OidcShown(**page._asdict()))


@post(LOGIN, ANYONE, "Log in with a browser", errors=(NotFound,))
async def log_in(control: Control, call: RestCall[CodeSent]) -> TokenShown:
    """Exchange the code that the issuer sent the browser back with for a token that is good here."""
    _check_redirect_uri(control, call)
    sent = call.body
    earned = await control.oidc_login.redeem(
        sent.code, code_verifier=sent.code_verifier, redirect_uri=sent.redirect_uri
    )
    return TokenShown(token=earned.token, expires_in_s=earned.expires_in_s)


def _check_redirect_uri(control: Control, call: RestCall[CodeSent]) -> None:
    """The code was sent to this console, by the name it is called by; a proxy may speak TLS for it."""
    own = {call.base_url, call.base_url.replace("http://", "https://", 1)}
    if control.discovery.public_url is not None:
        own.add(control.discovery.public_url.rstrip("/"))
    if call.body.redirect_uri not in {url + CONSOLE_LOGIN_PATH for url in own}:
        raise InvalidRequest(
            f"`redirect_uri` is not `{CONSOLE_LOGIN_PATH}` of this gateway",
            hint="open the console by the URL that `public_url` says",
        )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (show_me, show_login, log_in)
