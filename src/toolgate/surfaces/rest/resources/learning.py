"""The shapes of what was used and what was not: lessons for tasks, and grants nobody uses."""

from typing import Any, Final

from toolgate.govern.least_privilege import Learned
from toolgate.govern.unused import HolderGrant, IdleServer
from toolgate.model.quotas import HolderKind
from toolgate.surfaces.rest.resources.change_shapes import PlanAnswer
from toolgate.surfaces.rest.shapes import Revision, Shown

MAX_NAMED: Final = 100
"""Unused tools of one holder that are named where others are asked about, too."""


class KeptShown(Shown, frozen=True, kw_only=True):
    """Something that was used and stays."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    calls: int
    last_used_ms: int
    is_anew: bool
    """The rules of the task would deny it as they are: it was used while they were not enforced."""


class UnusedShown(Shown, frozen=True, kw_only=True):
    """Something that is granted and was not used."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""
    tokens: int
    """About what its definition costs a model in each list."""


class LearnAnswer(Shown, frozen=True, kw_only=True):
    """The least policy by what a task used, and what it would do. Nothing has been changed."""

    task_id: str
    since_ms: int
    audit_begins_ms: int | None
    """Of what was before, nothing is known. Null: the audit is empty."""
    calls: int
    kept: list[KeptShown]
    removed: list[UnusedShown]
    """What callers of the task get now, or could by naming servers, and would not any more."""
    tokens_saved: int
    """In each list, for callers who ask for nothing in particular."""
    record: dict[str, Any]
    """The task as it should be, to be applied with the id of the plan."""
    plan: PlanAnswer
    warnings: list[str]


def show_learned(task_id: str, found: Learned, plan: PlanAnswer) -> LearnAnswer:
    """A lesson as answers hold it."""
    anew = set(found.lesson.anew)
    return LearnAnswer(
        task_id=task_id,
        since_ms=found.since_ms,
        audit_begins_ms=found.begins_ms,
        calls=found.calls,
        kept=[
            KeptShown(
                server_id=ref.server_id,
                tool=ref.name,
                calls=used.calls,
                last_used_ms=used.last_ms,
                is_anew=ref in anew,
            )
            for ref, used in found.kept.items()
        ],
        removed=[
            UnusedShown(
                server_id=one.ref.server_id, tool=one.ref.name, last_used_ms=one.last_ms, tokens=one.tokens
            )
            for one in found.removed
        ],
        tokens_saved=found.tokens_saved,
        record=dict(found.record),
        plan=plan,
        warnings=list(found.warnings),
    )


class HolderShown(Shown, frozen=True, kw_only=True):
    """What a task grants, or a key lets through at most, and what is not used of it."""

    kind: HolderKind
    id: str
    calls: int
    """Since then."""
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""
    granted: int
    """Tools."""
    unused: int
    unused_tokens: int
    """About what the definitions of those cost a model in each list."""
    tools: list[UnusedShown]
    """The first of those, by server and name; all of them where one task or key is asked about."""


class IdleServerShown(Shown, frozen=True, kw_only=True):
    """A server that nobody used since."""

    server_id: str
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""


class UnusedAnswer(Shown, frozen=True, kw_only=True):
    """Grants nobody uses, by task and key."""

    revision: Revision
    """Of the registry that is served."""
    since_ms: int
    audit_begins_ms: int | None
    """Of what was before, nothing is known. Null: the audit is empty."""
    holders: list[HolderShown]
    servers: list[IdleServerShown]
    """Those nobody used; on the first page alone, and where no task or key is asked about."""
    warnings: list[str]
    next_cursor: str | None
    """Where the next page begins; null: there is none."""


def show_holder(found: HolderGrant, *, most: int | None) -> HolderShown:
    """A holder as answers hold it, with so many of its tools named."""
    grant = found.grant
    return HolderShown(
        kind=found.holder.kind,
        id=found.holder.id,
        calls=found.calls,
        last_used_ms=found.last_ms,
        granted=grant.tools,
        unused=len(grant.unused),
        unused_tokens=grant.unused_tokens,
        tools=[
            UnusedShown(
                server_id=one.ref.server_id, tool=one.ref.name, last_used_ms=one.last_ms, tokens=one.tokens
            )
            for one in grant.unused[:most]
        ],
    )


def show_server(found: IdleServer) -> IdleServerShown:
    """A server as answers hold it."""
    return IdleServerShown(server_id=found.server_id, last_used_ms=found.last_ms)
