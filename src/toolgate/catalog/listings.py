"""Checks each prompt, resource and resource template a server lists, alone, as tools are checked.

What a request depends on (the name or URI, a prompt's arguments) must be right, or the listing is
quarantined with the reason, under the name that policy knows it by. What only adorns it is left out when it
has the wrong type. Nothing is ever judged by what its text says.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from toolgate.catalog.checks import SchemaRefused
from toolgate.catalog.members import (
    MAX_LISTED,
    Icon,
    Members,
    Quarantined,
    check_depth,
    check_description,
    encode_canonical,
    keep_fitting,
    parse_members,
    respell,
    shown,
)
from toolgate.catalog.templates import MAX_EXPRESSIONS, MAX_TEMPLATE_BYTES, MAX_WORK, work_of
from toolgate.model.names import PROMPT, RESOURCE
from toolgate.model.tools import Listing

MAX_PROMPT_NAME: Final = 256
MAX_URI_BYTES: Final = 2_048
MAX_ARGUMENTS: Final = 128

Checked = tuple[Mapping[str, Listing], Mapping[str, str]]

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""How an absolute URI begins."""
# An authority that strict clients can parse: one they cannot costs them the whole list.
_AUTHORITY: Final = re.compile(
    r"//(?:[^/?#@\\]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@\\\[\]:<>^|%\" ]*)(?::(?P<port>[0-9]{0,5}))?(?=[/?#\\]|$)"
)
_NEEDS_HOST: Final = re.compile(r"(?:https?|wss?|ftp):", re.IGNORECASE)
_HAS_HOST: Final = re.compile(r"[^:]*:[/\\]*[^/\\?#]")
_EXPRESSION: Final = re.compile(r"\{[^{}]+\}")
_MOMENT: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$"

_ADORNMENTS: Final[Mapping[str, Any]] = {"title": str, "icons": list[Icon], "_meta": dict[str, Any]}
_CONTENT_ADORNMENTS: Final[Mapping[str, Any]] = {
    **_ADORNMENTS,
    "mimeType": str,
    "size": Annotated[int, msgspec.Meta(ge=0)],
    "annotations": dict[str, Any],
}
_ANNOTATIONS: Final[Mapping[str, Any]] = {
    "audience": list[Literal["user", "assistant"]],
    "priority": Annotated[float, msgspec.Meta(ge=0, le=1)],
    "lastModified": Annotated[str, msgspec.Meta(pattern=_MOMENT)],
}
_ARGUMENT_ADORNMENTS: Final[Mapping[str, Any]] = {"title": str, "description": str, "required": bool}


class _Kind(NamedTuple):
    """How one kind of listing is told and checked."""

    words: str
    prefix: str
    """Of its names in policy."""
    key: str
    """The member that names it."""
    check_name: Callable[[str], None]
    repair: Callable[[str, Members], Members]


def check_prompts(server_id: str, raws: Sequence[bytes]) -> Checked:
    """The prompts of a server by name, and what was quarantined as `prompt:<name>`, with the reasons."""
    return _check_all(_PROMPTS, server_id, raws)


def check_resources(server_id: str, raws: Sequence[bytes]) -> Checked:
    """The resources of a server by URI, and what was quarantined as `resource:<uri>`, with the reasons."""
    return _check_all(_RESOURCES, server_id, raws)


def check_templates(server_id: str, raws: Sequence[bytes]) -> Checked:
    """The templates of a server as they are written, and what was quarantined, with the reasons."""
    listings, quarantined = _check_all(_TEMPLATES, server_id, raws)
    kept: dict[str, Listing] = {}
    left_out: dict[str, str] = {}
    work = 0
    for template, listing in listings.items():
        work += work_of(template)
        if work <= MAX_WORK:
            kept[template] = listing
        else:
            left_out[RESOURCE + template] = (
                "the templates before it are as many and as long as can be matched"
            )
    return MappingProxyType(kept), MappingProxyType({**quarantined, **left_out})


