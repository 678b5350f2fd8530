"""The shape of a key as it is written and stored: whom it proves, how far it reaches, what it may use."""

from sys import intern
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, model_validator

from toolgate.model.principals import Ceiling, Choice, IntegrationState, Key, Role, choice_id_of
from toolgate.model.quotas import MAX_CALLS, MAX_TOKENS, TimeBudgets
from toolgate.registry.records.fields import Name, Patterns, ServerId, Sha256, UnixTime, refuse
from toolgate.registry.records.server_bodies import Body, tuple_or_none

MAX_CHOICES: Final = 256
"""Servers that one caller chooses about: more than its model or its person can tell apart."""
MAX_PRINCIPAL_CHARS: Final = 300
"""`oidc:` and a subject of 255 characters, with room."""


class CeilingBody(Body):
    """The most a key may ever reach. A list left out does not restrict; an empty one lets nothing pass."""

    tasks: Annotated[list[Name], Field(max_length=2_000)] | None = None
    """Tasks the key may act for."""

    servers: Annotated[list[ServerId], Field(max_length=2_000)] | None = None
    """Servers it may reach."""

    allow: Patterns | None = None
    """Patterns of which a tool must match one."""

    deny: Patterns = Field(default=[])
    """Patterns of which a tool may match none."""

    def value(self) -> Ceiling:
        return Ceiling(
            tasks=tuple_or_none(self.tasks),
            servers=tuple_or_none(self.servers),
            allow=tuple_or_none(self.allow),
            deny=tuple(self.deny),
        )


class TimeBudgetsBody(Body):
    """What may be used over time, at all nodes together. A field left out does not restrict; none is zero."""

    calls_per_minute: int | None = Field(default=None, ge=1, le=MAX_CALLS)
    """Calls within one minute of the clock."""

    calls_per_day: int | None = Field(default=None, ge=1, le=MAX_CALLS)
    """Calls within one day, by UTC."""

    tokens_per_day: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Tokens within one day, by UTC: of the results of tools, by estimate, and of chats as models report
    them. What is under way when they are used up still ends."""

    def value(self) -> TimeBudgets | None:
        budgets = TimeBudgets(self.calls_per_minute, self.calls_per_day, self.tokens_per_day)
        return None if budgets == TimeBudgets() else budgets


class KeyBody(Body):
    """A credential, as its hash."""

    key_id: Name
    """The principal's name in audit and logs."""

    sha256: Sha256
    """The SHA-256 of the key. The key itself is never stored."""

    role: Role
    """`admin` governs, `publisher` writes tasks and profiles, `viewer` reads, `agent` calls tools, `node` is
    for a node of this gateway."""

    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach."""

    default_task: Name | None = None
    """The task of a request that names none."""

    expires_at_s: UnixTime | None = None
    """Unix time after which it proves nothing."""

    budgets: TimeBudgetsBody | None = None
    """What all who use it may use over time, together."""

    integrations: IntegrationState = "on"
    """What its callers have of each server before they choose for themselves: `on` all its tools, `read_only`
    those marked as read-only, `off` nothing. Callers switch servers on and off within the ceiling."""

    def value(self) -> Key:
        return Key(
            key_id=self.key_id,
            sha256=self.sha256,
            role=self.role,
            ceiling=self.ceiling.value(),
            default_task=self.default_task,
            expires_at_s=self.expires_at_s,
            budgets=self.budgets.value() if self.budgets else None,
            integrations=self.integrations,
        )


class ChoiceBody(Body):
    """Which servers one caller switched on and off for itself."""

    choice_id: Sha256
    """The SHA-256 of `principal`."""

    principal: Annotated[str, Field(min_length=1, max_length=MAX_PRINCIPAL_CHARS)]
    """Whose choice it is, as the audit names it."""

    servers: Annotated[dict[ServerId, IntegrationState], Field(max_length=MAX_CHOICES)] = Field(default={})
    """Server id to what the caller has of it."""

    @model_validator(mode="after")
    def _id_of_its_principal(self) -> "ChoiceBody":
        if self.choice_id != choice_id_of(self.principal):
            raise refuse("`choice_id` is not the SHA-256 of `principal`")
        return self

    def value(self) -> Choice:
        # Interned: thousands of callers choose among the same servers.
        servers = {intern(server_id): state for server_id, state in self.servers.items()}
        return Choice(choice_id=self.choice_id, principal=self.principal, servers=MappingProxyType(servers))
