"""The caller: its identity, its browser login, the servers it switched on or off, and keys.

A login stores nothing and sets no cookie: only the response contains the token. A new key is shown once and
stored as a hash. No caller can grant more than it has itself.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toolgate import __version__
from toolgate.errors import Conflict, InvalidRecord, InvalidRequest, NotFound, StorageFailed, TooManyAttempts
from toolgate.gateway.auth.identity import hash_key
from toolgate.gateway.auth.issuer import LoginPage, LoginToken
from toolgate.govern import integrations
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange, show_record
from toolgate.govern.control import Control
from toolgate.model.principals import Ceiling, IntegrationState, Role
from toolgate.model.tasks import Environment
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.policy_bodies import KeyTermsBody, QuotasBody
from toolgate.surfaces.rest.framework.request import PAGING, RestCall
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import ANYONE, delete, get, post, put
from toolgate.surfaces.rest.resources import collection
from toolgate.upstream.oauth.grants import LoginKey
from toolgate.upstream.oauth.logins import Login

Text = Annotated[str, Field(min_length=1, max_length=4_096)]


class MeShown(ResponseShape, frozen=True, kw_only=True):
    """The caller as the gateway identified it, and the gateway itself."""

    principal: str
    role: Role
    by: Literal["key", "token", "loopback"]
    """How the caller authenticated. `loopback`: without a credential, because the gateway trusts its
    machine."""
    default_task: str | None
    """The task of requests that name no task."""
    ceiling: Ceiling
    expires_at_s: float | None
    """When its key or token expires, in seconds since 1970. Null: never."""
    version: str
    """The version of Toolgate."""
    environment: Environment
    revision: Revision
    """The registry revision served."""
    calls_tools: bool
    """Whether tools can be called here. Otherwise call them at the nodes."""
    require_plan: bool
    """Whether changes of servers, tasks and profiles need the id of their plan."""


class LoginShown(ResponseShape, frozen=True, kw_only=True):
    """The ways to log in without a key."""

    oidc: LoginPage | None
    """Null: only keys are accepted."""


class CodeSent(StrictBody):
    """The authorization response that the issuer sent to the browser."""

    code: Text
    code_verifier: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{43,128}$")]
    """The PKCE code verifier (RFC 7636)."""
    redirect_uri: Text
    """The redirect URI of the authorization request: `/console/login` of this gateway."""


LOGIN: Final = "/api/v1/login"
CONSOLE_LOGIN_PATH: Final = "/console/login"
"""The console path that the issuer redirects browsers to."""


@get("/api/v1/me", "agent", "Show the caller")
async def show_me(control: Control, call: RestCall[None]) -> MeShown:
    """The caller's identity, role and ceiling, and the version and revision of this gateway.

    If the gateway trusts its own machine, it accepts this request without a key.
    """
    credential, caller = control.identities.credential(call.authorization), call.caller
    requires_plan = control.operator_policy.requires_plan
    own = {"principal": caller.id, "by": credential.kind, "require_plan": requires_plan}
    return MeShown.of(credential, caller, control.gateway.snapshot, control, version=__version__, **own)


@get(LOGIN, ANYONE, "Show how to log in with a browser")
async def show_login(control: Control, _call: RestCall[None]) -> LoginShown:
    """The issuer for a login with a browser instead of a key."""
    return LoginShown(oidc=await control.oidc_login.describe())


@post(LOGIN, ANYONE, "Log in with a browser", errors=(NotFound,))
async def log_in(control: Control, call: RestCall[CodeSent]) -> LoginToken:
    """Exchange an authorization code of the issuer for a token that this gateway accepts."""
    # The code was sent to this console, under the host of the request; a proxy may add TLS.
    own = {call.base_url, call.base_url.replace("http://", "https://", 1)}
    if control.discovery.public_url is not None:
        own.add(control.discovery.public_url.rstrip("/"))
    sent = call.body
    if sent.redirect_uri not in {url + CONSOLE_LOGIN_PATH for url in own}:
        problem = f"`redirect_uri` must be `{CONSOLE_LOGIN_PATH}` of this gateway"
        raise InvalidRequest(problem, hint="open the console at the URL in the setting `public_url`")
    return await control.oidc_login.redeem(
        sent.code, code_verifier=sent.code_verifier, redirect_uri=sent.redirect_uri
    )


_OWN: Final = "/api/v1/me/integrations"
_ALL: Final = "/admin/api/integrations"


class IntegrationSent(StrictBody):
    """The state that the caller wants for a server."""

    state: IntegrationState
    """`on`: all its tools within your key's ceiling. `read_only`: its tools that are marked as read-only, and
    its prompts and resources. `off`: nothing."""


class IntegrationShown(integrations.Integration, ResponseShape, frozen=True, kw_only=True):
    """A server within the caller's ceiling, and its state for the caller."""

    login: Annotated[Login | None, Field(description="The caller's own login to the server. Null: none.")]


class IntegrationSwitched(IntegrationShown, frozen=True, kw_only=True):
    """The integration as it was stored."""

    revision: Revision
    """The registry revision from which on every node uses this state."""


class IntegrationsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of integrations, sorted by server."""

    revision: Revision
    default: IntegrationState
    """The state of servers that the caller has not set."""
    integrations: list[IntegrationShown]
    next_cursor: NextCursor


class ChoiceShown(ResponseShape, frozen=True, kw_only=True):
    """The integrations that one caller set."""

    choice_id: str
    principal: str
    servers: dict[str, str]
    """Server id to `off`, `read_only` or `on`."""
    revision: Revision
    updated_at_ms: int


class ChoicesResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of callers with integrations they set, sorted by id."""

    choices: list[ChoiceShown]
    next_cursor: NextCursor


