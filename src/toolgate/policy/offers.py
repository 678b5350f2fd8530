"""What a server offers, as rules see it: the names it lists, and whether a pattern could speak of one."""

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from toolgate.model.effects import UNSTATED, Effects
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.pins import Pin
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.policy.patterns import Patterns


class Registered(NamedTuple):
    """What all servers have together, whoever may see it."""

    tools: int
    tokens: int
    """What the definitions of those that can be offered cost a model."""


def registered(platform: Snapshot) -> Registered:
    """Looks at every server: not for what must be quick."""
    offers = platform.servers.values()
    return Registered(
        tools=sum(len(offered_tools(offer)) for offer in offers),
        tokens=sum(tool.tokens for offer in offers for tool in offer.tools.values()),
    )


def offered_tools(offer: ServerTools) -> Collection[str]:
    """Every tool the server lists, those with a refused definition included."""
    names = offer.tools.keys()
    return names | {name for name in offer.quarantined if not kind_of(name)} if offer.quarantined else names


def offered_names(offer: ServerTools) -> Collection[str]:
    """Everything the server lists: tools, and prompts, resources and templates as policy names them."""
    names: AbstractSet[str] = offer.tools.keys()
    if offer.quarantined:
        names = names | offer.quarantined.keys()
    if offer.prompts:
        names = names | {PROMPT + name for name in offer.prompts}
    if offer.resources or offer.templates:
        names = names | {RESOURCE + uri for uri in (*offer.resources, *offer.templates)}
    return names


def matching(platform: Snapshot, patterns: Patterns, *, is_deny: bool) -> Iterator[ToolRef]:
    """All that is registered and that `patterns` speak of, by server and name. Looks at every server, too.

    `is_deny`: as a denylist reads them, which for effects matches more.
    """
    for server_id, offer in sorted(platform.servers.items()):
        if patterns.has_bare or patterns.names_server(server_id):
            yield from matching_in(offer, platform.pins.get(server_id), patterns, is_deny=is_deny)


def matching_in(
    offer: ServerTools, pin: Pin | None, patterns: Patterns, *, is_deny: bool
) -> Iterator[ToolRef]:
    """What of a server `patterns` speak of, by name."""
    server_id = offer.record.server_id
    for name in sorted(offered_names(offer)):
        ref = ToolRef(server_id, name)
        effects = approved_effects(offer, pin, name)
        if patterns.first_match(ref, native_name(offer, name), effects=effects, is_deny=is_deny) is not None:
            yield ref


def native_name(offer: ServerTools, name: str) -> str:
    """What the server itself calls a tool that has an alias; else empty."""
    tool = offer.tools.get(name)
    return "" if tool is None else tool.native_name


def approval_objection(pin: Pin, name: str, listed: ToolDefinition | None) -> str:
    """Why a tool of a pinned server is not offered; empty: it is as it was approved, as far as is known."""
    approved = pin.tools.get(name)
    if approved is None:
        return "pin: not approved"
    if name in pin.changed:
        return "pin: its definition changed after it was approved"
    if listed is not None and listed.digest != approved:
        return "pin: its definition is not the approved one"
    return ""


def approved_effects(offer: ServerTools, pin: Pin | None, name: str) -> Effects:
    """The effects of a tool by its approved definition. Of any other definition nothing counts."""
    tool = offer.tools.get(name)
    if tool is None or (pin is not None and approval_objection(pin, name, tool)):
        return UNSTATED
    return tool.effects


def is_unlisted(offer: ServerTools) -> bool:
    """Whether what the server has is not known, now or from an earlier time: it may have anything."""
    return offer.state != "ready" and not (offer.tools or offer.prompts or offer.resources or offer.templates)


def may_hold(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether something of the server matches or, as long as what it has is not known, could.

    Pins aside: what is not as approved is not offered, whatever it matches.
    """
    server_id = offer.record.server_id
    if is_unlisted(offer):
        return patterns.has_bare or patterns.names_server(server_id)
    names = offered_tools(offer) if patterns.are_about_tools else offered_names(offer)
    if patterns.matches_any(server_id, names):
        return True
    if patterns.has_effects and _has_effect(offer, patterns, is_deny=is_deny):
        return True
    natives = [tool.native_name for tool in offer.tools.values() if tool.native_name]
    return bool(natives) and patterns.matches_any(server_id, [one for one in natives if not kind_of(one)])


def _has_effect(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether a tool of the server matches a pattern for an effect. Equal annotations are looked at once."""
    found = {tool.effects for tool in offer.tools.values()}
    if any(not kind_of(name) for name in offer.quarantined):
        found.add(UNSTATED)
    return any(patterns.match_effect(offer.record.server_id, one, is_deny=is_deny) for one in found)
