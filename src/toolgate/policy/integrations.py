"""The caller's own layer: which servers it switched on for itself, and whether only their read-only tools.

It stands between the key and the task, and can only narrow: switching on what the key does not reach gives
nothing. What is read-only is what the definition says that was approved; a tool that says nothing is not.
Prompts, resources and templates of a server that is on for its read-only tools stay: they are reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from toolgate.model.principals import IntegrationState, Principal, choice_id_of
from toolgate.model.snapshot import Snapshot
from toolgate.policy.rules import Rules, ServerRule
from toolgate.policy.scope import Reason

SWITCHED_OFF: Final = "integrations: off, by the caller"
NOT_SWITCHED_ON: Final = "integrations: off unless the caller switches it on"
READ_ONLY_BY_CALLER: Final = "integrations: read-only tools, by the caller"
READ_ONLY_BY_DEFAULT: Final = "integrations: read-only tools unless the caller switches on all"


@dataclass(frozen=True, slots=True)
class Integrations:
    """What one caller has of each server: as it chose, or else `default`."""

    default: IntegrationState = "on"
    chosen: Mapping[str, IntegrationState] = field(default_factory=lambda: MappingProxyType({}))

    def state_of(self, server_id: str) -> IntegrationState:
        return self.chosen.get(server_id, self.default)

    def limit_to_reading(self, server_id: str) -> str:
        """The rule by which only the read-only tools of a server pass; empty: there is no such rule."""
        if self.state_of(server_id) != "read_only":
            return ""
        return READ_ONLY_BY_CALLER if server_id in self.chosen else READ_ONLY_BY_DEFAULT


ALL_ON: Final = Integrations()
"""Of a caller that chose nothing, where nothing has to be chosen. It makes no rules."""


def integrations_of(platform: Snapshot, principal: Principal) -> Integrations:
    """What `principal` has of each server. A choice that cannot be read switches all of them off."""
    choice = platform.choices.get(choice_id_of(principal.id)) if platform.choices else None
    if choice is None:
        return ALL_ON if principal.integrations == "on" else Integrations(principal.integrations)
    return Integrations(principal.integrations, choice.servers) if choice.is_readable else Integrations("off")


def integration_rules(integrations: Integrations) -> Rules:
    """Which servers pass. Of those that are on for reading, `compose` looks at each tool's definition."""
    rules = []
    if switched_off := frozenset(one for one, state in integrations.chosen.items() if state == "off"):
        rules.append(_server_rule(SWITCHED_OFF, excluded=switched_off))
    if integrations.default == "off":
        rules.append(_server_rule(NOT_SWITCHED_ON, ids=frozenset(integrations.chosen)))
    return Rules(tuple(rules))


def _server_rule(
    name: str, *, ids: frozenset[str] | None = None, excluded: frozenset[str] = frozenset()
) -> ServerRule:
    return ServerRule(layer="caller", reason=Reason.INTEGRATION_OFF, name=name, ids=ids, excluded=excluded)
