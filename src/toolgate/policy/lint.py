"""Finds rules without effect: they match nothing, name missing records, or cancel each other.

A finding never changes a scope. A server that was not listed may have anything: rules that only such a server
could match are returned as unjudged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from toolgate.errors import InvalidRecord
from toolgate.model.names import PROMPT, RESOURCE
from toolgate.model.principals import Key, Quotas
from toolgate.model.revisions import Kind
from toolgate.model.tasks import Profile, Selection, Task
from toolgate.model.tools import HINTS, ServerTools, Snapshot
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.patterns import Patterns, effect_of
from toolgate.policy.resolve import KEY_NAMES, OVERRIDE_NAMES, bind_task, select_servers
from toolgate.policy.rollouts import list_sides
from toolgate.policy.rules import RuleNames, can_match, find_matching, is_unlisted

FindingCode = Literal[
    "disabled_server",
    "invalid_record",
    "matches_nothing",
    "no_annotations",
    "no_servers",
    "not_enforced",
    "not_judged",
    "possible_secret",
    "shadowed",
    "summary_only",
    "unknown_profile",
    "unknown_server",
    "unknown_task",
]
_MINUTES_PER_DAY: Final = 24 * 60  # of a day of UTC, in which quotas count
_CATCH_ALL: Final = frozenset({f"{PROMPT}*", f"{RESOURCE}*"})
"""Patterns that are valid for servers without prompts or resources: most servers have only tools."""
_PROFILE_NAMES: Final = RuleNames("servers", "tags", "allow", "deny")


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a record that does not have the intended effect."""

    code: FindingCode
    kind: Kind
    id: str
    rule: str
    """The list or field, as in explanations."""
    subject: str
    """The entry of the list."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings, and the unjudged rules, sorted by kind of record, id and rule."""

    findings: tuple[LintFinding, ...]
    unjudged: tuple[LintFinding, ...]
    """Rules that may match something of a server that was not listed."""


def lint(platform: Snapshot) -> LintReport:
    """Lint every rule of every record."""
    found: list[LintFinding] = []
    for server_id, offer in platform.servers.items():
        at = _RecordLint(platform, "server", server_id)
        found.extend(at.lint_patterns("allowed_tools", offer.record.allowed_tools, [offer], is_deny=False))
    for task in platform.tasks.values():
        found.extend(_RecordLint(platform, "task", task.task_id).lint_task(task))
    for profile in platform.profiles.values():
        found.extend(_RecordLint(platform, "profile", profile.profile_id).lint_profile(profile))
    for key in platform.keys.values():
        found.extend(_RecordLint(platform, "key", key.key_id).lint_key(key))
    found.sort(key=lambda one: (one.kind, one.id, one.rule, one.subject, one.code))
    return LintReport(
        findings=tuple(one for one in found if one.code != "not_judged"),
        unjudged=tuple(one for one in found if one.code == "not_judged"),
    )


