"""The compiled scope: which tools, prompts and resources one caller sees, and why others are excluded.

Values only. Every endpoint lists from a scope and calls through it; there is no other way to a server.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from toolgate.errors import TooManyTools
from toolgate.model.names import ToolRef
from toolgate.model.tasks import RolloutBy, Side

Layer = Literal["platform", "key", "caller", "task", "request"]
RefusalCode = Literal["mcp_policy_denied", "too_many_tools", "not_found"]


class Reason(StrEnum):
    """Why a server, tool, prompt or resource is not in a scope. Each exclusion has exactly one reason."""

    UNKNOWN_SERVER = "unknown_server"
    SERVER_DISABLED = "server_disabled"
    NOT_REQUESTED = "not_requested"
    NOT_ALLOWED_BY_KEY = "not_allowed_by_key"
    INTEGRATION_OFF = "integration_off"
    """The caller switched the server off, or has not switched it on."""
    INTEGRATION_READ_ONLY = "integration_read_only"
    """The caller switched on the server's read-only tools, and this is not one of them."""
    NOT_ALLOWED_BY_TASK = "not_allowed_by_task"
    DENY_ALL = "deny_all"
    ENV_MISSING = "env_missing"
    LIST_TIMEOUT = "list_timeout"
    LIST_FAILED = "list_failed"
    NOT_IN_SERVER_ALLOWLIST = "not_in_server_allowlist"
    NOT_IN_TASK_ALLOWLIST = "not_in_task_allowlist"
    DENIED_BY_TASK = "denied_by_task"
    NOT_IN_REQUEST_ALLOWLIST = "not_in_request_allowlist"
    DENIED_BY_REQUEST = "denied_by_request"
    QUARANTINED = "quarantined"
    """The definition differs from its pin."""
    INVALID_DEFINITION = "invalid_definition"
    APPROVAL_REQUIRED = "approval_required"
    """Never hides a tool: an approver decides when it is called."""


UNREACHED: Final = (Reason.UNKNOWN_SERVER, Reason.ENV_MISSING, Reason.LIST_TIMEOUT, Reason.LIST_FAILED)
"""No rule excludes such a server: it does not exist or cannot be listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision, with its layer and rule.

    A denial comes from the first layer that denies. An allowed tool names the narrowest allowlist that
    matched it: the server's own `allowed_tools` if no later layer has an allowlist.
    """

    server_id: str
    tool: str | None
    """A tool's name, `prompt:<name>` or `resource:<uri>`. None: the whole server."""
    allowed: bool
    layer: Layer
    reason: Reason | None
    """None exactly when allowed."""
    rule: str
    """The rule as its author wrote it, for people."""
    shadow: "Decision | None" = None
    """If allowed: the denial that enforcement of the task's policy would give it."""


def deny(server_id: str, tool: str | None, layer: Layer, reason: Reason, rule: str) -> Decision:
    return Decision(server_id=server_id, tool=tool, allowed=False, layer=layer, reason=reason, rule=rule)


class EffectiveFilter(NamedTuple):
    """An allowlist or denylist that key, task or request apply to every server of a scope."""

    layer: Layer
    rule: str
    patterns: tuple[str, ...]
    is_deny: bool


class ApprovalRequirement(NamedTuple):
    """Each call of a tool needs an approval, required by this layer and rule."""

    layer: Layer
    rule: str
    in_place: bool = True
    """Whether the user of the calling client may approve."""


@dataclass(frozen=True, slots=True)
class ProfileVersion:
    """The version of a profile that decided."""

    profile_id: str
    version: int
    side: Side | None = None
    """Null: no rollout is under way."""
    share: int = 100
    """Percent of callers or tasks with this version."""
    by: RolloutBy = "caller"

    def __str__(self) -> str:
        return f"{self.profile_id}@{self.version}"

    @property
    def title(self) -> str:
        """For people: during a rollout, with the version. Never the share: a scope is audited once, whatever
        the number of its callers."""
        if self.side is None:
            return f"`{self.profile_id}`"
        return f"`{self.profile_id}` version {self.version} ({self.side})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the whole request is denied. `code` is an error code."""

    code: RefusalCode
    message: str
    hint: str
    servers: tuple[str, ...] = field(default=(), compare=False)
    """The requested servers that are not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What one caller sees and may call.

    Invariant: with a refusal it is empty. Otherwise `tools`, `prompts`, `resources` and `templates` are
    exactly those with an allowed decision. After `too_many_tools` the decisions still show what the rules
    admit, so that readers see what to narrow.
    """

    tools: tuple[ToolRef, ...] = ()
    """Sorted, like the other fields."""
    prompts: tuple[ToolRef, ...] = ()
    resources: tuple[ToolRef, ...] = ()
    templates: tuple[ToolRef, ...] = ()
    """With their prefix. A URI that a client reads through a template is decided separately."""
    servers: tuple[str, ...] = ()
    """Sorted: the servers that no layer excluded as a whole, including unlisted ones."""
    filters: tuple[EffectiveFilter, ...] = ()
    """In the order of the layers. The server's own `allowed_tools` come before them."""
    decisions: tuple[Decision, ...] = ()
    """Sorted by server and name. A server excluded as a whole has one decision. Servers that a list of ids
    excludes have no decision: there may be thousands, and `explain` names them."""
    warnings: tuple[str, ...] = ()
    refusal: Refusal | None = None
    approvals: Mapping[ToolRef, ApprovalRequirement] = field(default_factory=lambda: MappingProxyType({}))
    """The approvals that calls of `tools` need."""
    tokens: int = 0
    """Tokens of the definitions of `tools`."""
    profiles: tuple[ProfileVersion, ...] = ()
    """The versions of the profiles that applied, the task's profile first."""
    is_searchable: bool = False
    """Whether it has more tools than the limit, so that endpoints offer search instead of their
    definitions."""

    @property
    def refs(self) -> tuple[ToolRef, ...]:
        return self.tools + self.prompts + self.resources + self.templates

    @property
    def admitted(self) -> frozenset[ToolRef]:
        """Everything that the layers allow, even if a limit then denied the whole request."""
        allowed = ((one.server_id, one.tool) for one in self.decisions if one.allowed)
        return frozenset(ToolRef(server_id, name) for server_id, name in allowed if name is not None)

    @property
    def shadowed(self) -> Mapping[ToolRef, Decision]:
        """The refs that are allowed only because the task's policy is not enforced, with their denials."""
        return {
            ToolRef(one.server_id, one.tool): one.shadow
            for one in self.decisions
            if one.shadow is not None and one.tool is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLimits:
    """The size limits of a scope, in tools and tokens. A larger scope is made searchable or denied, never
    cut."""

    max_tools: int = 128
    max_definition_tokens: int | None = None
    on_too_many: Literal["refuse", "find"] = "find"

    def describe_excess(self, tools: int, tokens: int) -> str | None:
        """Describe how much a scope of this size exceeds the limits; None if it does not."""
        if tools > self.max_tools:
            return f"{tools} tools, {tools - self.max_tools} more than `max_tools` {self.max_tools}"
        most = self.max_definition_tokens
        if most is not None and tokens > most:
            return f"definitions of {tokens} tokens, {tokens - most} more than `max_definition_tokens` {most}"
        return None


DEFAULT_LIMITS: Final = ScopeLimits()
NO_LIMITS: Final = ScopeLimits(max_tools=sys.maxsize)
"""For a scope that is never listed."""


def refuse_oversize(excess: str) -> Refusal:
    return Refusal(code="too_many_tools", message=f"the scope has {excess}", hint=TooManyTools.default_hint)
