"""What is shown of the caller itself, and how a person logs in to the console."""

from typing import Annotated, Literal

from pydantic import Field

from toolgate.model.principals import Role
from toolgate.model.tasks import Environment
from toolgate.registry.records.server_bodies import Body
from toolgate.surfaces.rest.shapes import Revision, Shown

Text = Annotated[str, Field(min_length=1, max_length=4_096)]


class CeilingShown(Shown, frozen=True, kw_only=True):
    """The most a caller may ever reach. Null does not restrict; an empty list lets nothing pass."""

    tasks: tuple[str, ...] | None
    """Tasks it may act for."""
    servers: tuple[str, ...] | None
    """Servers it may reach."""
    allow: tuple[str, ...] | None
    """Patterns of which a tool must match one."""
    deny: tuple[str, ...]
    """Patterns of which a tool may match none."""


class MeShown(Shown, frozen=True, kw_only=True):
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


class OidcShown(Shown, frozen=True, kw_only=True):
    """What a browser needs to send a person to the issuer: authorization code flow, with PKCE (S256)."""

    issuer: str
    authorization_endpoint: str
    """Where the issuer asks who it is."""
    client_id: str
    scope: str


class LoginShown(Shown, frozen=True, kw_only=True):
    """The ways to log in beside a key."""

    oidc: OidcShown | None
    """Null: there is none."""


class CodeSent(Body):
    """What the browser came back with from the issuer."""

    code: Text
    code_verifier: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{43,128}$")]
    """What the challenge was made of that the browser left with (RFC 7636)."""
    redirect_uri: Text
    """Where the issuer sent it back to: `/console/login` of this gateway."""


class TokenShown(Shown, frozen=True, kw_only=True):
    """A token to call this gateway with."""

    token: str
    expires_in_s: int
