"""How clients are told about the gateway: what to paste into the settings of each."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.catalog.clients import PROGRAMS, Assistant, Door, describe_selection, warn_of_length
from toolgate.govern.process import Serving
from toolgate.model.addresses import is_loopback
from toolgate.surfaces.rest.framework.request import parse_choice
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.selection import SELECTION, parse_caller, selected_url
from toolgate.surfaces.rest.shapes import Shown

_PLATFORMS: Final = ("linux", "darwin")


class AssistantShown(Shown, frozen=True, kw_only=True):
    """How one program is told."""

    id: Assistant
    title: str
    file: str | None
    """Where the document goes, or what it is merged into; `~` is the home directory. Null: its settings."""
    document: dict[str, Any]
    """Holds no key: where one is needed, it names the variable `TOOLGATE_KEY`, or says where to put it."""
    command: str | None
    """A command line that does the same, where the program has one."""
    after: str
    """What to do then."""


class ConnectAnswer(Shown, frozen=True, kw_only=True):
    """How each client is told about `url`."""

    url: str
    note: str
    """Whether new tools of packages appear at the URL. Empty: it selects neither servers nor tools."""
    warnings: list[str]
    """For example that the URL is too long for some clients."""
    clients: list[AssistantShown]


async def show_connections(serving: Serving, call: Call[None]) -> Answer:
    """What to paste into each client, so that it has the selected tools."""
    caller = parse_caller(call.caller, call.query)
    url = selected_url(serving, call, caller)
    door = Door(name=caller.task_id or "toolgate", url=url, needs_key=_needs_key(call, url))
    platform = parse_choice(call.query, "platform", _PLATFORMS) or _PLATFORMS[0]
    return Answer(
        ConnectAnswer(
            url=url,
            note=describe_selection(call.query),
            warnings=list(filter(None, [warn_of_length(url)])),
            clients=list(_show_clients(door, platform)),
        )
    )


def _needs_key(call: Call[None], url: str) -> bool:
    if "needs_key" in call.query:
        return call.flag("needs_key")
    return call.authorization is not None or not is_loopback(urlsplit(url).hostname or "")


def _show_clients(door: Door, platform: str) -> Iterator[AssistantShown]:
    for name, program in PROGRAMS.items():
        below_home = program.file_below_home(platform)
        yield AssistantShown(
            id=name,
            title=program.title,
            file=None if below_home is None else f"~/{below_home}",
            document=program.document(door),
            command=None if program.command is None else program.command(door),
            after=program.after,
        )


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/api/v1/mcp/connect",
        role="agent",
        summary="Show how to connect a client",
        handler=show_connections,
        query=(
            *SELECTION,
            Parameter(
                "needs_key",
                "Whether the client has to show a key. Unless said: where you show one, or from elsewhere.",
                form="choice",
            ),
            Parameter("platform", "`linux` or `darwin`: where files are said to be."),
        ),
        answer=ConnectAnswer,
    ),
)
