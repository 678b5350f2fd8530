"""Learns the least policy that covers what a task used, and finds unused grants.

Learning only takes away, with one exception: if a task was not enforced, tools used against its rules become
allowed, and those rules are dropped. Tools that were used once and are denied now stay denied.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.model.names import MAX_AUDITED_NAME, PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.servers import EMPTY
from toolgate.model.tasks import Selection
from toolgate.model.tools import Snapshot
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
from toolgate.policy.resolve import ScopeInputs, bind_task
from toolgate.policy.rollouts import list_sides
from toolgate.policy.rules import is_unlisted, list_names, read_approved
from toolgate.policy.scope import Decision
from toolgate.redaction.shapes import MASK

MAX_NAMED_OF_KIND: Final = 64
"""The prompts or resources of one server that the policy names one by one. With more, it allows all of
them."""

_EVERYTHING: Final = ("*", PROMPT + "*", RESOURCE + "*")
_Groups = Mapping[str, frozenset[str]]
"""The beginning of the patterns of one kind and server, to those patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """The least policy of a task, and its difference from the current one."""

    policy: TaskPolicy
    kept: tuple[ToolRef, ...]
    """The used names that it allows. Sorted, like the other fields."""
    newly_allowed: tuple[ToolRef, ...]
    """The kept names that the task's current rules would deny."""
    refused: tuple[Decision, ...]
    """The used names that the current rules deny."""
    gone: tuple[ToolRef, ...]
    """The used names that their servers no longer have."""
    dropped: tuple[str, ...]
    """Rules that it drops, because they would deny used names."""
    widened: tuple[str, ...]
    """Patterns for more than was used, if naming everything is too long: all of one kind of a server, or the
    current pattern."""


def learn(platform: Snapshot, task: TaskPolicy, used: Collection[ToolRef]) -> Lesson:
    """The least policy of `task`. A name of `used` that the audit truncated ends in `*`."""
    there = sorted(ref for ref in used if _exists(platform, ref))
    judged: dict[ToolRef, Decision] = {}
    for ref in there:
        decisions = [_judge(side, task, ref) for side in list_sides(platform, task)]
        # During a rollout of its profile, one version that allows it is enough.
        judged[ref] = next((one for one in decisions if one.allowed), decisions[0])
    kept = tuple(ref for ref, decision in judged.items() if decision.allowed)
    present = Patterns((task.allow if task.enforced else None) or ())

    def widen(start: str, ref: ToolRef) -> str:
        """Widen a pattern, but never to more than the task allows."""
        effects = read_approved(platform, ref)[1]
        return present.first_match(ref, effects=effects, is_deny=False) or f"{start}*"

    groups = _group_patterns(kept, lambda _, ref: _make_pattern(ref))
    narrow, wide = dict(groups), _group_patterns(kept, widen)
    # A list has a maximum number of patterns: the largest groups are widened first.
    while (widest := _choose_group_to_widen(narrow, wide)) is not None:
        narrow[widest] = wide[widest]
    lax = task if task.enforced else _loosen(platform, task, kept)
    return Lesson(
        policy=replace(
            _set_servers(platform, lax, kept),
            enforced=True,
            allow=tuple(sorted(text for patterns in narrow.values() for text in patterns)),
        ),
        kept=kept,
        newly_allowed=tuple(ref for ref in kept if judged[ref].shadow is not None),
        refused=tuple(decision for decision in judged.values() if not decision.allowed),
        gone=tuple(sorted(set(used) - set(there))),
        dropped=tuple(_list_dropped_rules(task, lax)),
        widened=tuple(sorted(text for one in groups if narrow[one] != groups[one] for text in narrow[one])),
    )


def encode_lesson(config: Mapping[str, str], before: TaskPolicy, after: TaskPolicy) -> Mapping[str, str]:
    """A task's `config` of `before`, changed to `after`. Equal values keep their text."""
    old, new = _settable(before), _settable(after)
    changed = {key: value for key, value in new.items() if value != old[key]}
    kept = {key: text for key, text in config.items() if key not in changed}
    texts = {key: msgspec.json.encode(value).decode() for key, value in changed.items() if value is not None}
    return kept | texts


def _settable(policy: TaskPolicy) -> Mapping[str, Any]:
    """The keys that a lesson may change. None: without this key."""
    return {
        "mcp.enforce": None if policy.enforced else False,
        "mcp.default_server_ids": policy.default if policy.default or policy.is_default_empty else None,
        "mcp.allowed_server_ids": policy.allowed,
        "mcp.tool_allowlist": policy.allow,
        "mcp.tool_denylist": policy.deny or None,
        "mcp.profile": policy.profile,
        # The lesson removes it as a whole, or leaves it.
        "mcp.profile_overrides": None if policy.overrides == Selection() else policy.overrides,
        "mcp.tags": policy.tags,
    }


