"""Servers from the files of other programs, stored together or not at all; and the official registry.

The read API of the official MCP registry is over what the caller sees of the catalog: how to reach a server
through this gateway. Never says how the gateway itself starts or reaches a server (command, variables, URL),
nor that a server exists that the caller cannot reach.
"""

import asyncio
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolgate.errors import InvalidRecord, InvalidRequest
from toolgate.govern.catalog import find_visible
from toolgate.govern.changes.commit import commit_changes, plan_changes, select_valid_changes
from toolgate.govern.changes.records import PendingChange, RecordEdit, find_record, show_record
from toolgate.govern.control import Control
from toolgate.govern.visibility import find_tasks_by_server
from toolgate.model.http import is_loopback
from toolgate.model.revisions import StoredRecord
from toolgate.model.servers import ServerRecord
from toolgate.registry.interchange.definitions import ImportResult
from toolgate.registry.interchange.imports import ImportFormat, parse_imports
from toolgate.registry.interchange.server_json import PublishedIdentity, encode_server_json
from toolgate.registry.records.body import FieldDescriptions, StrictBody
from toolgate.registry.records.codec import parse_id
from toolgate.registry.records.fields import Patterns, ServerId
from toolgate.surfaces.http.parsing import format_server_url
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall, parse_page, validate_as
from toolgate.surfaces.rest.framework.response import JSON, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import get, post
from toolgate.surfaces.rest.resources.changes import (
    MAX_CHANGES,
    WRITE,
    ApplyResponse,
    ChangeShown,
    PlanResponse,
    show_commit,
    show_plan,
)
from toolgate.surfaces.rest.resources.servers import SERVERS

_MAX_NAMED: Final = 8
"""Servers named in a warning, which is read in a terminal."""
_FORM_LISTS: Final = ("allowed_tools", "only")
_FORM_FLAGGED: Final = ("skip_invalid", "dry_run")
_FORM_FLAGS: Final = {"true": True, "false": False}


class ImportSent(StrictBody):
    """Definitions of servers, as another program keeps them."""

    content: dict[str, JsonValue] | list[JsonValue] | str
    """The file: JSON as it is, or as text, which may hold comments; or TOML, or a catalog's YAML, as text."""
    format: ImportFormat = "auto"
    """`mcpServers` (editors, mcp-hub, MCPHub, FastMCP), `litellm` (also Codex), `contextforge`,
    `agentgateway`, `server.json` (the official registry), `docker` (a catalog of Docker's MCP gateway),
    `registry` (records of Toolgate)."""
    allowed_tools: Patterns = Field(default_factory=list)
    """Patterns of the tools to allow, for servers of which the file neither lists nor hides tools. Without
    any, such a server offers nothing if it is new."""
    only: Annotated[list[ServerId], Field(max_length=MAX_CHANGES)] | None = None
    """The ids of the servers to store, as a dry run finds them. Without it, all."""
    skip_invalid: bool = False
    """Leave out what could not be stored, and say why, instead of storing nothing at all."""
    dry_run: bool = False
    """Say what would change, and change nothing."""


class SkippedShown(ResponseShape, frozen=True, kw_only=True):
    """A definition that no record could be made of, or whose record could not be stored."""

    name: str
    """As the file has it; of a record, its id."""
    reason: str


class ImportResponse(ResponseShape, frozen=True, kw_only=True):
    """What became of the definitions."""

    revision: Revision
    servers: list[str]
    """The ids of all that were found."""
    changes: list[ChangeShown]
    skipped: list[SkippedShown]
    warnings: list[str]
    plan: str | None
    """Of a dry run: the id of its plan."""
    effect: PlanResponse | None
    """Of a dry run: what it would do to each task."""


