"""The caller: who it is, its browser login, the servers it switched on and off for itself, and keys.

Logging in stores nothing and sets no cookie: only the response holds the token. Keys are made here, shown
once, stored as a hash; no one grants more than they have themselves.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field

from toolgate import __version__
from toolgate.errors import Conflict, InvalidRecord, InvalidRequest, NotFound, StorageFailed, TooManyAttempts
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern import integrations
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange, show_record
from toolgate.govern.control import Control
from toolgate.model.principals import IntegrationState, Role
from toolgate.model.tasks import Environment
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.fields import Name, UnixTime
from toolgate.registry.records.policy_bodies import CeilingBody, QuotasBody
from toolgate.surfaces.rest.framework.request import PAGING, RestCall, parse_page
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import ANYONE, delete, get, post, put
from toolgate.surfaces.rest.resources import collection

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
    credential, caller = control.identities.credential(call.authorization), call.caller
    requires_plan = control.operator_policy.requires_plan
    own = {"principal": caller.id, "by": credential.kind, "require_plan": requires_plan}
    return MeShown.of(credential, caller, control.gateway.snapshot, control, version=__version__, **own)


@get(LOGIN, ANYONE, "How to log in with a browser")
async def show_login(control: Control, _call: RestCall[None]) -> LoginShown:
    """How a person can log in with a browser instead of a key."""
    page = await control.oidc_login.describe()
    return LoginShown(oidc=None if page is None else OidcShown.of(page))


@post(LOGIN, ANYONE, "Log in with a browser", errors=(NotFound,))
async def log_in(control: Control, call: RestCall[CodeSent]) -> TokenShown:
    """Exchange the code that the issuer sent the browser back with for a token that is good here."""
    _check_redirect_uri(control, call)
    sent = call.body
    earned = await control.oidc_login.redeem(
        sent.code, code_verifier=sent.code_verifier, redirect_uri=sent.redirect_uri
    )
    return TokenShown.of(earned)


def _check_redirect_uri(control: Control, call: RestCall[CodeSent]) -> None:
    """The code was sent to this console, by the name it is called by; a proxy may speak TLS for it."""
    own = {call.base_url, call.base_url.replace("http://", "https://", 1)}
    if control.discovery.public_url is not None:
        own.add(control.discovery.public_url.rstrip("/"))
    if call.body.redirect_uri not in {url + CONSOLE_LOGIN_PATH for url in own}:
        problem = f"`redirect_uri` is not `{CONSOLE_LOGIN_PATH}` of this gateway"
        raise InvalidRequest(problem, hint="open the console by the URL that `public_url` says")


_OWN: Final = "/api/v1/me/integrations"
_ALL: Final = "/admin/api/integrations"


class IntegrationSent(StrictBody):
    """How much of a server the caller wants to have."""

    state: IntegrationState
    """`on`: all its tools that your key reaches. `read_only`: those of them that are marked as read-only, and
    its prompts and resources. `off`: nothing."""


class IntegrationShown(ResponseShape, frozen=True, kw_only=True):
    """A server within the caller's ceiling, and how much of it the caller has switched on."""

    server_id: str
    display_name: str
    state: IntegrationState
    chosen: bool
    """Whether the caller chose that state. Else it is what its key gives before it chooses."""
    tools: int
    """Those that your key reaches, switched on or not."""
    read_only_tools: int
    """Those of them whose definition says that they change nothing."""
    writing_tools: int
    """The others."""


S = TypeVar("S", bound=IntegrationShown)


class IntegrationSwitched(IntegrationShown, frozen=True, kw_only=True):
    """The same, as it was stored."""

    revision: Revision
    """From this revision of the registry on, every node decides by it."""


class IntegrationsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by server."""

    revision: Revision
    default: IntegrationState
    """What the caller has of a server that it has not chosen for."""
    integrations: list[IntegrationShown]
    next_cursor: NextCursor


class ChoiceShown(ResponseShape, frozen=True, kw_only=True):
    """What one caller has chosen."""

    choice_id: str
    principal: str
    servers: dict[str, str]
    """Server id to `off`, `read_only` or `on`."""
    revision: Revision
    updated_at_ms: int


class ChoicesResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by id."""

    choices: list[ChoiceShown]
    next_cursor: NextCursor


@get(_OWN, "agent", "List your integrations", query=PAGING)
async def show_integrations(control: Control, call: RestCall[None]) -> IntegrationsResponse:
    """Every server within your key's ceiling, and how much of it you have switched on."""
    revision, default = control.gateway.snapshot.revision, call.caller.integrations
    found = await integrations.list_integrations(control, call.caller)
    page, more = parse_page(call).cut(found, lambda one: one.server_id)
    shown = [_show_integration(IntegrationShown, one) for one in page]
    return IntegrationsResponse(revision=revision, default=default, integrations=shown, next_cursor=more)


@put(
    f"{_OWN}/{{server_id}}",
    "agent",
    "Switch an integration on or off for yourself",
    IntegrationSwitched,
    errors=(Conflict, TooManyAttempts, StorageFailed),
)
async def put_integration(control: Control, call: RestCall[IntegrationSent]) -> RestResponse:
    """Switch a server on or off for yourself: in every session, chat and run with your key, from now on.

    It only narrows. A server that your key does not reach answers like one that does not exist.
    """
    server_id, state = call.ids["server_id"], call.body.state
    found, revision = await integrations.set_integration(control, call.caller, server_id, state)
    return RestResponse(_show_integration(IntegrationSwitched, found, revision=revision), revision=revision)