def _exists(platform: Snapshot, ref: ToolRef) -> bool:
    """Whether it exists. Resources may exist without being listed, and so may everything of an unlisted
    server."""
    offer = platform.servers.get(ref.server_id)
    if offer is None:
        return False
    return kind_of(ref.name) != "" or is_unlisted(offer) or ref.name in list_names(offer)


def _judge(platform: Snapshot, task: TaskPolicy, ref: ToolRef) -> Decision:
    """The decision of the task on exactly this ref, as if its server were healthy.

    A server that is down, or a quarantined definition, is no reason to take away used tools. The annotations
    of a quarantined definition do not count.
    """
    offer = platform.servers[ref.server_id]
    if (tool := offer.tools.get(ref.name)) is not None:
        offer = replace(offer, tools={ref.name: replace(tool, effects=read_approved(platform, ref)[1])})
    record = replace(offer.record, enabled=True, allowed_tools=_EVERYTHING)
    well = replace(offer, record=record, state="ready", quarantined=EMPTY)
    alone = replace(platform, servers={ref.server_id: well}, pins={})
    request = SessionRequest(servers=(ref.server_id,))
    return decide_one(ScopeInputs(alone, task=replace(task, enabled=True), request=request), ref)


def _set_servers(platform: Snapshot, task: TaskPolicy, kept: Iterable[ToolRef]) -> TaskPolicy:
    """`task` with the servers of `kept`. Servers that requests may name stay, because a request for any other
    server is denied as a whole. Servers not in the allowlist expose nothing."""
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
    """`task` without the rules that would deny something in `kept`."""
    deny = tuple(text for text in task.deny if not _denies(platform, text, kept))
    bare = TaskPolicy(task_id=task.task_id, default=tuple({ref.server_id for ref in kept}))

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
    rule = Patterns((text,))
    return any(rule.first_match(ref, effects=read_approved(platform, ref)[1], is_deny=True) for ref in refs)


def _list_dropped_rules(before: TaskPolicy, after: TaskPolicy) -> Iterable[str]:
    yield from (f"mcp.tool_denylist `{text}`" for text in before.deny if text not in after.deny)
    if before.profile != after.profile:
        yield f"mcp.profile `{before.profile}`"
    if before.overrides != after.overrides:
        yield "mcp.profile_overrides"
    if before.tags != after.tags:
        yield "mcp.tags"


def _group_patterns(refs: Iterable[ToolRef], make_pattern: Callable[[str, ToolRef], str]) -> _Groups:
    groups: dict[str, set[str]] = defaultdict(set)
    for ref in refs:
        start = f"{kind_of(ref.name)}{ref.server_id}/"
        groups[start].add(make_pattern(start, ref))
    return {start: frozenset(patterns) for start, patterns in groups.items()}


def _make_pattern(ref: ToolRef) -> str:
    """The narrowest pattern for `ref`: a `*` in a name is not a wildcard."""
    text = str(ref)
    end = "*" if len(ref.name) > MAX_AUDITED_NAME and text.endswith("*") else ""
    parts = text.removesuffix(end).split(MASK)
    plain = ("".join(one if one.isprintable() and one not in " *" else "?" for one in part) for part in parts)
    text = "*".join(plain) + end
    longest = MAX_KIND_PATTERN if kind_of(ref.name) else MAX_PATTERN
    return text if len(text) <= longest else f"{text[: longest - 1]}*"


def _choose_group_to_widen(groups: _Groups, wide: _Groups) -> str | None:
    several = [start for start, patterns in groups.items() if len(patterns) > 1 and patterns != wide[start]]
    wild = {start: sum(map(has_wildcard, groups[start])) for start in groups}
    if sum(wild.values()) > MAX_LISTED_WILDCARDS:
        return max(several, key=lambda start: wild[start], default=None)
    is_long = sum(map(len, groups.values())) > MAX_LISTED
    crowded = [one for one in several if is_long or (kind_of(one) and len(groups[one]) > MAX_NAMED_OF_KIND)]
    return max(crowded, key=lambda start: len(groups[start]), default=None)


@dataclass(frozen=True, slots=True)
class UnusedTool:
    """A tool, prompt or resource that is granted, and was not used."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    tokens: int
    """Estimated tokens of its definition in each list."""
    last_used_ms: int | None
    """Null: never within the kept audit log."""


def find_unused(
    platform: Snapshot,
    reach: Collection[ToolRef],
    *,
    used: Collection[ToolRef],
    last_ms: Mapping[ToolRef, int],
) -> list[UnusedTool]:
    """The tools of `reach` that are not in `used`, sorted. Prompts and resources cost no tokens until a
    client reads them."""
    return [
        UnusedTool(*ref, platform.servers[ref.server_id].tools[ref.name].tokens, last_ms.get(ref))
        for ref in sorted(reach)
        if not kind_of(ref.name) and ref not in used
    ]