@dataclass(frozen=True, slots=True)
class _RecordLint:
    """Finds the rules of one record that have no effect."""

    platform: Snapshot
    kind: Kind
    id: str

    def find(self, code: FindingCode, rule: str, subject: str, message: str) -> LintFinding:
        return LintFinding(code=code, kind=self.kind, id=self.id, rule=rule, subject=subject, message=message)

    def lint_task(self, task: Task) -> Iterator[LintFinding]:
        try:
            policy = parse_task_policy(task)
        except InvalidRecord as exc:
            yield self.find("invalid_record", "config", task.task_id, str(exc))
            return
        strict = replace(policy, enforced=True)
        bound = bind_task(self.platform, strict)
        # During a rollout, a rule may concern servers that only one version of the profile selects.
        sides = list_sides(self.platform, strict)
        allowed = bound.allowed.union(*(bind_task(one, strict).allowed for one in sides))
        if policy.enabled and not policy.enforced:
            unenforced = "the task is in shadow mode: the gateway audits denials and does not enforce them"
            yield self.find("not_enforced", "mcp.enforce", "false", unenforced)
        own = Selection(servers=policy.allowed, tags=policy.tags, allow=policy.allow, deny=policy.deny)
        names = RuleNames("mcp.allowed_server_ids", "mcp.tags", "mcp.tool_allowlist", "mcp.tool_denylist")
        yield from self.lint_selection(own, names, allowed)
        yield from self.lint_selection(policy.overrides, OVERRIDE_NAMES, allowed)
        rule = "mcp.default_server_ids"
        yield from self.lint_servers(rule, policy.default)
        for offer in (self.platform.servers.get(server_id) for server_id in policy.default):
            if offer is not None and not offer.record.enabled:
                server_id = offer.record.server_id
                yield self.find("disabled_server", rule, server_id, f"server `{server_id}` is disabled")
        yield from self.lint_budgets("mcp.budgets", policy.budgets)
        if policy.profile is not None and policy.profile not in self.platform.profiles:
            missing = f"profile `{policy.profile}` does not exist, so no tool is allowed"
            yield self.find("unknown_profile", "mcp.profile", policy.profile, missing)
        if policy.enabled and not bound.allowed:
            empty = "the task is enabled and has no servers"
            yield self.find("no_servers", bound.allowed_name, task.task_id, empty)

    def lint_budgets(self, rule: str, budgets: Quotas | None) -> Iterator[LintFinding]:
        """Find a rate limit or a daily quota that can never be exceeded, because the other is exceeded
        first."""
        if budgets is None or budgets.calls_per_minute is None or budgets.calls_per_day is None:
            return
        if budgets.calls_per_day <= budgets.calls_per_minute:
            spent = "one minute may use up the day: `calls_per_day` does not exceed `calls_per_minute`"
            yield self.find("shadowed", rule, "calls_per_minute", spent)
        elif budgets.calls_per_minute * _MINUTES_PER_DAY <= budgets.calls_per_day:
            never = "unreachable: `calls_per_minute` allows fewer calls per day"
            yield self.find("shadowed", rule, "calls_per_day", never)

    def lint_profile(self, profile: Profile) -> Iterator[LintFinding]:
        rollout = profile.rollout
        candidate = [] if rollout is None else [("", rollout.selection), *rollout.environments.items()]
        lists = [
            ("", profile.selection),
            *profile.environments.items(),
            *((f"rollout {environment}".strip(), selection) for environment, selection in candidate),
        ]
        for prefix, selection in lists:
            names = RuleNames(*(f"{prefix} {name}".strip() for name in _PROFILE_NAMES))
            yield from self.lint_selection(selection, names, select_servers(self.platform, selection))

    def lint_key(self, key: Key) -> Iterator[LintFinding]:
        ceiling = key.ceiling
        selection = Selection(servers=ceiling.servers, allow=ceiling.allow, deny=ceiling.deny)
        yield from self.lint_selection(selection, KEY_NAMES, select_servers(self.platform, selection))
        yield from self.lint_budgets("budgets", key.budgets)
        for task_id in ceiling.tasks or ():
            if task_id not in self.platform.tasks:
                yield self.find("unknown_task", "key tasks", task_id, f"task `{task_id}` does not exist")
        tasks = self.platform.tasks.keys()
        reachable = tasks if ceiling.tasks is None else tasks & set(ceiling.tasks)
        if key.default_task is not None and key.default_task not in reachable:
            missing = f"task `{key.default_task}` does not exist, or the key may not use it"
            yield self.find("unknown_task", "default_task", key.default_task, missing)

    def lint_selection(
        self, selection: Selection, names: RuleNames, server_ids: Iterable[str]
    ) -> Iterator[LintFinding]:
        """The findings in the four lists of `selection`, whose patterns apply to these servers."""
        servers = self.platform.servers
        offers = [servers[server_id] for server_id in server_ids if server_id in servers]
        yield from self.lint_servers(names.servers, selection.servers or ())
        for tag in selection.tags or ():
            if not any(tag in offer.record.tags for offer in servers.values()):
                yield self.find("matches_nothing", names.tags, tag, f"no server has the tag `{tag}`")
        yield from self.lint_patterns(names.allow, selection.allow or (), offers, is_deny=False)
        yield from self.lint_patterns(names.deny, selection.deny, offers, is_deny=True)
        if not selection.deny:
            return
        ids = [offer.record.server_id for offer in offers]
        denied = set(find_matching(self.platform, Patterns(selection.deny), is_deny=True, server_ids=ids))
        for text in selection.allow or ():
            allowed = set(find_matching(self.platform, Patterns((text,)), is_deny=False, server_ids=ids))
            if allowed and allowed <= denied:
                message = f"`{names.deny}` denies everything that `{text}` allows"
                yield self.find("shadowed", names.allow, text, message)

    def lint_servers(self, rule: str, ids: Iterable[str]) -> Iterator[LintFinding]:
        for server_id in ids:
            if server_id not in self.platform.servers:
                yield self.find("unknown_server", rule, server_id, f"server `{server_id}` does not exist")

    def lint_patterns(
        self, rule: str, texts: Iterable[str], offers: Sequence[ServerTools], *, is_deny: bool
    ) -> Iterator[LintFinding]:
        for text in texts:
            patterns = Patterns((text,))
            holding = [offer for offer in offers if can_match(offer, patterns, is_deny=is_deny)]
            unlisted = [offer for offer in holding if is_unlisted(offer)]
            awaited = [offer for offer in unlisted if offer.record.enabled]
            if not unlisted and (silent := _explain_missing_hints(text, patterns, offers)):
                reading = "so it denies all of them" if is_deny else "so it allows none of them"
                yield self.find("no_annotations", rule, text, f"{silent}, {reading}")
            elif text not in _CATCH_ALL and not holding:
                yield self.find("matches_nothing", rule, text, f"no name matches `{text}`")
            elif awaited and len(unlisted) == len(holding):
                yield self.find("not_judged", rule, text, _explain_unlisted(awaited))


def _explain_unlisted(offers: Sequence[ServerTools]) -> str:
    first, *others = sorted(f"`{one.record.server_id}`" for one in offers)
    if others:
        return f"servers {', '.join((first, *others))} have not listed their tools"
    return f"server {first} has not listed its tools ({offers[0].state.replace('_', ' ')})"


def _explain_missing_hints(text: str, patterns: Patterns, offers: Iterable[ServerTools]) -> str:
    """Explain that no tool that `text` covers states its effect. Empty if one does, if there is no tool, or
    if `text` matches names."""
    effect = effect_of(text)
    if effect is None:
        return ""
    tools = {
        one.record.server_id: one.tools.values()
        for one in offers
        if one.tools and (patterns.has_bare or patterns.names_server(one.record.server_id))
    }
    effects = [tool.effects for each in tools.values() for tool in each]
    if not effects or any(effect in one.stated | one.ruled_out for one in effects):
        return ""
    first, *others = sorted(f"`{server_id}`" for server_id in tools)
    more = f" and {len(others)} more servers" if others else ""
    return f"no tool of {first}{more} states `{HINTS[effect]}`"
