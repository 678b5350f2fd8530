"""Imports servers from files of other programs, and serves the read API of the official MCP registry.

An import stores all servers of a file or none. The official API describes how to reach servers through this
gateway. It never shows how the gateway itself starts or reaches a server (command, variables, URL), nor any
server that the caller cannot reach.
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
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall, validate_as
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
"""The servers that a warning names: it must fit in a terminal."""
_FORM_LISTS: Final = ("allowed_tools", "only")
_FORM_FLAGGED: Final = ("skip_invalid", "dry_run")
_FORM_FLAGS: Final = {"true": True, "false": False}


class ImportSent(StrictBody):
    """Server definitions in the format of another program."""

    content: dict[str, JsonValue] | list[JsonValue] | str
    """The file as a JSON value, or as text: JSON with or without comments, TOML, or the YAML of a catalog."""
    format: ImportFormat = "auto"
    """`mcpServers` (editors, mcp-hub, MCPHub, FastMCP), `litellm` (also Codex), `contextforge`,
    `agentgateway`, `server.json` (the official registry), `docker` (a catalog of Docker's MCP gateway),
    `registry` (records of Toolgate)."""
    allowed_tools: Patterns = Field(default_factory=list)
    """Patterns of the tools to allow, for servers whose tools the file neither lists nor hides. Without
    patterns, such a server offers no tools if it is new."""
    only: Annotated[list[ServerId], Field(max_length=MAX_CHANGES)] | None = None
    """The ids of the servers to store, as in the response of a dry run. Default: all."""
    skip_invalid: bool = False
    """Skip servers that cannot be stored, with the reason, instead of failing as a whole."""
    dry_run: bool = False
    """Report the changes without making them."""


class SkippedShown(ResponseShape, frozen=True, kw_only=True):
    """A skipped definition: it is invalid, or its record could not be stored."""

    name: str
    """The name in the file, or the id of the record."""
    reason: str


class ImportResponse(ResponseShape, frozen=True, kw_only=True):
    """The effect of an import or a dry run."""

    revision: Revision
    servers: list[str]
    """The ids of all servers in the file."""
    changes: list[ChangeShown]
    skipped: list[SkippedShown]
    warnings: list[str]
    plan: str | None
    """For a dry run: the id of its plan."""
    effect: PlanResponse | None
    """For a dry run: the effect on each task."""
    records: list[dict[str, Any]]
    """For a dry run: the record of each server as the file describes it, with the secrets that the caller
    sent."""


def _read_form(parts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The members of ImportSent from a form. Raises InvalidRequest."""
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
    """Store the servers of another program's file. The allowed tools of known servers stay unchanged.

    The file may also be uploaded as `multipart/form-data`: the part `file`, and the other members as parts
    with their names. Repeat `allowed_tools` and `only` for each entry. Web pages must send JSON.
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
        shown = await show_plan(replace(planned, warnings=warnings))
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
        records=[] if effect is None else [dict(body) for body in found.bodies],
    )


async def _select_drafts(
    control: Control, call: RestCall[ImportSent], found: ImportResult
) -> list[PendingChange]:
    """The servers to store. With `skip_invalid`, invalid ones are added to the skipped servers."""
    sent, drafts = call.body, []
    for body in found.bodies:
        server_id = parse_id("server", body["server_id"])
        is_open = sent.allowed_tools and server_id not in found.restricted
        record = ({"allowed_tools": sent.allowed_tools} if is_open else {}) | dict(body)
        # The check of the change, in the transaction that commits it, looks up the currently allowed tools.
        kept = ("allowed_tools",)
        drafts.append(PendingChange(kind="server", id=server_id, sent=record, is_declared=True, keeping=kept))
    if sent.only is not None:
        wanted = set(sent.only)
        drafts = [draft for draft in drafts if draft.id in wanted]
    if sent.skip_invalid:
        drafts, wrong = await select_valid_changes(control, call.caller, drafts)
        found.skipped.update(wrong)
    return drafts


def _warn_of_denied(edits: Sequence[RecordEdit], warned: Container[str]) -> Iterator[str]:
    """Warn of servers without allowed tools: most files allow none. `warned` already have a warning."""
    records = (edit.record for edit in edits)
    servers = [one for one in records if isinstance(one, ServerRecord) and one.server_id not in warned]
    denied = [f"`{server.server_id}`" for server in servers if not server.allowed_tools]
    if denied:
        shown = ", ".join(denied[:_MAX_NAMED]) + (" and others" if len(denied) > _MAX_NAMED else "")
        yield f"no tools are allowed of {shown}: import again with `--allow '*'`, or set `allowed_tools`"


class _Official(FieldDescriptions, BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class OfficialRemote(_Official):
    """The URL of a server at this gateway."""

    type: Literal["streamable-http"]
    url: str
    headers: list[dict[str, Any]] | None = None
    """The credentials that a client has to fill in."""


class OfficialServer(_Official):
    """A server in the format of `server.json`, without how the gateway itself starts or reaches it."""

    schema_url: str = Field(alias="$schema")
    name: str
    """The gateway's namespace, a slash, and the server id."""
    title: str | None = None
    description: str
    version: str
    """The version of its package. Without a package: `0.0.` and the revision of its record."""
    remotes: list[OfficialRemote]


class OfficialMeta(_Official):
    """The metadata of an entry in a registry."""

    status: Literal["active"]
    published_at: datetime = Field(alias="publishedAt")
    updated_at: datetime = Field(alias="updatedAt")
    is_latest: bool = Field(alias="isLatest")


class OfficialMetas(_Official):
    """The metadata of an entry, by registry."""

    official: OfficialMeta = Field(alias="io.modelcontextprotocol.registry/official")


class OfficialEntry(_Official):
    """One version of a server."""

    server: OfficialServer
    meta: OfficialMetas = Field(alias="_meta")


class OfficialPage(_Official):
    """The position of the page in the list."""

    next_cursor: str | None = Field(default=None, alias="nextCursor")
    """The cursor of the next page. Absent on the last page."""
    count: int
    """The number of servers on this page."""


class OfficialList(_Official):
    """The servers that the caller can reach."""

    servers: list[OfficialEntry]
    metadata: OfficialPage


class OfficialNotFound(_Official):
    """The server does not exist, or the caller cannot reach it."""

    error: str


LOCAL_NAMESPACE: Final = "toolgate.local"
LATEST: Final = "latest"
NOT_FOUND: Final = RestResponse({"error": "Server not found"}, 404)
"""The response of the official registry, whatever the reason."""

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
    "List servers in the official registry format",
    OfficialList,
    query=(
        *PAGING,
        Parameter("search", "Only servers with this text in their name or title, ignoring case."),
        Parameter("updated_since", "Only servers that changed since this RFC 3339 time."),
        Parameter("version", "Only this version. Each server has one version, which is also `latest`."),
        Parameter("include_deleted", "Without effect: the gateway keeps no deleted servers.", "flag"),
    ),
)
async def list_official(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The servers that you can reach, each with its URL at this gateway."""
    page, query, since_ms = call.page(), call.query, _parse_since(call.query)
    within = (await find_visible(control, call.caller)).packages
    packages = {one.id: one for one in (await control.store.list("package")).records}
    records = [one for one in (await control.store.list("server")).records if one.id in within]
    servers = [_CatalogServer(record=one, package=packages.get(one.id)) for one in records]
    namespace = namespace_of(_base_url(control, call))
    # In a thread: reading ten thousand servers takes longer than the loop may block.
    found = await asyncio.to_thread(_filter_servers, servers, query, namespace=namespace, since_ms=since_ms)
    shown, next_cursor = page.cut(found, lambda one: one.record.id)
    return await _list_response(control, call, shown, next_cursor)


@get(
    _ONE,
    "agent",
    "List the versions of a server in the official registry format",
    OfficialList | OfficialNotFound,
    statuses=(200, 404),
)
async def list_versions(control: Control, call: RestCall[None]) -> RestResponse | Mapping[str, Any]:
    """The only version of a server. A server that you cannot reach looks like one that does not exist."""
    found = await _find_server(control, call)
    return NOT_FOUND if found is None else await _list_response(control, call, [found], None)


@get(
    f"{_ONE}/{{server_version}}",
    "agent",
    "Read a version of a server in the official registry format",
    OfficialEntry | OfficialNotFound,
    statuses=(200, 404),
)
async def read_version(control: Control, call: RestCall[None]) -> RestResponse | Mapping[str, Any]:
    """A version of a server. `latest` is its only version."""
    found = await _find_server(control, call)
    wanted = call.ids["server_version"]
    if found is None or wanted not in {LATEST, found.identity("").version}:
        return NOT_FOUND
    return (await _show_servers(control, call, [found]))[0]


@get(f"{SERVERS.path}/{{server_id}}/server.json", "viewer", "Export a server as server.json", JSON)
async def export_server(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The record as a `server.json` to publish elsewhere. Secrets become variables to fill in."""
    stored = await find_record(control, "server", call.ids["server_id"])
    found = _CatalogServer(record=stored, package=None)
    return encode_server_json(found.identity(namespace_of(_base_url(control, call))), show_record(stored))


def namespace_of(url: str) -> str:
    """`https://tools.example.com` becomes `com.example.tools`; a host without a public name becomes local."""
    host = (urlsplit(url).hostname or "").lower()
    if is_loopback(host) or len(host) > 150 or not _HOST.fullmatch(host):
        return LOCAL_NAMESPACE
    return ".".join(reversed(host.split(".")))


def _filter_servers(
    servers: Sequence[_CatalogServer], query: Mapping[str, str], *, namespace: str, since_ms: float
) -> list[_CatalogServer]:
    """The servers that match the query."""
    search, version = query.get("search", "").casefold(), query.get("version", LATEST)
    found = []
    for one in servers:
        identity = one.identity(namespace)
        is_searched = search in identity.name.casefold() or search in identity.title.casefold()
        if is_searched and version in {LATEST, identity.version} and one.updated_at_ms >= since_ms:
            found.append(one)
    return found


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
    ids, door = {one.record.id for one in servers}, _base_url(control, call)
    # The task in which a key that is bound to tasks reaches each server. In a thread: they may be many.
    tasks = await asyncio.to_thread(find_tasks_by_server, control.gateway, call.caller, ids)
    secret = {} if call.authorization is None else {"headers": [_KEY]}
    shown = []
    for one in servers:
        task_id = tasks.get(one.record.id)
        named = None if task_id == call.caller.default_task else task_id
        url = format_server_url(door, one.record.id, named)
        at = datetime.fromtimestamp(one.updated_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        at = at.replace("+00:00", "Z")
        server = one.identity(namespace_of(door)).encode()
        remote = {"type": "streamable-http", "url": url, **secret}
        official = {"status": "active", "publishedAt": at, "updatedAt": at, "isLatest": True}
        meta = {"io.modelcontextprotocol.registry/official": official}
        shown.append({"server": {**server, "remotes": [remote]}, "_meta": meta})
    return shown


def _parse_since(query: Mapping[str, str]) -> float:
    """In milliseconds. Raises InvalidRequest."""
    try:
        since = datetime.fromisoformat(query.get("updated_since", "1970-01-01T00:00:00Z"))
        if since.tzinfo is not None:
            return since.timestamp() * 1000
    except (ValueError, OverflowError):
        pass
    hint = "send a time with its zone, like `2026-01-31T12:00:00Z`"
    raise InvalidRequest("invalid time in `updated_since`", hint=hint)
