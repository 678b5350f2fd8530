"""Audits which tools callers are offered: one event when a caller's scope differs from its last audited one.

Never writes an event per list: it remembers the last audited scope of each caller, up to a limit.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolgate.audit.events import AppliedFilter, Exclusion, ScopeOffered
from toolgate.audit.log.writer import AuditLog
from toolgate.gateway.scope.view import View
from toolgate.model.names import MAX_AUDITED_NAME, kind_of
from toolgate.policy.scope import Decision, EffectiveFilter
from toolgate.redaction.arguments import DEFAULT_REDACTION

MAX_AUDITED_CALLERS: Final = 8_192
"""Callers whose last audited scope is remembered: about 2 MiB. A forgotten scope is audited again."""
MAX_NAME_BYTES: Final = 4 * 1024
"""Size of tool names and exclusions in one event. The counts are always complete."""
MAX_RULE_BYTES: Final = 2 * 1024  # size of server names and filters in one event
MAX_DETAILED: Final = 60
"""Events with names per principal and minute. Further events have counts only, and are as short as a call's:
a caller that requests many subsets must not push older events out of the log."""
_MAX_RULE_CHARS: Final = 160  # of one rule: as of the reason in the record of a rejected request
_MEMBER_BYTES: Final = 80  # bytes of the member names of one exclusion


@dataclass(slots=True)
class ScopeAudit:
    """Writes an audit event when a caller's offer differs from its last audited one."""

    audit: AuditLog
    most: int = MAX_AUDITED_CALLERS
    last: dict[tuple[str, str], tuple[str, int, int]] = field(default_factory=dict)
    minute: int = 0
    detailed: dict[str, int] = field(default_factory=dict)
    """Events with names per principal in that minute."""

    def record_offer(self, view: View, surface: str) -> None:
        if view.is_audited:
            return
        view.is_audited = True
        caller, scope = (view.session_key, view.mode), view.scope
        applied = hash((scope.servers, scope.filters, view.profiles))
        offer = scope_digest(view), view.excluded.fingerprint, applied
        if self.last.pop(caller, None) != offer:
            self.audit.record(_build_event(view, surface, offer[0], is_detailed=self._take_detail(view)))
        self.last[caller] = offer
        while len(self.last) > self.most:
            del self.last[next(iter(self.last))]

    def _take_detail(self, view: View) -> bool:
        minute, principal_id = int(time.time() / 60), view.caller.principal.id
        if minute != self.minute:
            self.minute, self.detailed = minute, {}
        count = self.detailed.get(principal_id, 0)
        if count >= MAX_DETAILED or (not count and len(self.detailed) >= self.most):
            return False
        self.detailed[principal_id] = count + 1
        return True


def scope_digest(view: View) -> str:
    """SHA-256 over the names and definitions of a scope, equal in every process and mode."""
    tables = (view.tools, view.prompts, view.resources, view.templates)
    held = sorted(f"{one.server_id}/{one.name} {one.digest}" for table in tables for one in table.values())
    return hashlib.sha256("\n".join(held).encode(errors="surrogatepass")).hexdigest()


def _build_event(view: View, surface: str, digest: str, *, is_detailed: bool) -> ScopeOffered:
    caller, scope, excluded = view.caller, view.scope, view.excluded
    tools = (f"{ref.server_id}.{ref.name}" for ref in scope.tools)
    return ScopeOffered(
        at_ms=int(time.time() * 1e3),
        door=surface,
        principal=caller.principal.id,
        scope=digest,
        mode=view.mode,
        servers=len(scope.servers),
        tools=len(scope.tools),
        prompts=len(scope.prompts),
        resources=len(scope.resources) + len(scope.templates),
        tokens=view.list_tokens,
        excluded=excluded.count,
        task_id=caller.effective_task_id or "",
        server_id=caller.only_server or "",
        revision=view.revision,
        effective_servers=tuple(_take_fitting(scope.servers, MAX_RULE_BYTES)) if is_detailed else (),
        filters=tuple(_filters(scope.filters)) if is_detailed else (),
        profile=view.profiles,
        offered=tuple(_take_fitting(tools, MAX_NAME_BYTES)) if is_detailed else (),
        reasons={str(reason): count for reason, count in sorted(excluded.reasons.items())},
        exclusions=tuple(_exclusions(excluded.named)) if is_detailed else (),
    )


def _take_fitting(names: Iterable[str], room: int) -> Iterator[str]:
    """The first of `names` that take at most `room` bytes together."""
    for name in names:
        room -= len(name.encode(errors="replace")) + 3
        if room < 0:
            return
        yield name


def _filters(filters: Sequence[EffectiveFilter]) -> Iterator[AppliedFilter]:
    room = MAX_RULE_BYTES
    for one in filters:
        room -= _MEMBER_BYTES + len(one.rule.encode(errors="replace"))
        if room < 0:
            return
        patterns = tuple(_take_fitting(one.patterns, room))
        room -= sum(len(pattern.encode(errors="replace")) + 3 for pattern in patterns)
        yield AppliedFilter(one.layer, one.rule[:_MAX_RULE_CHARS], patterns, one.is_deny)


def _exclusions(decisions: Iterable[Decision]) -> Iterator[Exclusion]:
    room = MAX_NAME_BYTES
    for one in decisions:
        name = one.tool or ""
        if kind_of(name):  # a URI may contain a password
            name = DEFAULT_REDACTION.redact_name(name, MAX_AUDITED_NAME)
        rule = one.rule[:_MAX_RULE_CHARS]
        assert one.reason is not None  # every exclusion has a reason
        room -= _MEMBER_BYTES + len(f"{one.server_id}{name}{rule}".encode(errors="replace"))
        if room < 0:
            return
        yield Exclusion(one.server_id, one.reason, one.layer, rule, name)
