"""Checks each prompt, resource and resource template that a server lists, alone; all lists of a server as one
value.

The members that a request depends on (the name or URI, a prompt's arguments) must be valid, or the listing is
quarantined with the reason, under its name in policy. Optional members of the wrong type are dropped. A
listing is never judged by its text.

URI templates (RFC 6570) are matched only to decide whether a URI could have come from one. Both sides may be
untrusted, so matching never backtracks: the reachable positions of a URI are the bits of one number, and each
part of a template moves all of them at once.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from toolgate.catalog import checks
from toolgate.catalog.checks import InvalidDefinition, Members, QuarantinedDefinition
from toolgate.catalog.definitions import check_tools
from toolgate.model.json_text import encode_canonical
from toolgate.model.names import PROMPT, RESOURCE
from toolgate.model.tools import Listing, ServerTools, ToolDefinition

MAX_TEMPLATE_BYTES: Final = 512  # a quarter of a URI: matching costs more the longer a template is
MAX_EXPRESSIONS: Final = 16  # matching costs more with each; a path and a query have fewer parts
MAX_WORK: Final = 100_000
"""The limit of all templates of a server: a URI may be matched with each, while other requests wait."""
_EXPRESSION_WORK: Final = 12  # steps of `Uri.skip`: the powers of two up to the longest URI

_EXPRESSION: Final = re.compile(r"\{([^{}]+)\}")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_.%]+")


def measure_work(template: str) -> int:
    """The work of matching a URI with a template, in characters."""
    # What precedes the first expression is compared in one step.
    return sum(_EXPRESSION_WORK + len(literal) for literal in _EXPRESSION.split(template)[2::2])


class UriTemplate:
    """One template, split into its parts. Literals match themselves, `{x}` anything without a `/`, and every
    other kind of expression anything."""

    __slots__ = ("_head", "_rest", "_tail")

    def __init__(self, text: str) -> None:
        head, *rest = _EXPRESSION.split(text)
        self._head = head
        pairs = zip(rest[::2], rest[1::2], strict=True)
        self._rest = tuple((_SIMPLE.fullmatch(one) is not None, literal) for one, literal in pairs)
        self._tail = rest[-1] if rest else ""

    def matches(self, uri: "Uri") -> bool:
        """Whether some values of the variables expand the template to `uri`."""
        if not (uri.text.startswith(self._head) and uri.text.endswith(self._tail)):
            return False
        reached = 1 << len(self._head)
        for is_segment, literal in self._rest:
            reached = uri.skip(reached, within_segment=is_segment)
            for char in literal:
                reached = (reached & uri.places(char)) << 1
            if not reached:
                return False
        return bool(reached & uri.end)


class Uri:
    """A URI to match with many templates. Bit i of a number is the position before character i."""

    __slots__ = ("_all", "_places", "_runs", "end", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 1 << len(text)
        self._all = (self.end << 1) - 1
        self._places: dict[str, int] = {}
        for at, char in enumerate(text):
            self._places[char] = self._places.get(char, 0) | 1 << at
        # By length, a power of two: the positions before that many characters without a `/`.
        self._runs: list[tuple[int, int]] = []
        length, run = 1, self.end - 1 & ~self.places("/")
        while run:
            self._runs.append((length, run))
            run &= run >> length
            length *= 2

    def places(self, char: str) -> int:
        return self._places.get(char, 0)

    def skip(self, reached: int, *, within_segment: bool) -> int:
        """The positions that are reachable over any characters, or over any but `/`."""
        if not within_segment:
            lowest = reached & -reached
            return self._all & ~(lowest - 1)
        for length, run in self._runs:
            reached |= (reached & run) << length
        return reached


MAX_PROMPT_NAME: Final = 256  # as for a tool that gets an alias; MCP has no limit
MAX_URI_BYTES: Final = 2_048  # as in the protocol of sitemaps.org; a URI is often a URL
MAX_ARGUMENTS: Final = 128  # people fill them in: well above what a form asks for

CheckedListings = tuple[Mapping[str, Listing], Mapping[str, str]]

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""The beginning of an absolute URI."""
# An authority that strict clients can parse: an invalid one costs them the whole list.
_AUTHORITY: Final = re.compile(
    r"//(?:[^/?#@\\]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@\\\[\]:<>^|%\" ]*)(?::(?P<port>[0-9]{0,5}))?(?=[/?#\\]|$)"
)
_NEEDS_HOST: Final = re.compile(r"(?:https?|wss?|ftp):", re.IGNORECASE)
_HAS_HOST: Final = re.compile(r"[^:]*:[/\\]*[^/\\?#]")
_TIMESTAMP: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$"