@delete(
    f"{_OWN}/{{server_id}}",
    "agent",
    "Reset an integration to the default of your key",
    errors=(Conflict, TooManyAttempts, StorageFailed),
)
async def unset_integration(control: Control, call: RestCall[None]) -> collection.Deleted:
    """Have of a server what your key gives before you choose."""
    revision = await integrations.reset_integration(control, call.caller, call.ids["server_id"])
    return collection.Deleted(revision=revision, warnings=[])


@get(_ALL, "admin", "List what callers have chosen for themselves", query=PAGING)
async def show_choices(control: Control, call: RestCall[None]) -> ChoicesResponse:
    """What all callers have chosen for themselves."""
    found = await integrations.list_choices(control, call.caller)
    page, more = parse_page(call).cut(found, lambda one: one.id)
    shown = [
        ChoiceShown.of(one, **{"principal": "", "servers": {}, "choice_id": one.id, **one.body})
        for one in page
    ]
    return ChoicesResponse(choices=shown, next_cursor=more)


@delete(
    f"{_ALL}/{{choice_id}}", "admin", "Reset the integrations of a caller", errors=(Conflict, StorageFailed)
)
async def reset_choices(control: Control, call: RestCall[None]) -> collection.Deleted:
    """Reset all that one caller has chosen: it has what its key gives before it chooses."""
    revision = await integrations.forget_choice(control, call.caller, call.ids["choice_id"])
    return collection.Deleted(revision=revision, warnings=[])


def _show_integration(shape: type[S], one: integrations.Integration, **more: int) -> S:
    return shape.of(one, chosen=one.is_chosen, writing_tools=one.tools - one.read_only_tools, **more)


KEY_PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: nothing to guess, so one round of hashing is enough."""


class KeySent(StrictBody):
    """A key to be made. Its secret is chosen by the gateway."""

    key_id: Name
    """The principal's name in audit and logs."""
    role: Role
    """At most the role of who makes it."""
    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach; within the ceiling of who makes it."""
    default_task: Name | None = None
    """The task of a request that names none."""
    expires_at_s: UnixTime | None = None
    """Unix time after which it proves nothing."""
    budgets: QuotasBody | None = None
    """What all who use it may use over time, together."""
    integrations: IntegrationState = "on"
    """What its callers have of each server before they choose for themselves: `on` all its tools, `read_only`
    those marked as read-only, `off` nothing."""


class KeyShown(KeySent):
    """A key without its secret, which cannot be shown again."""

    revision: Revision


class KeyMade(KeyShown):
    """A new key. Only this response ever holds its secret."""

    secret: str
    warnings: list[str]


_LIST: Final = collection.build_list_shape("key", KeyShown)
_SHAPES: Final = collection.RecordShapes(KeySent, KeyShown, _LIST, KeyMade)
KEYS: Final = collection.RecordCollection(kind="key", path="/admin/api/keys", shapes=_SHAPES)
KEY_ENDPOINTS: Final = KEYS.endpoints("list", "read", "history")


_MAKE_ERRORS: Final = (InvalidRecord, Conflict, StorageFailed)


@post(KEYS.path, "admin", "Make a key", KeyMade, statuses=(201,), errors=_MAKE_ERRORS)
async def make_key(control: Control, call: RestCall[KeySent]) -> RestResponse:
    """Make a key. The answer holds its secret, which is not stored and cannot be shown again."""
    sent = call.body
    secret = KEY_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    body = {**sent.model_dump(exclude_none=True), "sha256": hash_key(secret)}
    key = _set_budgets(body, sent.budgets)
    draft = PendingChange(kind="key", id=sent.key_id, sent=key, if_revision=0)
    made = await commit_changes(control, call.caller, [draft])
    shown = {**show_record(made.stored), "secret": secret, "warnings": made.warnings}
    return RestResponse(shown, 201, revision=made.stored.revision)


_BUDGETS: Final = f"{KEYS.one_path}/budgets"
_WRITE: Final[dict[str, Any]] = {"errors": (StorageFailed,), "is_conditional": True}


@put(_BUDGETS, "admin", "Set what a key may use over time", KeyShown, **_WRITE)
async def set_budgets(control: Control, call: RestCall[QuotasBody]) -> RestResponse:
    """Replace what a key may use over time; budgets left out are taken away. What is used stays used."""
    stored = await find_record_within(control, call.caller, "key", call.ids["key_id"])
    key = _set_budgets(stored.body, call.body)
    if_revision = stored.revision if call.if_revision is None else call.if_revision
    draft = PendingChange(kind="key", id=stored.id, sent=key, if_revision=if_revision)
    written = await commit_changes(control, call.caller, [draft])
    return RestResponse(show_record(written.stored), revision=written.stored.revision)


@delete(KEYS.one_path, "admin", "Revoke a key", **_WRITE)
async def revoke_key(control: Control, call: RestCall[None]) -> collection.Deleted:
    """Delete a key. The next request that shows it is refused, whatever session it belongs to."""
    draft = PendingChange(kind="key", id=call.ids["key_id"], sent=None, if_revision=call.if_revision)
    done = await commit_changes(control, call.caller, [draft])
    return collection.Deleted.of(done)


def _set_budgets(body: Mapping[str, Any], budgets: QuotasBody | None) -> dict[str, Any]:
    """A key that has none says nothing of them."""
    others = {name: value for name, value in body.items() if name != "budgets"}
    given = {} if budgets is None else budgets.model_dump(exclude_none=True)
    return {**others, "budgets": given} if given else others
