"""The read API of the official MCP registry, over what the caller sees of the catalog.

A client reads here how to reach a server through this gateway. Never says how the gateway itself starts or
reaches a server (commands, variables, URLs), nor that a server exists that the caller cannot reach.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.govern.catalog import find_visible
from toolgate.govern.changes.records import find_record, show_record
from toolgate.govern.control import Control
from toolgate.govern.visibility import find_tasks_by_server
from toolgate.model.http import is_loopback
from toolgate.model.revisions import StoredRecord
from toolgate.registry.interchange.server_json import PublishedIdentity, encode_server_json
from toolgate.registry.records.body import FieldDescriptions
from toolgate.surfaces.http.selection import format_server_url
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import JSON, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.servers import SERVERS


class _Official(FieldDescriptions, BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class OfficialRemote(_Official):
    """Where a server is reached: at this gateway."""

    type: Literal["streamable-http"]
    url: str
    headers: list[dict[str, Any]] | None = None
    """What a client sends to be let in, as something to fill in."""


class OfficialServer(_Official):
    """A server as `server.json` describes it. How the gateway itself starts or reaches it is not said."""

    schema_url: str = Field(alias="$schema")
    name: str
    """The gateway's namespace, a slash, the server's id."""
    title: str | None = None
    description: str
    version: str
    """Of its package; without one, `0.0.` and the revision at which its record was written."""
    remotes: list[OfficialRemote]


class OfficialMeta(_Official):
    """What a registry says of an entry."""

    status: Literal["active"]
    published_at: datetime = Field(alias="publishedAt")
    updated_at: datetime = Field(alias="updatedAt")
    is_latest: bool = Field(alias="isLatest")


class OfficialMetas(_Official):
    """What registries say of an entry, by their names."""

    official: OfficialMeta = Field(alias="io.modelcontextprotocol.registry/official")


class OfficialEntry(_Official):
    """One version of a server."""

    server: OfficialServer
    meta: OfficialMetas = Field(alias="_meta")


class OfficialPage(_Official):
    """Which part of the list this is."""

    next_cursor: str | None = Field(default=None, alias="nextCursor")
    """Where the next page begins; absent: this is the last."""
    count: int
    """How many are in this page."""


class OfficialList(_Official):
    """Servers that the caller can reach, and no others."""

    servers: list[OfficialEntry]
    metadata: OfficialPage


class OfficialNotFound(_Official):
    """Nothing of that name, or nothing that the caller can reach."""

    error: str


LOCAL_NAMESPACE: Final = "toolgate.local"
LATEST: Final = "latest"
NOT_FOUND: Final = RestResponse({"error": "Server not found"}, 404)
"""In the words of the official registry, whatever the reason."""

_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*")
_KEY: Final = {
    "name": "Authorization",
    "description": "A key of this gateway.",
    "value": "Bearer {toolgate_key}",
    "variables": {"toolgate_key": {"isRequired": True, "isSecret": True}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CatalogServer:
    """A server that the caller can reach, with the package it was installed from."""

    record: StoredRecord
    package: StoredRecord | None

    @property
    def updated_at_ms(self) -> int:
        return max(one.updated_at_ms for one in (self.record, self.package) if one is not None)

    def identity(self, namespace: str) -> PublishedIdentity:
        package: Mapping[str, Any] = {} if self.package is None else self.package.body
        return PublishedIdentity(
            name=f"{namespace}/{self.record.id}",
            version=str(package.get("version") or f"0.0.{self.record.revision}"),
            title=str(self.record.body.get("display_name") or package.get("name") or ""),
            description=" ".join(str(package.get("description", "")).split()),
        )


_ONE: Final = "/v0.1/servers/{namespace}/{server_name}/versions"


@get(
    "/v0.1/servers",
    "agent",
    "List servers as the official registry does",
    OfficialList,
    query=(
        *PAGING,
        Parameter("search", "Only servers with this in their name or title, in any case."),
        Parameter("updated_since", "Only servers that changed since this time, as in RFC 3339."),
        Parameter("version", "Only this version; `latest` is the one there is of each server."),
        Parameter("include_deleted", "Changes nothing: no server that was removed is kept.", form="flag"),
    ),
    errors=(NotFound,),
)
async def list_official(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The servers you can reach, as the official registry lists servers: each by its URL at this gateway."""
    page, since_ms = parse_page(call), _parse_since(call.query)
    servers = await _list_servers(control, call)
    namespace = namespace_of(_base_url(control, call))
    # In a thread: to look at ten thousand takes longer than the loop may stand still.
    found = await asyncio.to_thread(
        _filter_servers, servers, call.query, namespace=namespace, since_ms=since_ms
    )
    shown, next_cursor = page.cut(found, lambda one: one.record.id)
    return await _list_response(control, call, shown, next_cursor)


@get(
    _ONE,
    "agent",
    "List the versions of a server as the official registry does",
    OfficialList | OfficialNotFound,
    statuses=(200, 404),
)
async def list_versions(control: Control, call: RestCall[None]) -> RestResponse | Mapping[str, Any]:
    """The one version of a server there is here. One that you cannot reach is not there."""
    found = await _find_server(control, call)
    return NOT_FOUND if found is None else await _list_response(control, call, [found], None)


