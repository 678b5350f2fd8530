"""The least policy that lets a task have what it used, and nothing else of what it has now.

Learning only takes away, with one exception: where a task was not enforced, what was used of it against its
rules is let through from then on, and those rules go. What was used once and is refused by now stays refused.

Grants that nobody uses: what a task or a key may call and did not, and what that costs in each list.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.model.effects import Effects
from toolgate.model.names import MAX_AUDITED_NAME, PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Ceiling
from toolgate.model.servers import EMPTY
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Selection
from toolgate.policy.compose import decide_one
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.patterns import (
    MAX_KIND_PATTERN,
    MAX_LISTED,
    MAX_LISTED_WILDCARDS,
    MAX_PATTERN,
    Patterns,
    has_wildcard,
)
from toolgate.policy.resolve import bind_task
from toolgate.policy.rollouts import list_sides
from toolgate.policy.rules import is_unlisted, list_names, read_approved_effects
from toolgate.policy.scope import Decision

MAX_NAMED_OF_KIND: Final = 64
"""Prompts, or resources, of one server that are named one by one. More are all of its kind."""

_HIDDEN: Final = "***"
"""What stands in a URI in place of a secret."""
_EVERYTHING: Final = ("*", PROMPT + "*", RESOURCE + "*")
_Groups = Mapping[str, frozenset[str]]
"""What patterns of one kind and server begin with, to those patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a task should be, by what was used of it."""

    policy: TaskPolicy
    kept: tuple[ToolRef, ...]
    """Of what was used, what it lets through. Sorted, as are the others."""
    newly_allowed: tuple[ToolRef, ...]
    """Of that, what the rules of the task would deny as they are."""
    refused: tuple[Decision, ...]
    """Of what was used, what the rules of the task refuse by now."""
    gone: tuple[ToolRef, ...]
    """Of what was used, what its server does not have any more."""
    dropped: tuple[str, ...]
    """Rules that are left out because they would deny what was used."""
    widened: tuple[str, ...]
    """Patterns for more than was used, where that was too much to name it: all of a kind that a server has,
    or as the task has it now."""


def learn(platform: Snapshot, task: TaskPolicy, used: Collection[ToolRef]) -> Lesson:
    """The least that `task` should be. A name of `used` that was cut is too long by a `*` at its end."""
    there = sorted(ref for ref in used if _exists(platform, ref))
    judged = {ref: _judge_any_version(platform, task, ref) for ref in there}
    kept = tuple(ref for ref, decision in judged.items() if decision.allowed)
    groups = _group_patterns(kept)
    narrowed = _limit_groups(groups, _widen_groups(platform, kept, task))
    lax = task if task.enforced else _loosen(platform, task, kept)
    return Lesson(
        policy=replace(_set_servers(platform, lax, kept), enforced=True, allow=_flatten_groups(narrowed)),
        kept=kept,
        newly_allowed=tuple(ref for ref in kept if judged[ref].shadow is not None),
        refused=tuple(decision for decision in judged.values() if not decision.allowed),
        gone=tuple(sorted(set(used) - set(there))),
        dropped=tuple(_list_dropped_rules(task, lax)),
        widened=tuple(
            sorted(text for one in groups if narrowed[one] != groups[one] for text in narrowed[one])
        ),
    )


def encode_lesson(config: Mapping[str, str], before: TaskPolicy, after: TaskPolicy) -> Mapping[str, str]:
    """A task's `config`, which says `before`, changed to say `after`. What is the same stays as written."""
    old, new = _settable(before), _settable(after)
    changed = {key: value for key, value in new.items() if value != old[key]}
    kept = {key: text for key, text in config.items() if key not in changed}
    texts = {key: msgspec.json.encode(value).decode() for key, value in changed.items() if value is not None}
    return kept | texts


def _settable(policy: TaskPolicy) -> Mapping[str, Any]:
    """What a lesson may change, by key. None: the key is not there."""
    return {
        "mcp.enforce": None if policy.enforced else False,
        "mcp.default_server_ids": policy.default if policy.default or policy.is_default_empty else None,
        "mcp.allowed_server_ids": policy.allowed,
        "mcp.tool_allowlist": policy.allow,
        "mcp.tool_denylist": policy.deny or None,
        "mcp.profile": policy.profile,
        # It is left out whole, or left alone.
        "mcp.profile_overrides": None if policy.overrides == Selection() else policy.overrides,
        "mcp.tags": policy.tags,
    }


