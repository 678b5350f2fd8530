"""What patterns match, before somebody writes them into a rule: by the code that reads them in rules."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.catalog.naming import join_tool_name
from toolgate.errors import InvalidRecord
from toolgate.govern.control import Control
from toolgate.model.names import ToolRef, kind_of
from toolgate.model.snapshot import Snapshot
from toolgate.policy.patterns import MAX_KIND_PATTERN, Patterns, parse_pattern
from toolgate.policy.rules import find_matching
from toolgate.registry.records.server_bodies import StrictBody
from toolgate.surfaces.rest.framework.request import RestCall, validate_as
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, post

MAX_PATTERNS: Final = 100
MAX_SHOWN: Final = 200


class MatchSent(StrictBody):
    """Patterns as rules have them."""

    patterns: Annotated[
        list[Annotated[str, Field(max_length=MAX_KIND_PATTERN)]], Field(max_length=MAX_PATTERNS)
    ]
    deny: bool = False
    """Match as a denylist does: `@destructive` then matches every tool that does not rule it out."""


class MatchShown(ResponseShape, frozen=True, kw_only=True):
    """What one pattern matches."""

    pattern: str
    count: int
    """Of all that are registered, whoever may see them."""
    tools: list[str]
    """The first 200, as `server.tool`; prompts and resources as rules name them."""
    error: str | None
    """What is wrong with a pattern that is none."""


class MatchAnswer(ResponseShape, frozen=True, kw_only=True):
    """What each pattern matches, in their order."""

    revision: Revision
    matches: list[MatchShown]


@post("/admin/api/match", "viewer", "See what patterns match", MatchAnswer, body=validate_as(MatchSent))
async def match_patterns(control: Control, call: RestCall[MatchSent]) -> RestResponse:
    """What each pattern matches of all that is registered. Nothing is stored."""
    snapshot = control.gateway.snapshot
    matches = await asyncio.to_thread(_match_all, snapshot, call.body.patterns, is_deny=call.body.deny)
    return RestResponse(MatchAnswer(revision=snapshot.revision, matches=matches))


def _match_all(snapshot: Snapshot, patterns: Sequence[str], *, is_deny: bool) -> list[MatchShown]:
    return [_match_one(snapshot, pattern, is_deny=is_deny) for pattern in patterns]


def _match_one(snapshot: Snapshot, pattern: str, *, is_deny: bool) -> MatchShown:
    try:
        found = list(find_matching(snapshot, Patterns.of((parse_pattern(pattern),)), is_deny=is_deny))
    except InvalidRecord as exc:
        return MatchShown(pattern=pattern, count=0, tools=[], error=f"{exc}; {exc.hint}")
    shown = [_name(ref) for ref in found[:MAX_SHOWN]]
    return MatchShown(pattern=pattern, count=len(found), tools=shown, error=None)


def _name(ref: ToolRef) -> str:
    kind = kind_of(ref.name)
    return f"{kind}{ref.server_id}/{ref.name[len(kind) :]}" if kind else join_tool_name(ref)


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (match_patterns,)