@get(
    f"{_ONE}/{{server_version}}",
    "agent",
    "Read a version of a server as the official registry does",
    OfficialEntry | OfficialNotFound,
    statuses=(200, 404),
)
async def read_version(control: Control, call: RestCall[None]) -> RestResponse | Mapping[str, Any]:
    """A version of a server; `latest` is the one there is."""
    found = await _find_server(control, call)
    wanted = call.ids["server_version"]
    if found is None or wanted not in {LATEST, found.identity("").version}:
        return NOT_FOUND
    return (await _show_servers(control, call, [found]))[0]


@get(
    f"{SERVERS.path}/{{server_id}}/server.json",
    "viewer",
    "Export a server as a server.json",
    JSON,
    errors=(NotFound, InvalidRecord),
)
async def export_server(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The record as a `server.json`, to be published elsewhere. What is hidden is left to be filled in."""
    stored = await find_record(control, "server", call.ids["server_id"])
    found = _CatalogServer(record=stored, package=None)
    return encode_server_json(found.identity(namespace_of(_base_url(control, call))), show_record(stored))


def namespace_of(url: str) -> str:
    """`https://tools.example.com` is `com.example.tools`; what means nothing elsewhere is local."""
    host = (urlsplit(url).hostname or "").lower()
    if is_loopback(host) or len(host) > 150 or not _HOST.fullmatch(host):
        return LOCAL_NAMESPACE
    return ".".join(reversed(host.split(".")))


def _filter_servers(
    servers: Sequence[_CatalogServer], query: Mapping[str, str], *, namespace: str, since_ms: float
) -> list[_CatalogServer]:
    """Those that a query asks for."""
    search, version = query.get("search", "").casefold(), query.get("version", LATEST)
    found = []
    for one in servers:
        identity = one.identity(namespace)
        is_searched = search in identity.name.casefold() or search in identity.title.casefold()
        if is_searched and version in {LATEST, identity.version} and one.updated_at_ms >= since_ms:
            found.append(one)
    return found


async def _list_servers(control: Control, call: RestCall[None]) -> list[_CatalogServer]:
    """Sorted by id."""
    within = (await find_visible(control, call.caller)).packages
    packages = {one.id: one for one in (await control.store.list("package")).records}
    return [
        _CatalogServer(record=one, package=packages.get(one.id))
        for one in (await control.store.list("server")).records
        if one.id in within
    ]


async def _find_server(control: Control, call: RestCall[None]) -> _CatalogServer | None:
    server_id = call.ids["server_name"]
    if call.ids["namespace"] != namespace_of(_base_url(control, call)):
        return None
    if server_id not in (await find_visible(control, call.caller)).packages:
        return None
    record = await control.store.get("server", server_id)
    return (
        None
        if record is None
        else _CatalogServer(record=record, package=await control.store.get("package", server_id))
    )


def _base_url(control: Control, call: RestCall[None]) -> str:
    return control.client_url() or call.base_url


async def _list_response(
    control: Control, call: RestCall[None], servers: Sequence[_CatalogServer], next_cursor: str | None
) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {} if next_cursor is None else {"nextCursor": next_cursor}
    metadata["count"] = len(servers)
    return {"servers": await _show_servers(control, call, servers), "metadata": metadata}


async def _show_servers(
    control: Control, call: RestCall[None], servers: Sequence[_CatalogServer]
) -> list[dict[str, Any]]:
    # In a thread: a key may be bound to many tasks.
    ids = {one.record.id for one in servers}
    tasks = await asyncio.to_thread(find_tasks_by_server, control.gateway, call.caller, ids)
    return [_show_server(control, call, one, tasks.get(one.record.id)) for one in servers]


def _show_server(
    control: Control, call: RestCall[None], found: _CatalogServer, task_id: str | None
) -> dict[str, Any]:
    """`task_id`: the one that a key which is bound to tasks reaches the server in."""
    door = _base_url(control, call)
    named = None if task_id == call.caller.default_task else task_id
    remote: dict[str, Any] = {
        "type": "streamable-http",
        "url": format_server_url(door, found.record.id, named),
    }
    if call.authorization is not None:
        remote["headers"] = [_KEY]
    at = datetime.fromtimestamp(found.updated_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    at = at.replace("+00:00", "Z")
    official = {"status": "active", "publishedAt": at, "updatedAt": at, "isLatest": True}
    return {
        "server": {**found.identity(namespace_of(door)).encode(), "remotes": [remote]},
        "_meta": {"io.modelcontextprotocol.registry/official": official},
    }


def _parse_since(query: Mapping[str, str]) -> float:
    """In milliseconds, or InvalidRequest."""
    if "updated_since" not in query:
        return 0
    try:
        since = datetime.fromisoformat(query["updated_since"])
        if since.tzinfo is not None:
            return since.timestamp() * 1000
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(
        "`updated_since` cannot be read", hint="send a time like `2026-01-31T12:00:00Z`, with its zone"
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (list_official, list_versions, read_version, export_server)
