"""Servers from the files of other programs, stored together or not at all."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field, JsonValue

from toolgate.errors import InvalidRecord, InvalidRequest
from toolgate.govern.changes.commit import commit_changes, plan_changes, select_valid_changes
from toolgate.govern.changes.records import PendingChange, RecordEdit
from toolgate.govern.control import Control
from toolgate.model.servers import ServerRecord
from toolgate.registry.interchange.imports import ImportFormat, ImportResult, parse_imports
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import parse_id
from toolgate.registry.records.fields import Patterns, ServerId
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, FormField, RestCall, validate_as
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, post
from toolgate.surfaces.rest.resources.changes import (
    MAX_CHANGES,
    WRITE_ERRORS,
    ChangeShown,
    PlanAnswer,
    show_edits,
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
    """`mcpServers` (Claude, Cursor, VS Code), `server.json` (the official registry), `docker` (a catalog of
    Docker's MCP gateway), `registry` (our own)."""
    allowed_tools: Patterns = Field(default_factory=list)
    """Patterns of the tools to allow. Without any, a server that is new offers nothing."""
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


class ImportAnswer(ResponseShape, frozen=True, kw_only=True):
    """What became of the definitions."""

    revision: Revision
    servers: list[str]
    """The ids of all that were found."""
    changes: list[ChangeShown]
    skipped: list[SkippedShown]
    warnings: list[str]
    plan: str | None
    """Of a dry run: the id of its plan."""
    effect: PlanAnswer | None
    """Of a dry run: what it would do to each task."""


def _read_form(parts: Sequence[FormField]) -> dict[str, Any]:
    """The members of ImportSent, from a form. Raises InvalidRequest."""
    sent: dict[str, Any] = {}
    for name, text in parts:
        member = "content" if name == "file" else name
        if member in _FORM_LISTS:
            sent.setdefault(member, []).append(text)
        elif member in sent:
            raise InvalidRequest(
                f"duplicate part `{ascii(name[:80])[1:-1]}`", hint="send one file in one request"
            )
        else:
            sent[member] = _FORM_FLAGS.get(text, text) if member in _FORM_FLAGGED else text
    return sent


@post(
    f"{SERVERS.path}/import",
    "admin",
    "Import servers of another program",
    body=replace(validate_as(ImportSent), parse_form_fields=_read_form),
    headers=(PLAN_HEADER,),
    errors=WRITE_ERRORS,
)
async def import_servers(control: Control, call: RestCall[ImportSent]) -> ImportAnswer:
    """Store the servers that a file of another program defines. What is allowed of a known one stays so.

    The file may also be uploaded as `multipart/form-data`: the part `file`, and the other members as parts of
    their names; `allowed_tools` and `only` once for each entry. Web pages must send JSON.
    """
    sent = call.body
    found = await asyncio.to_thread(parse_imports, sent.content, sent.format)
    if len(found.bodies) > MAX_CHANGES:
        raise InvalidRecord(f"the file defines more than {MAX_CHANGES} servers")
    drafts = await _select_drafts(control, call, found)
    if not sent.dry_run:
        done = await commit_changes(control, call.caller, drafts, plan_id=call.plan_id)
        shown = await asyncio.to_thread(show_edits, done.edits)
        warnings = [*done.warnings, *_warn_of_denied(done.edits)]
        return _show_import(found, done.revision, shown, warnings=warnings)
    planned = await plan_changes(control, call.caller, drafts)
    warnings = [*planned.warnings, *_warn_of_denied(planned.plan.edits)]
    plan = await show_plan(planned.plan, revision=planned.revision, warnings=warnings)
    return _show_import(found, planned.revision, plan.changes, warnings=warnings, effect=plan)


async def _select_drafts(
    control: Control, call: RestCall[ImportSent], found: ImportResult
) -> list[PendingChange]:
    """What of the file is to be stored. What cannot be joins what was skipped, where that was asked for."""
    sent = call.body
    drafts = [_draft(body, sent.allowed_tools) for body in found.bodies]
    if sent.only is not None:
        wanted = set(sent.only)
        drafts = [draft for draft in drafts if draft.id in wanted]
    if sent.skip_invalid:
        drafts, wrong = await select_valid_changes(control, call.caller, drafts)
        found.skipped.update(wrong)
    return drafts


def _draft(body: Mapping[str, Any], allowed: list[str]) -> PendingChange:
    server_id = parse_id("server", body["server_id"])
    sent = dict(body)
    if allowed:
        sent["allowed_tools"] = allowed
    # What is allowed now is looked up when the draft is checked, in the turn that commits it.
    return PendingChange(kind="server", id=server_id, sent=sent, is_declared=True, keeping=("allowed_tools",))


def _warn_of_denied(edits: Sequence[RecordEdit]) -> Iterator[str]:
    """The files of other programs allow nothing, so a server that was only imported offers nothing."""
    denied = [
        f"`{edit.change.id}`"
        for edit in edits
        if isinstance(edit.record, ServerRecord) and not edit.record.allowed_tools
    ]
    if denied:
        shown = ", ".join(denied[:_MAX_NAMED]) + (" and others" if len(denied) > _MAX_NAMED else "")
        yield f"no tool is allowed yet of {shown}: import again with `--allow '*'`, or set `allowed_tools`"


def _show_import(
    found: ImportResult,
    revision: int,
    changes: list[ChangeShown],
    *,
    warnings: list[str],
    effect: PlanAnswer | None = None,
) -> ImportAnswer:
    return ImportAnswer(
        revision=revision,
        servers=[body["server_id"] for body in found.bodies],
        changes=changes,
        skipped=[SkippedShown(name=name, reason=reason) for name, reason in found.skipped.items()],
        warnings=[*found.warnings, *warnings],
        plan=None if effect is None else effect.id,
        effect=effect,
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (import_servers,)
