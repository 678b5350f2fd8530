"""What a server offers, as rules see it: the names it lists, and whether a pattern could speak of one."""

from collections.abc import Collection

from toolgate.model.tools import ServerTools
from toolgate.policy.patterns import Patterns


def offered_names(offer: ServerTools) -> Collection[str]:
    """Every tool the server lists, those with a refused definition included."""
    names = offer.tools.keys()
    return names | offer.quarantined.keys() if offer.quarantined else names


def is_unlisted(offer: ServerTools) -> bool:
    """Whether the server's tools are not known, now or from an earlier time: it may have any."""
    return offer.state != "ready" and not offer.tools


def may_hold(offer: ServerTools, patterns: Patterns) -> bool:
    """Whether a tool of the server matches or, as long as its tools are not known, could."""
    server_id = offer.record.server_id
    if is_unlisted(offer):
        return patterns.has_bare or patterns.names_server(server_id)
    return patterns.matches_any(server_id, offered_names(offer))