@get(_OWN, "agent", "List your integrations", query=PAGING)
async def show_integrations(control: Control, call: RestCall[None]) -> IntegrationsResponse:
    """Every server within your key's ceiling, with its state for you."""
    revision, default = control.gateway.snapshot.revision, call.caller.integrations
    found = await integrations.list_integrations(control, call.caller)
    page, more = call.page().cut(found, lambda one: one.server_id)
    shown = [IntegrationShown.of(one, login=_find_login(control, call, one)) for one in page]
    return IntegrationsResponse(revision=revision, default=default, integrations=shown, next_cursor=more)


_OWN_ONE: Final = f"{_OWN}/{{server_id}}"
_SWITCH: Final[dict[str, Any]] = {"errors": (Conflict, TooManyAttempts, StorageFailed)}


@put(_OWN_ONE, "agent", "Switch an integration on or off for yourself", IntegrationSwitched, **_SWITCH)
async def put_integration(control: Control, call: RestCall[IntegrationSent]) -> RestResponse:
    """Switch a server on or off for yourself: in every session, chat and invocation with your key.

    It only narrows. A server outside your key's ceiling responds like a server that does not exist.
    """
    server_id, state = call.ids["server_id"], call.body.state
    found, revision = await integrations.set_integration(control, call.caller, server_id, state)
    switched = IntegrationSwitched.of(found, revision=revision, login=_find_login(control, call, found))
    return RestResponse(switched, revision=revision)


def _find_login(control: Control, call: RestCall[Any], one: integrations.Integration) -> Login | None:
    return control.logins.of(LoginKey(one.server_id, call.caller.id)) if one.needs_login else None


@delete(_OWN_ONE, "agent", "Reset an integration to the default of your key", **_SWITCH)
async def unset_integration(control: Control, call: RestCall[None]) -> collection.Deleted:
    """Reset a server to the default state of your key."""
    revision = await integrations.reset_integration(control, call.caller, call.ids["server_id"])
    return collection.Deleted(revision=revision, warnings=[])


@get(_ALL, "admin", "List integrations set by callers", query=PAGING)
async def show_choices(control: Control, call: RestCall[None]) -> ChoicesResponse:
    """The integrations that callers set, one entry per caller."""
    found = await integrations.list_choices(control, call.caller)
    page, more = call.page().cut(found, lambda one: one.id)
    shown = [
        ChoiceShown.of(one, **{"principal": "", "servers": {}, "choice_id": one.id, **one.body})
        for one in page
    ]
    return ChoicesResponse(choices=shown, next_cursor=more)


@delete(
    f"{_ALL}/{{choice_id}}", "admin", "Reset the integrations of a caller", errors=(Conflict, StorageFailed)
)
async def reset_choices(control: Control, call: RestCall[None]) -> collection.Deleted:
    """Reset all integrations of one caller to the default of its key."""
    revision = await integrations.forget_choice(control, call.caller, call.ids["choice_id"])
    return collection.Deleted(revision=revision, warnings=[])


KEY_PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: impossible to guess, so one round of hashing is enough."""


class KeySent(KeyTermsBody):
    """The key to create. The gateway chooses its secret."""


class KeyShown(KeySent):
    """A key without its secret, which cannot be shown again."""

    revision: Revision


class KeyMade(KeyShown):
    """A new key. Only this response contains its secret."""

    secret: str
    warnings: list[str]


_LIST: Final = collection.build_list_shape("key", KeyShown)
_SHAPES: Final = collection.RecordShapes(KeySent, KeyShown, _LIST, KeyMade)
KEYS: Final = collection.RecordCollection(kind="key", path="/admin/api/keys", shapes=_SHAPES)
KEY_ENDPOINTS: Final = KEYS.endpoints("list", "read", "history")


_MAKE_ERRORS: Final = (InvalidRecord, Conflict, StorageFailed)


@post(KEYS.path, "admin", "Create a key", KeyMade, statuses=(201,), errors=_MAKE_ERRORS)
async def make_key(control: Control, call: RestCall[KeySent]) -> RestResponse:
    """Create a key. The response contains its secret, which is not stored and cannot be shown again."""
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


@put(_BUDGETS, "admin", "Set rate limits and quotas of a key", KeyShown, **_WRITE)
async def set_budgets(control: Control, call: RestCall[QuotasBody]) -> RestResponse:
    """Replace the rate limits and quotas of a key. Omitted ones are removed. Usage so far still counts."""
    stored = await find_record_within(control, call.caller, "key", call.ids["key_id"])
    key = _set_budgets(stored.body, call.body)
    if_revision = stored.revision if call.if_revision is None else call.if_revision
    draft = PendingChange(kind="key", id=stored.id, sent=key, if_revision=if_revision)
    written = await commit_changes(control, call.caller, [draft])
    return RestResponse(show_record(written.stored), revision=written.stored.revision)


@delete(KEYS.one_path, "admin", "Delete a key", collection.Deleted, **_WRITE)
async def revoke_key(control: Control, call: RestCall[None]) -> RestResponse | collection.Deleted:
    """Delete a key. The gateway rejects the next request that uses it, also within sessions."""
    return await KEYS.delete(control, call)


def _set_budgets(body: Mapping[str, Any], budgets: QuotasBody | None) -> dict[str, Any]:
    """`body` with these quotas. A key without quotas has no such field."""
    others = {name: value for name, value in body.items() if name != "budgets"}
    given = {} if budgets is None else budgets.model_dump(exclude_none=True)
    return {**others, "budgets": given} if given else others
