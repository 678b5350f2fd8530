"""All that a server lists, of every kind, as one value: checked, and told from another by its digest."""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from toolgate.catalog.definitions import check_list
from toolgate.catalog.listings import check_prompts, check_resources, check_templates
from toolgate.catalog.members import encode_canonical
from toolgate.model.tools import Listing, ServerTools, ToolDefinition

_NOTHING: Mapping[str, Listing] = MappingProxyType({})


class Lists(NamedTuple):
    """What a server offers, by name, and what it does not, with the reasons."""

    tools: Mapping[str, ToolDefinition]
    quarantined: Mapping[str, str]
    prompts: Mapping[str, Listing] = _NOTHING
    resources: Mapping[str, Listing] = _NOTHING
    templates: Mapping[str, Listing] = _NOTHING

    @property
    def raws(self) -> tuple[bytes, ...]:
        """Every definition as it was written."""
        listings = (*self.prompts.values(), *self.resources.values(), *self.templates.values())
        return (*(tool.raw for tool in self.tools.values()), *(listing.raw for listing in listings))


def lists_of(offer: ServerTools) -> Lists:
    """What is known of a server."""
    return Lists(offer.tools, offer.quarantined, offer.prompts, offer.resources, offer.templates)


def check_lists(
    server_id: str,
    *,
    tools: Sequence[bytes],
    prompts: Sequence[bytes],
    resources: Sequence[bytes],
    templates: Sequence[bytes],
) -> Lists:
    """The definitions of a server, each checked alone."""
    good_tools, bad_tools = check_list(server_id, tools)
    good_prompts, bad_prompts = check_prompts(server_id, prompts)
    good_resources, bad_resources = check_resources(server_id, resources)
    good_templates, bad_templates = check_templates(server_id, templates)
    quarantined = MappingProxyType({**bad_tools, **bad_prompts, **bad_resources, **bad_templates})
    return Lists(good_tools, quarantined, good_prompts, good_resources, good_templates)


def digest_lists(lists: Lists) -> str:
    """Tells what a server offers from anything else, whatever the order it came in."""
    digests = [
        {name: one.digest for name, one in found.items()}
        for found in (lists.tools, lists.prompts, lists.resources, lists.templates)
    ]
    return hashlib.sha256(encode_canonical([*digests, dict(lists.quarantined)])).hexdigest()