_ADORNMENTS: Final[Mapping[str, Any]] = {"title": str, "icons": list[checks.Icon], "_meta": dict[str, Any]}
_CONTENT_ADORNMENTS: Final[Mapping[str, Any]] = {
    **_ADORNMENTS,
    "mimeType": str,
    "size": Annotated[int, msgspec.Meta(ge=0)],
    "annotations": dict[str, Any],
}
_ANNOTATIONS: Final[Mapping[str, Any]] = {
    "audience": list[Literal["user", "assistant"]],
    "priority": Annotated[float, msgspec.Meta(ge=0, le=1)],
    "lastModified": Annotated[str, msgspec.Meta(pattern=_TIMESTAMP)],
}
_ARGUMENT_ADORNMENTS: Final[Mapping[str, Any]] = {"title": str, "description": str, "required": bool}


class _Kind(NamedTuple):
    """The name and the checks of one kind of listing."""

    words: str
    prefix: str
    """The prefix of its names in policy."""
    key: str
    """The member that is its name."""
    check_name: Callable[[str], None]
    repair: Callable[[str, Members], Members]


def check_prompts(server_id: str, raws: Sequence[bytes]) -> CheckedListings:
    """The prompts of a server by name, and the quarantined `prompt:<name>` with the reasons."""
    return _check_all(_PROMPTS, server_id, raws)


def check_resources(server_id: str, raws: Sequence[bytes]) -> CheckedListings:
    """The resources of a server by URI, and the quarantined `resource:<uri>` with the reasons."""
    return _check_all(_RESOURCES, server_id, raws)


def check_templates(server_id: str, raws: Sequence[bytes]) -> CheckedListings:
    """The templates of a server by text, and the quarantined ones with the reasons."""
    listings, quarantined = _check_all(_TEMPLATES, server_id, raws)
    totals = accumulate(map(measure_work, listings))
    pairs = zip(listings.items(), totals, strict=True)
    kept = {template: listing for (template, listing), work in pairs if work <= MAX_WORK}
    why = "earlier templates use up the limit for matching"
    left_out = {RESOURCE + template: why for template in listings if template not in kept}
    return MappingProxyType(kept), MappingProxyType({**quarantined, **left_out})


def _check_all(kind: _Kind, server_id: str, raws: Sequence[bytes]) -> CheckedListings:
    """The two never share a name: a quarantined listing without a unique name is `name#position`."""
    listings: dict[str, Listing] = {}
    quarantined: dict[str, str] = {}
    for position, raw in enumerate(raws[: checks.MAX_DEFINITIONS], start=1):
        checked = _check_listing(kind, server_id, raw)
        name = checked.name
        key = kind.prefix + name
        is_taken = not name or name in listings or key in quarantined
        if isinstance(checked, QuarantinedDefinition):
            quarantined[f"{key}#{position}" if is_taken else key] = checked.reason
        elif is_taken:
            quarantined[f"{key}#{position}"] = f"its {kind.key} is already taken"
        else:
            listings[name] = checked
    if len(raws) > checks.MAX_DEFINITIONS:
        left_out = len(raws) - checks.MAX_DEFINITIONS
        reason = f"{left_out} {kind.words} exceed the limit of {checks.MAX_DEFINITIONS} per server"
        quarantined[f"{kind.prefix}#{checks.MAX_DEFINITIONS + 1}"] = reason
    return MappingProxyType(listings), MappingProxyType(quarantined)


def _check_listing(kind: _Kind, server_id: str, raw: bytes) -> Listing | QuarantinedDefinition:
    label = ""
    try:
        sent = checks.parse_members(raw)
        name = sent.get(kind.key)
        if not isinstance(name, str) or not name:
            return QuarantinedDefinition("", f"it has no {kind.key}")
        label = checks.describe_name(name)
        kind.check_name(name)
        label = name
        members = kind.repair(name, sent)
        checks.check_description(members)
        checks.check_depth(members)
        encoded = checks.reencode(raw, sent=sent, members=members)
        digest = hashlib.sha256(encode_canonical(members)).hexdigest()
        return Listing(server_id=server_id, name=name, raw=encoded, digest=digest)
    except InvalidDefinition as refusal:
        return QuarantinedDefinition(label, str(refusal))