def _exists(platform: Snapshot, ref: ToolRef) -> bool:
    """Resources need not be listed to be had, and of a server that was not listed nothing is known."""
    offer = platform.servers.get(ref.server_id)
    if offer is None:
        return False
    return bool(kind_of(ref.name)) or is_unlisted(offer) or ref.name in list_names(offer)


def _judge_any_version(platform: Snapshot, task: TaskPolicy, ref: ToolRef) -> Decision:
    """As `_judge`; while a profile is rolled out, what one of its versions lets through was rightly used."""
    decisions = [_judge(one, task, ref) for one in list_sides(platform, task)]
    return next((one for one in decisions if one.allowed), decisions[0])


def _judge(platform: Snapshot, task: TaskPolicy, ref: ToolRef) -> Decision:
    """What the task says to somebody who asks for exactly this, were all well with the server that has it.

    A server that is down, or a definition that waits for approval, is no reason to take away what was used.
    Its annotations do not count until then.
    """
    offer = platform.servers[ref.server_id]
    if (tool := offer.tools.get(ref.name)) is not None:
        offer = replace(offer, tools={ref.name: replace(tool, effects=_read_approved_effects(platform, ref))})
    record = replace(offer.record, enabled=True, allowed_tools=_EVERYTHING)
    well = replace(offer, record=record, state="ready", quarantined=EMPTY)
    alone = replace(platform, servers={ref.server_id: well}, pins={})
    request = SessionRequest(servers=(ref.server_id,))
    return decide_one(alone, Ceiling(), task=replace(task, enabled=True), request=request, ref=ref)


def _set_servers(platform: Snapshot, task: TaskPolicy, kept: Iterable[ToolRef]) -> TaskPolicy:
    """`task` with the servers of `kept`.

    A request that names a server the task does not allow is refused whole. So those that may be named stay:
    of a server that the allowlist does not speak of, nothing can be had.
    """
    servers = {ref.server_id for ref in kept}
    bound = bind_task(platform, replace(task, enforced=True))
    if task.enforced:
        if not task.default:
            return task
        default, allowed = bound.default & servers, bound.allowed
    else:
        if servers <= bound.default & bound.allowed and not task.default:
            return task
        default, allowed = frozenset(servers), bound.allowed | servers
    return replace(
        task,
        default=tuple(sorted(default)),
        allowed=None if allowed == default else tuple(sorted(allowed)),
        is_default_empty=not default,
    )


def _loosen(platform: Snapshot, task: TaskPolicy, kept: Collection[ToolRef]) -> TaskPolicy:
    """`task` without the rules that would deny something of `kept`."""
    deny = tuple(text for text in task.deny if not _denies(platform, text, kept))
    ids = tuple({ref.server_id for ref in kept})
    bare = TaskPolicy(task_id=task.task_id, default=ids)

    def admits(policy: TaskPolicy) -> bool:
        return all(_judge(platform, policy, ref).allowed for ref in kept)

    return replace(
        task,
        deny=deny,
        profile=task.profile if admits(replace(bare, profile=task.profile)) else None,
        tags=task.tags if admits(replace(bare, tags=task.tags)) else None,
        overrides=task.overrides if admits(replace(bare, overrides=task.overrides)) else Selection(),
    )


def _denies(platform: Snapshot, text: str, refs: Iterable[ToolRef]) -> bool:
    pattern = Patterns.of((text,))
    return any(
        pattern.first_match(ref, effects=_read_approved_effects(platform, ref), is_deny=True) for ref in refs
    )


def _read_approved_effects(platform: Snapshot, ref: ToolRef) -> Effects:
    return read_approved_effects(platform.servers[ref.server_id], platform.pins.get(ref.server_id), ref.name)


def _list_dropped_rules(before: TaskPolicy, after: TaskPolicy) -> Iterable[str]:
    yield from (f"mcp.tool_denylist `{text}`" for text in before.deny if text not in after.deny)
    if before.profile != after.profile:
        yield f"mcp.profile `{before.profile}`"
    if before.overrides != after.overrides:
        yield "mcp.profile_overrides"
    if before.tags != after.tags:
        yield "mcp.tags"


