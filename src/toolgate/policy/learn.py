"""The least policy that lets a task have what it used, and nothing else of what it has now.

Learning only takes away, with one exception: where a task was not enforced, what was used of it against its
rules is let through from then on, and those rules go. What was used once and is refused by now stays refused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.model.effects import Effects
from toolgate.model.names import MAX_AUDITED_NAME, PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Ceiling
from toolgate.model.servers import EMPTY
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Selection
from toolgate.policy.compose import decide_one
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.offers import approved_effects, is_unlisted, offered_names
from toolgate.policy.patterns import (
    MAX_KIND_PATTERN,
    MAX_LISTED,
    MAX_LISTED_WILDCARDS,
    MAX_PATTERN,
    Patterns,
    has_wildcard,
)
from toolgate.policy.resolve import bind_task
from toolgate.policy.rollouts import both_sides
from toolgate.policy.scope import Decision

MAX_NAMED: Final = 64
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
    anew: tuple[ToolRef, ...]
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
    there = sorted(ref for ref in used if _is_there(platform, ref))
    judged = {ref: _judge_by_any(platform, task, ref) for ref in there}
    kept = tuple(ref for ref, decision in judged.items() if decision.allowed)
    groups = _grouped(kept)
    narrowed = _bounded(groups, _wide(platform, kept, task))
    lax = task if task.enforced else _loosened(platform, task, kept)
    return Lesson(
        policy=replace(_with_servers(platform, lax, kept), enforced=True, allow=_texts(narrowed)),
        kept=kept,
        anew=tuple(ref for ref in kept if judged[ref].shadow is not None),
        refused=tuple(decision for decision in judged.values() if not decision.allowed),
        gone=tuple(sorted(set(used) - set(there))),
        dropped=tuple(_dropped(task, lax)),
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


def _is_there(platform: Snapshot, ref: ToolRef) -> bool:
    """Resources need not be listed to be had, and of a server that was not listed nothing is known."""
    offer = platform.servers.get(ref.server_id)
    if offer is None:
        return False
    return bool(kind_of(ref.name)) or is_unlisted(offer) or ref.name in offered_names(offer)


def _judge_by_any(platform: Snapshot, task: TaskPolicy, ref: ToolRef) -> Decision:
    """As `_judge`; while a profile is rolled out, what one of its versions lets through was rightly used."""
    decisions = [_judge(one, task, ref) for one in both_sides(platform, task)]
    return next((one for one in decisions if one.allowed), decisions[0])


def _judge(platform: Snapshot, task: TaskPolicy, ref: ToolRef) -> Decision:
    """What the task says to somebody who asks for exactly this, were all well with the server that has it.

    A server that is down, or a definition that waits for approval, is no reason to take away what was used.
    Its annotations do not count until then.
    """
    offer = platform.servers[ref.server_id]
    if (tool := offer.tools.get(ref.name)) is not None:
        offer = replace(offer, tools={ref.name: replace(tool, effects=_effects(platform, ref))})
    record = replace(offer.record, enabled=True, allowed_tools=_EVERYTHING)
    well = replace(offer, record=record, state="ready", quarantined=EMPTY)
    alone = replace(platform, servers={ref.server_id: well}, pins={})
    request = SessionRequest(servers=(ref.server_id,))
    return decide_one(alone, Ceiling(), task=replace(task, enabled=True), request=request, ref=ref)


def _with_servers(platform: Snapshot, task: TaskPolicy, kept: Iterable[ToolRef]) -> TaskPolicy:
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


def _loosened(platform: Snapshot, task: TaskPolicy, kept: Collection[ToolRef]) -> TaskPolicy:
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
    return any(pattern.first_match(ref, effects=_effects(platform, ref), is_deny=True) for ref in refs)


def _effects(platform: Snapshot, ref: ToolRef) -> Effects:
    return approved_effects(platform.servers[ref.server_id], platform.pins.get(ref.server_id), ref.name)


def _dropped(before: TaskPolicy, after: TaskPolicy) -> Iterable[str]:
    yield from (f"mcp.tool_denylist `{text}`" for text in before.deny if text not in after.deny)
    if before.profile != after.profile:
        yield f"mcp.profile `{before.profile}`"
    if before.overrides != after.overrides:
        yield "mcp.profile_overrides"
    if before.tags != after.tags:
        yield "mcp.tags"


def _grouped(refs: Iterable[ToolRef]) -> _Groups:
    groups: dict[str, set[str]] = defaultdict(set)
    for ref in refs:
        groups[f"{kind_of(ref.name)}{ref.server_id}/"].add(_pattern(ref))
    return {start: frozenset(patterns) for start, patterns in groups.items()}


def _wide(platform: Snapshot, refs: Iterable[ToolRef], task: TaskPolicy) -> _Groups:
    """As `_grouped`, but with patterns for more than was used: never for more than the task lets through."""
    allow = Patterns.of(task.allow or ()) if task.enforced else Patterns.of(())
    groups: dict[str, set[str]] = defaultdict(set)
    for ref in refs:
        start = f"{kind_of(ref.name)}{ref.server_id}/"
        match = allow.first_match(ref, effects=_effects(platform, ref), is_deny=False)
        groups[start].add(match or f"{start}*")
    return {start: frozenset(patterns) for start, patterns in groups.items()}


def _pattern(ref: ToolRef) -> str:
    """One that `ref` matches, and as little else as can be said: a `*` in a name is no wildcard."""
    text = str(ref)
    end = "*" if len(ref.name) > MAX_AUDITED_NAME and text.endswith("*") else ""
    parts = text.removesuffix(end).split(_HIDDEN)
    text = "*".join("".join(map(_literal, part)) for part in parts) + end
    longest = MAX_KIND_PATTERN if kind_of(ref.name) else MAX_PATTERN
    return text if len(text) <= longest else f"{text[: longest - 1]}*"


def _literal(char: str) -> str:
    return char if char.isprintable() and char not in " *" else "?"


def _bounded(groups: _Groups, wide: _Groups) -> _Groups:
    """As many patterns as a list may hold: the largest groups are given up first."""
    found = dict(groups)
    while (widest := _to_give_up(found, wide)) is not None:
        found[widest] = wide[widest]
    return found


def _to_give_up(groups: _Groups, wide: _Groups) -> str | None:
    several = [start for start, patterns in groups.items() if len(patterns) > 1 and patterns != wide[start]]
    wild = {start: sum(map(has_wildcard, groups[start])) for start in groups}
    if sum(wild.values()) > MAX_LISTED_WILDCARDS:
        return max(several, key=lambda start: wild[start], default=None)
    is_too_long = sum(map(len, groups.values())) > MAX_LISTED
    crowded = [one for one in several if is_too_long or (kind_of(one) and len(groups[one]) > MAX_NAMED)]
    return max(crowded, key=lambda start: len(groups[start]), default=None)


def _texts(groups: _Groups) -> tuple[str, ...]:
    return tuple(sorted(text for patterns in groups.values() for text in patterns))