def _read_form(parts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The members of ImportSent, from a form. Raises InvalidRequest."""
    sent: dict[str, Any] = {}
    for name, text in parts:
        member = "content" if name == "file" else name
        if member in _FORM_LISTS:
            sent.setdefault(member, []).append(text)
        elif member in sent:
            problem = f"duplicate part `{ascii(name[:80])[1:-1]}`"
            raise InvalidRequest(problem, hint="send one file in one request")
        else:
            sent[member] = _FORM_FLAGS.get(text, text) if member in _FORM_FLAGGED else text
    return sent


@post(
    f"{SERVERS.path}/import",
    "admin",
    "Import servers of another program",
    body=replace(validate_as(ImportSent), parse_form_fields=_read_form),
    **WRITE,
)
async def import_servers(control: Control, call: RestCall[ImportSent]) -> ImportResponse:
    """Store the servers that a file of another program defines. What is allowed of a known one stays so.

    The file may also be uploaded as `multipart/form-data`: the part `file`, and the other members as parts of
    their names; `allowed_tools` and `only` once for each entry. Web pages must send JSON.
    """
    sent = call.body
    found = await asyncio.to_thread(parse_imports, sent.content, sent.format)
    if len(found.bodies) > MAX_CHANGES:
        raise InvalidRecord(f"the file defines more than {MAX_CHANGES} servers")
    drafts = await _select_drafts(control, call, found)
    shown: ApplyResponse | PlanResponse
    if sent.dry_run:
        planned = await plan_changes(control, call.caller, drafts)
        warnings = [*planned.warnings, *_warn_of_denied(planned.plan.edits, found.restricted)]
        shown = await show_plan(planned.plan, planned.revision, warnings)
    else:
        done = await commit_changes(control, call.caller, drafts, plan_id=call.plan_id)
        warnings = [*done.warnings, *_warn_of_denied(done.edits, found.restricted)]
        shown = await show_commit(done)
    effect = shown if isinstance(shown, PlanResponse) else None
    return ImportResponse.of(
        shown,
        servers=[body["server_id"] for body in found.bodies],
        skipped=[SkippedShown(name=name, reason=reason) for name, reason in found.skipped.items()],
        warnings=[*found.warnings, *warnings],
        plan=None if effect is None else effect.id,
        effect=effect,
    )


async def _select_drafts(
    control: Control, call: RestCall[ImportSent], found: ImportResult
) -> list[PendingChange]:
    """What of the file is to be stored. What cannot be joins what was skipped, where that was asked for."""
    sent = call.body
    allowed = sent.allowed_tools
    drafts = [_draft(one, [] if one["server_id"] in found.restricted else allowed) for one in found.bodies]
    if sent.only is not None:
        wanted = set(sent.only)
        drafts = [draft for draft in drafts if draft.id in wanted]
    if sent.skip_invalid:
        drafts, wrong = await select_valid_changes(control, call.caller, drafts)
        found.skipped.update(wrong)
    return drafts


def _draft(body: Mapping[str, Any], allowed: list[str]) -> PendingChange:
    server_id = parse_id("server", body["server_id"])
    sent = ({"allowed_tools": allowed} if allowed else {}) | dict(body)
    # What is allowed now is looked up when the draft is checked, in the turn that commits it.
    return PendingChange(kind="server", id=server_id, sent=sent, is_declared=True, keeping=("allowed_tools",))


def _warn_of_denied(edits: Sequence[RecordEdit], warned: Container[str]) -> Iterator[str]:
    """Most files allow nothing, so a server that was only imported offers nothing. `warned` are known."""
    records = (edit.record for edit in edits)
    servers = [one for one in records if isinstance(one, ServerRecord) and one.server_id not in warned]
    denied = [f"`{server.server_id}`" for server in servers if not server.allowed_tools]
    if denied:
        shown = ", ".join(denied[:_MAX_NAMED]) + (" and others" if len(denied) > _MAX_NAMED else "")
        yield f"no tool is allowed yet of {shown}: import again with `--allow '*'`, or set `allowed_tools`"


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
        Parameter("include_deleted", "Changes nothing: no server that was removed is kept.", "flag"),
    ),
)
async def list_official(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The servers you can reach, as the official registry lists servers: each by its URL at this gateway."""
    page, query, since_ms = parse_page(call), call.query, _parse_since(call.query)
    servers = await _list_servers(control, call)
    namespace = namespace_of(_base_url(control, call))
    # In a thread: to look at ten thousand takes longer than the loop may stand still.
    found = await asyncio.to_thread(_filter_servers, servers, query, namespace=namespace, since_ms=since_ms)
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


@get(f"{SERVERS.path}/{{server_id}}/server.json", "viewer", "Export a server as a server.json", JSON)
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
    is_visible = server_id in (await find_visible(control, call.caller)).packages
    record = await control.store.get("server", server_id) if is_visible else None
    if record is None:
        return None
    return _CatalogServer(record=record, package=await control.store.get("package", server_id))


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
    url = format_server_url(door, found.record.id, named)
    remote: dict[str, Any] = {"type": "streamable-http", "url": url}
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
    try:
        since = datetime.fromisoformat(query.get("updated_since", "1970-01-01T00:00:00Z"))
        if since.tzinfo is not None:
            return since.timestamp() * 1000
    except (ValueError, OverflowError):
        pass
    hint = "send a time like `2026-01-31T12:00:00Z`, with its zone"
    raise InvalidRequest("`updated_since` cannot be read", hint=hint)