def _group_patterns(refs: Iterable[ToolRef]) -> _Groups:
    groups: dict[str, set[str]] = defaultdict(set)
    for ref in refs:
        groups[f"{kind_of(ref.name)}{ref.server_id}/"].add(_make_pattern(ref))
    return {start: frozenset(patterns) for start, patterns in groups.items()}


def _widen_groups(platform: Snapshot, refs: Iterable[ToolRef], task: TaskPolicy) -> _Groups:
    """As `_grouped`, but with patterns for more than was used: never for more than the task lets through."""
    allow = Patterns.of(task.allow or ()) if task.enforced else Patterns.of(())
    groups: dict[str, set[str]] = defaultdict(set)
    for ref in refs:
        start = f"{kind_of(ref.name)}{ref.server_id}/"
        match = allow.first_match(ref, effects=_read_approved_effects(platform, ref), is_deny=False)
        groups[start].add(match or f"{start}*")
    return {start: frozenset(patterns) for start, patterns in groups.items()}


def _make_pattern(ref: ToolRef) -> str:
    """One that `ref` matches, and as little else as can be said: a `*` in a name is no wildcard."""
    text = str(ref)
    end = "*" if len(ref.name) > MAX_AUDITED_NAME and text.endswith("*") else ""
    parts = text.removesuffix(end).split(_HIDDEN)
    text = "*".join("".join(map(_escape_char, part)) for part in parts) + end
    longest = MAX_KIND_PATTERN if kind_of(ref.name) else MAX_PATTERN
    return text if len(text) <= longest else f"{text[: longest - 1]}*"


def _escape_char(char: str) -> str:
    return char if char.isprintable() and char not in " *" else "?"


def _limit_groups(groups: _Groups, wide: _Groups) -> _Groups:
    """As many patterns as a list may hold: the largest groups are given up first."""
    found = dict(groups)
    while (widest := _choose_group_to_widen(found, wide)) is not None:
        found[widest] = wide[widest]
    return found


def _choose_group_to_widen(groups: _Groups, wide: _Groups) -> str | None:
    several = [start for start, patterns in groups.items() if len(patterns) > 1 and patterns != wide[start]]
    wild = {start: sum(map(has_wildcard, groups[start])) for start in groups}
    if sum(wild.values()) > MAX_LISTED_WILDCARDS:
        return max(several, key=lambda start: wild[start], default=None)
    is_too_long = sum(map(len, groups.values())) > MAX_LISTED
    crowded = [
        one for one in several if is_too_long or (kind_of(one) and len(groups[one]) > MAX_NAMED_OF_KIND)
    ]
    return max(crowded, key=lambda start: len(groups[start]), default=None)


def _flatten_groups(groups: _Groups) -> tuple[str, ...]:
    return tuple(sorted(text for patterns in groups.values() for text in patterns))


class UnusedTool(NamedTuple):
    """A tool that is granted and was not used."""

    ref: ToolRef
    tokens: int
    """What its definition costs in each list."""
    last_ms: int | None
    """When it was used last, before the time that is asked about. None: never, as far as is known."""


class GrantUse(NamedTuple):
    """What one holder is granted, and what it does not use of that."""

    tools: int
    unused: tuple[UnusedTool, ...]
    """By server and name."""

    @property
    def unused_tokens(self) -> int:
        return sum(one.tokens for one in self.unused)


def weigh_grant(
    platform: Snapshot,
    reach: Collection[ToolRef],
    *,
    used: Collection[ToolRef],
    last_ms: Mapping[ToolRef, int],
) -> GrantUse:
    """What of `reach` is not in `used`. Tools alone: prompts and resources cost nothing until asked for."""
    tools = [ref for ref in reach if not kind_of(ref.name)]
    return GrantUse(
        tools=len(tools),
        unused=tuple(
            UnusedTool(ref, _definition_tokens(platform, ref), last_ms.get(ref))
            for ref in sorted(tools)
            if ref not in used
        ),
    )


def _definition_tokens(platform: Snapshot, ref: ToolRef) -> int:
    return platform.servers[ref.server_id].tools[ref.name].tokens