def _check_all(kind: _Kind, server_id: str, raws: Sequence[bytes]) -> Checked:
    """The two never share a name: what cannot go by its own is quarantined as `name#position`."""
    listings: dict[str, Listing] = {}
    quarantined: dict[str, str] = {}
    for position, raw in enumerate(raws[:MAX_LISTED], start=1):
        checked = _check(kind, server_id, raw)
        name = checked.name
        key = kind.prefix + name
        is_taken = not name or name in listings or key in quarantined
        if isinstance(checked, Quarantined):
            quarantined[f"{key}#{position}" if is_taken else key] = checked.reason
        elif is_taken:
            quarantined[f"{key}#{position}"] = f"its {kind.key} is already taken"
        else:
            listings[name] = checked
    if len(raws) > MAX_LISTED:
        left_out = len(raws) - MAX_LISTED
        reason = f"{left_out} more {kind.words} than the {MAX_LISTED} a server may offer"
        quarantined[f"{kind.prefix}#{MAX_LISTED + 1}"] = reason
    return MappingProxyType(listings), MappingProxyType(quarantined)


def _check(kind: _Kind, server_id: str, raw: bytes) -> Listing | Quarantined:
    label = ""
    try:
        members = parse_members(raw)
        name = members.get(kind.key)
        if not isinstance(name, str) or not name:
            return Quarantined("", f"it has no {kind.key}")
        label = shown(name)
        kind.check_name(name)
        label = name
        return _define(kind, server_id, raw, members)
    except SchemaRefused as refusal:
        return Quarantined(label, str(refusal))


def _define(kind: _Kind, server_id: str, raw: bytes, sent: Members) -> Listing:
    members = kind.repair(sent[kind.key], sent)
    check_description(members)
    check_depth(members)
    return Listing(
        server_id=server_id,
        name=sent[kind.key],
        raw=respell(raw, sent=sent, members=members),
        digest=hashlib.sha256(encode_canonical(members)).hexdigest(),
    )


def _check_prompt_name(name: str) -> None:
    if len(name) > MAX_PROMPT_NAME or not name.isprintable():
        raise SchemaRefused(f"its name is not 1 to {MAX_PROMPT_NAME} characters that can be seen")


def _check_uri(uri: str) -> None:
    _check_absolute(uri)
    authority = _AUTHORITY.match(uri, uri.index(":") + 1)
    if uri.startswith("//", uri.index(":") + 1) and (
        authority is None or int(authority["port"] or 0) > 65_535
    ):
        raise SchemaRefused("the host in its URI cannot be read")
    if _NEEDS_HOST.match(uri) and not _HAS_HOST.match(uri):
        raise SchemaRefused("its URI has no host")


def _check_template(template: str) -> None:
    _check_absolute(template, MAX_TEMPLATE_BYTES)
    literal, expressions = _EXPRESSION.subn("", template)
    if "{" in literal or "}" in literal:
        raise SchemaRefused("its braces do not pair up")
    if expressions > MAX_EXPRESSIONS:
        raise SchemaRefused(f"it has more than {MAX_EXPRESSIONS} expressions")


def _check_absolute(uri: str, max_bytes: int = MAX_URI_BYTES) -> None:
    if not uri.isprintable() or len(uri.encode()) > max_bytes:
        raise SchemaRefused(f"its URI is not 1 to {max_bytes} bytes that can be seen")
    if not SCHEME.match(uri):
        raise SchemaRefused("its URI does not begin with a scheme")


def _repair_prompt(_name: str, sent: Members) -> Members:
    members = keep_fitting(sent, _ADORNMENTS)
    if members.get("arguments", ()) is None:
        del members["arguments"]
    arguments = members.get("arguments", [])
    if (
        not isinstance(arguments, list)
        or len(arguments) > MAX_ARGUMENTS
        or not all(map(_is_named, arguments))
    ):
        raise SchemaRefused(f"its arguments are not a list of at most {MAX_ARGUMENTS} with names")
    kept = [keep_fitting(argument, _ARGUMENT_ADORNMENTS) for argument in arguments]
    if kept != arguments:
        members["arguments"] = kept
    return members


def _is_named(argument: object) -> bool:
    return isinstance(argument, dict) and isinstance(argument.get("name"), str)


def _repair_content(uri: str, sent: Members) -> Members:
    """A name is for people to read: where there is none, the URI serves."""
    members = keep_fitting(sent, _CONTENT_ADORNMENTS)
    if not isinstance(members.get("name"), str):
        members["name"] = uri
    annotations: Members = members.get("annotations", {})
    kept = keep_fitting(annotations, _ANNOTATIONS)
    if len(kept) < len(annotations):
        members["annotations"] = kept
    return members


_PROMPTS: Final = _Kind("prompts", PROMPT, "name", _check_prompt_name, _repair_prompt)
_RESOURCES: Final = _Kind("resources", RESOURCE, "uri", _check_uri, _repair_content)
_TEMPLATES: Final = _Kind("templates", RESOURCE, "uriTemplate", _check_template, _repair_content)
