"""Integrations: the servers that a caller switches on and off for itself, within its key's ceiling."""

from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed, TooManyAttempts
from toolgate.govern.control import Control
from toolgate.govern.integrations import (
    Integration,
    forget_choice,
    list_choices,
    list_integrations,
    reset_integration,
    set_integration,
)
from toolgate.model.principals import IntegrationState
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.rest.framework.paging import PAGING, NextCursor, parse_page
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, get, put
from toolgate.surfaces.rest.resources.collection import Deleted

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


class IntegrationSwitched(IntegrationShown, frozen=True, kw_only=True):
    """The same, as it was stored."""

    revision: Revision
    """From this revision of the registry on, every node decides by it."""


class IntegrationsAnswer(ResponseShape, frozen=True, kw_only=True):
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


class ChoicesAnswer(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by id."""

    choices: list[ChoiceShown]
    next_cursor: NextCursor


@get(_OWN, "agent", "List your integrations", query=PAGING)
async def show_integrations(control: Control, call: RestCall[None]) -> IntegrationsAnswer:
    """Every server within your key's ceiling, and how much of it you have switched on."""
    revision = control.gateway.snapshot.revision
    found = await list_integrations(control, call.caller)
    shown, more = parse_page(call).cut(found, lambda one: one.server_id)
    return IntegrationsAnswer(
        revision=revision,
        default=call.caller.integrations,
        integrations=[IntegrationShown(**_integration_members(one)) for one in shown],
        next_cursor=more,
    )


@put(
    f"{_OWN}/{{server_id}}",
    "agent",
    "Switch an integration on or off for yourself",
    IntegrationSwitched,
    errors=(InvalidRecord, NotFound, Conflict, TooManyAttempts, StorageFailed),
)
async def put_integration(control: Control, call: RestCall[IntegrationSent]) -> RestResponse:
    """Switch a server on or off for yourself: in every session, chat and run with your key, from now on.

    It only narrows. A server that your key does not reach answers like one that does not exist.
    """
    found, revision = await set_integration(control, call.caller, call.ids["server_id"], call.body.state)
    return RestResponse(
        IntegrationSwitched(**_integration_members(found), revision=revision), revision=revision
    )


@delete(
    f"{_OWN}/{{server_id}}",
    "agent",
    "Reset an integration to the default of your key",
    errors=(NotFound, Conflict, TooManyAttempts, StorageFailed),
)
async def unset_integration(control: Control, call: RestCall[None]) -> Deleted:
    """Have of a server what your key gives before you choose."""
    revision = await reset_integration(control, call.caller, call.ids["server_id"])
    return Deleted(revision=revision, warnings=[])


@get(_ALL, "admin", "List what callers have chosen for themselves", query=PAGING)
async def show_choices(control: Control, call: RestCall[None]) -> ChoicesAnswer:
    """What all callers have chosen for themselves."""
    shown, more = parse_page(call).cut(await list_choices(control, call.caller), lambda one: one.id)
    choices = [
        ChoiceShown(
            choice_id=one.id,
            principal=str(one.body.get("principal", "")),
            servers=dict(one.body.get("servers", {})),
            revision=one.revision,
            updated_at_ms=one.updated_at_ms,
        )
        for one in shown
    ]
    return ChoicesAnswer(choices=choices, next_cursor=more)


@delete(
    f"{_ALL}/{{choice_id}}",
    "admin",
    "Reset the integrations of a caller",
    errors=(NotFound, Conflict, StorageFailed),
)
async def reset_choices(control: Control, call: RestCall[None]) -> Deleted:
    """Reset all that one caller has chosen: it has what its key gives before it chooses."""
    revision = await forget_choice(control, call.caller, call.ids["choice_id"])
    return Deleted(revision=revision, warnings=[])


def _integration_members(one: Integration) -> dict[str, Any]:
    return {
        "server_id": one.server_id,
        "display_name": one.display_name,
        "state": one.state,
        "chosen": one.is_chosen,
        "tools": one.tools,
        "read_only_tools": one.read_only_tools,
        "writing_tools": one.tools - one.read_only_tools,
    }


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    show_integrations,
    put_integration,
    unset_integration,
    show_choices,
    reset_choices,
)
