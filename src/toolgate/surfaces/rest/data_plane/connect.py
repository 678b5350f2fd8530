"""How clients are told about the gateway: what to paste into the settings of each."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.catalog.clients import (
    CLIENT_PROGRAMS,
    ClientKind,
    GatewayEndpoint,
    describe_selection,
    warn_about_length,
)
from toolgate.govern.process import GatewayProcess
from toolgate.model.http import is_loopback
from toolgate.surfaces.rest.data_plane.scopes import SELECTION, format_selected_url, parse_caller
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get

_PLATFORMS: Final = ("linux", "darwin")


class AssistantShown(ResponseShape, frozen=True, kw_only=True):
    """How one program is told."""

    id: ClientKind
    title: str
    file: str | None
    """Where the document goes, or what it is merged into; `~` is the home directory. Null: its settings."""
    document: dict[str, Any]
    """Holds no key: where one is needed, it names the variable `TOOLGATE_KEY`, or says where to put it."""
    command: str | None
    """A command line that does the same, where the program has one."""
    after: str
    """What to do then."""


class ConnectAnswer(ResponseShape, frozen=True, kw_only=True):
    """How each client is told about `url`."""

    url: str
    note: str
    """Whether new tools of packages appear at the URL. Empty: it selects neither servers nor tools."""
    warnings: list[str]
    """For example that the URL is too long for some clients."""
    clients: list[AssistantShown]


@get(
    "/api/v1/mcp/connect",
    "agent",
    "Show how to connect a client",
    query=(
        *SELECTION,
        Parameter(
            "needs_key",
            "Whether the client has to show a key. Unless said: where you show one, or from elsewhere.",
            form="choice",
        ),
        Parameter("platform", "`linux` or `darwin`: where files are said to be."),
    ),
)
async def show_client_setup(serving: GatewayProcess, call: RestCall[None]) -> ConnectAnswer:
    """What to paste into each client, so that it has the selected tools."""
    caller = parse_caller(call.caller, call.query)
    url = format_selected_url(serving, call, caller)
    door = GatewayEndpoint(name=caller.task_id or "toolgate", url=url, needs_key=_needs_key(call, url))
    platform = call.choice("platform", _PLATFORMS) or _PLATFORMS[0]
    return ConnectAnswer(
        url=url,
        note=describe_selection(call.query),
        warnings=list(filter(None, [warn_about_length(url)])),
        clients=list(_show_clients(door, platform)),
    )


def _needs_key(call: RestCall[None], url: str) -> bool:
    if "needs_key" in call.query:
        return call.flag("needs_key")
    return call.authorization is not None or not is_loopback(urlsplit(url).hostname or "")


def _show_clients(door: GatewayEndpoint, platform: str) -> Iterator[AssistantShown]:
    for name, program in CLIENT_PROGRAMS.items():
        below_home = program.file_below_home(platform)
        yield AssistantShown(
            id=name,
            title=program.title,
            file=None if below_home is None else f"~/{below_home}",
            document=program.document(door),
            command=None if program.command is None else program.command(door),
            after=program.after,
        )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (show_client_setup,)