def _check_prompt_name(name: str) -> None:
    if len(name) > MAX_PROMPT_NAME or not name.isprintable():
        raise InvalidDefinition(f"its name must be 1 to {MAX_PROMPT_NAME} visible characters")


def _check_uri(uri: str) -> None:
    _check_absolute(uri)
    start = uri.index(":") + 1
    authority = _AUTHORITY.match(uri, start)
    if uri.startswith("//", start) and (authority is None or int(authority["port"] or 0) > 65_535):
        raise InvalidDefinition("the host in its URI is invalid")
    if _NEEDS_HOST.match(uri) and not _HAS_HOST.match(uri):
        raise InvalidDefinition("its URI has no host")


def _check_template(template: str) -> None:
    _check_absolute(template, MAX_TEMPLATE_BYTES)
    literal, expressions = _EXPRESSION.subn("", template)
    if "{" in literal or "}" in literal:
        raise InvalidDefinition("its braces are unbalanced")
    if expressions > MAX_EXPRESSIONS:
        raise InvalidDefinition(f"it has more than {MAX_EXPRESSIONS} expressions")


def _check_absolute(uri: str, max_bytes: int = MAX_URI_BYTES) -> None:
    if not uri.isprintable() or len(uri.encode()) > max_bytes:
        raise InvalidDefinition(f"its URI must be 1 to {max_bytes} visible bytes")
    if not SCHEME.match(uri):
        raise InvalidDefinition("its URI does not begin with a scheme")


def _repair_prompt(_name: str, sent: Members) -> Members:
    members = checks.keep_valid(sent, _ADORNMENTS)
    if members.get("arguments", ()) is None:
        del members["arguments"]
    arguments = members.get("arguments", [])
    if (
        not isinstance(arguments, list)
        or len(arguments) > MAX_ARGUMENTS
        or not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in arguments)
    ):
        raise InvalidDefinition(f"its arguments must be a list of at most {MAX_ARGUMENTS} with names")
    kept = [checks.keep_valid(argument, _ARGUMENT_ADORNMENTS) for argument in arguments]
    if kept != arguments:
        members["arguments"] = kept
    return members


def _repair_content(uri: str, sent: Members) -> Members:
    """The name is for people: a listing without a name gets its URI."""
    members = checks.keep_valid(sent, _CONTENT_ADORNMENTS)
    if not isinstance(members.get("name"), str):
        members["name"] = uri
    annotations: Members = members.get("annotations", {})
    kept = checks.keep_valid(annotations, _ANNOTATIONS)
    if len(kept) < len(annotations):
        members["annotations"] = kept
    return members


_PROMPTS: Final = _Kind("prompts", PROMPT, "name", _check_prompt_name, _repair_prompt)
_RESOURCES: Final = _Kind("resources", RESOURCE, "uri", _check_uri, _repair_content)
_TEMPLATES: Final = _Kind("templates", RESOURCE, "uriTemplate", _check_template, _repair_content)


_NO_LISTINGS: Mapping[str, Listing] = MappingProxyType({})


class ServerLists(NamedTuple):
    """What a server offers, by name, and the quarantined names with the reasons."""

    tools: Mapping[str, ToolDefinition]
    quarantined: Mapping[str, str]
    prompts: Mapping[str, Listing] = _NO_LISTINGS
    resources: Mapping[str, Listing] = _NO_LISTINGS
    templates: Mapping[str, Listing] = _NO_LISTINGS


def check_lists(
    server_id: str,
    *,
    tools: Sequence[bytes],
    prompts: Sequence[bytes],
    resources: Sequence[bytes],
    templates: Sequence[bytes],
) -> ServerLists:
    good_tools, bad_tools = check_tools(server_id, tools)
    good_prompts, bad_prompts = check_prompts(server_id, prompts)
    good_resources, bad_resources = check_resources(server_id, resources)
    good_templates, bad_templates = check_templates(server_id, templates)
    quarantined = MappingProxyType({**bad_tools, **bad_prompts, **bad_resources, **bad_templates})
    return ServerLists(good_tools, quarantined, good_prompts, good_resources, good_templates)


def digest_lists(lists: ServerLists | ServerTools) -> str:
    """Equal exactly for equal lists, in any order."""
    digests = [
        {name: one.digest for name, one in found.items()}
        for found in (lists.tools, lists.prompts, lists.resources, lists.templates)
    ]
    return hashlib.sha256(encode_canonical([*digests, dict(lists.quarantined)])).hexdigest()
