"""Checks each tool definition that a server lists, alone: one bad tool never costs the list. Compares them.

The members that a call depends on (name, description, schemas) must be valid, or the tool is quarantined with
the reason. Optional members (title, icons, hints) are dropped if they have the wrong type: strict clients
would reject the whole list for one, and the default of every hint is the cautious one. Everything else passes
unchanged. A definition is never judged by its text.

A diff is for people who approve a new definition. It compares everything that a digest covers, states every
omission, and escapes invisible characters.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from toolgate.catalog import checks, naming
from toolgate.catalog.checks import InvalidDefinition, Members, QuarantinedDefinition
from toolgate.catalog.naming import MAX_NATIVE_NAME, fold_lookalikes, is_disguised, make_alias
from toolgate.model.json_text import decode_members, encode_canonical, encode_json
from toolgate.model.names import ToolRef, is_tool_name
from toolgate.model.tools import HINTS, ToolDefinition, read_effects

# Each match is one piece: up to six letters (short words are one token, long identifiers several), up to
# three digits, up to four signs (tokenizers join `":{"`), or one character outside ASCII, counted by its
# leading byte. Spaces cost nothing: they belong to the word after them.
_PIECE: Final = re.compile(rb"[A-Za-z]{1,6}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,4}|[\xc2-\xf4]")


def estimate_tokens(text: bytes) -> int:
    """The estimated tokens of the UTF-8 `text`, without any model's vocabulary. For comparisons and limits,
    not for billing: on JSON Schema and English it is close to common tokenizers."""
    return len(_PIECE.findall(text))


MAX_SCHEMA_BYTES: Final = 256 * 1024  # about 65,000 tokens: no model can use more

UNDIGESTED: Final = frozenset({"icons", "execution"})
"""Only people look at icons, and servers often sign their URLs again for every list."""
_SEEN_BY_MODELS: Final = ("name", "description", "inputSchema")
_SCHEMAS: Final = ("inputSchema", "outputSchema")


class _Execution(msgspec.Struct, rename="camel"):
    task_support: Literal["forbidden", "optional", "required"] = "forbidden"


class _OutputSchema(msgspec.Struct):
    dialect: str = msgspec.field(default="", name="$schema")


_TOOL_ADORNMENTS: Final[Mapping[str, Any]] = {
    "title": str,
    "icons": list[checks.Icon],
    "annotations": dict[str, Any],
    "execution": _Execution,
    "outputSchema": _OutputSchema,
    "_meta": dict[str, Any],
}
_HINTS: Final[Mapping[str, Any]] = {"title": str, **dict.fromkeys(HINTS.values(), bool)}


def check_tools(
    server_id: str, raws: Sequence[bytes]
) -> tuple[Mapping[str, ToolDefinition], Mapping[str, str]]:
    """The tools of a server by name, and the quarantined ones with the reasons.

    The two never share a key: a quarantined definition without a unique name is listed as `name#position`,
    and no tool name has a `#`. The first definition with a name keeps it, valid or not, so later ones cannot
    replace a tool. Plain names come before aliases.
    """
    tools: dict[str, ToolDefinition] = {}
    quarantined: dict[str, str] = {}
    found = [check_definition(server_id, raw) for raw in raws[: checks.MAX_DEFINITIONS]]
    claimed: dict[str, str] = {}
    for one in found:
        if not one.native_name:
            claimed.setdefault(one.name.casefold(), one.name)
    for position, checked in enumerate(_disambiguate_aliases(found, claimed), start=1):
        name, native = checked.name, checked.native_name
        first = claimed.setdefault(fold_lookalikes(native) if native else name.casefold(), name)
        if not name or name in tools or name in quarantined:
            taken = "its name is already taken"
            reason = checked.reason if isinstance(checked, QuarantinedDefinition) else taken
            quarantined[f"{name}#{position}"] = reason
        elif isinstance(checked, QuarantinedDefinition):
            quarantined[name] = checked.reason
        elif first != name:
            problem = f"looks like `{first}`" if native else f"differs from `{first}` only in case"
            quarantined[name] = f"its name {problem}"
        else:
            tools[name] = checked
    if len(raws) > checks.MAX_DEFINITIONS:
        left_out = len(raws) - checks.MAX_DEFINITIONS
        reason = f"{left_out} tools exceed the limit of {checks.MAX_DEFINITIONS} per server"
        quarantined[f"#{checks.MAX_DEFINITIONS + 1}"] = reason
    return MappingProxyType(tools), MappingProxyType(quarantined)


def check_definition(server_id: str, raw: bytes) -> ToolDefinition | QuarantinedDefinition:
    """Check and measure one definition. Returns the reason if it is quarantined."""
    try:
        members = checks.parse_members(raw)
    except InvalidDefinition as refusal:
        return QuarantinedDefinition("", str(refusal))
    name = members.get("name")
    if not isinstance(name, str) or not name:
        return QuarantinedDefinition("", "it has no name")
    native = "" if is_tool_name(name) else name
    if len(native) > MAX_NATIVE_NAME or not native.isprintable():
        fault = f"its name must be 1 to {MAX_NATIVE_NAME} visible characters"
        return QuarantinedDefinition(checks.describe_name(name), fault)
    if native and is_disguised(native):
        fault = f"its name looks like `{fold_lookalikes(native)}` but has other letters"
        return QuarantinedDefinition(checks.describe_name(name), fault)
    ref = ToolRef(server_id, make_alias(native) if native else name)
    try:
        return _define(ref, raw, members, native=native)
    except InvalidDefinition as refusal:
        return QuarantinedDefinition(name, str(refusal))


def _disambiguate_aliases(
    found: Sequence[ToolDefinition | QuarantinedDefinition], claimed: Mapping[str, str]
) -> Iterator[ToolDefinition | QuarantinedDefinition]:
    """`found`, with more digits of the hash for an alias that is also a plain name or another alias."""
    natives: dict[str, str] = {}
    for checked in found:
        native = checked.native_name
        if isinstance(checked, QuarantinedDefinition) or not native:
            yield checked
            continue
        aliases = (make_alias(native, digits) for digits in naming.ALIAS_HASH_DIGITS)
        free = (one for one in aliases if one.casefold() not in claimed)
        alias = next(one for one in free if natives.setdefault(one.casefold(), native) == native)
        yield replace(checked, ref=ToolRef(checked.ref.server_id, alias))


def _define(ref: ToolRef, raw: bytes, sent: Members, *, native: str) -> ToolDefinition:
    members = _repair(sent)
    if native:
        members.setdefault("title", native)  # an alias with other letters means little to people
    raws = decode_members(raw)
    for key in _SCHEMAS:
        if key in raws and len(bytes(raws[key])) > MAX_SCHEMA_BYTES:
            raise InvalidDefinition(f"its `{key}` is larger than {MAX_SCHEMA_BYTES} bytes")
    checks.check_depth({key: value for key, value in members.items() if key not in _SCHEMAS})
    if members.get("execution", {}).get("taskSupport") == "required":
        raise InvalidDefinition("it can only be called as a task, which this gateway does not support")
    schemas = [members[key] for key in _SCHEMAS if key in members]
    for schema in schemas:
        checks.check_schema(schema)
    seen = {key: members[key] for key in _SEEN_BY_MODELS if key in members}
    return ToolDefinition(
        ref=ref,
        raw=checks.reencode(raw, sent=sent, members=members),
        digest=hashlib.sha256(encode_canonical(pick_digested(members))).hexdigest(),
        tokens=estimate_tokens(msgspec.json.encode(seen)),
        native_name=native,
        description=members.get("description", ""),
        is_legacy_safe=all(checks.to_stateful_schema(schema) is schema for schema in schemas),
        effects=read_effects(members.get("annotations", {})),
        param_headers=checks.parse_param_headers(members["inputSchema"]),
    )


def pick_digested(members: Members) -> Members:
    """The members that the digest covers: all that reach a client, except UNDIGESTED."""
    return {key: value for key, value in members.items() if key not in UNDIGESTED}


def _repair(sent: Members) -> Members:
    """`sent` without optional members of the wrong type, and with an `inputSchema`."""
    members = checks.keep_valid(sent, _TOOL_ADORNMENTS)
    checks.check_description(members)
    hints: Members = members.get("annotations", {})
    kept = checks.keep_valid(hints, _HINTS)
    if len(kept) < len(hints):
        members["annotations"] = kept
    members["inputSchema"] = checks.parse_input_schema(sent.get("inputSchema"))
    return members


MAX_DIFF_LINES: Final = 1_000  # of one tool: no one reads more; further lines are counted
MAX_SHOWN_LINES: Final = 5_000  # of all tools: later ones are named as changed, without their diff
NOT_SHOWN: Final = ("… too many changes to show at once",)

_WIDTH: Final = 120  # columns at which long texts are folded: those of a wide terminal
# `difflib` takes the product of both lengths at worst. Past this, all old lines precede all new ones.
_MAX_COMPARED: Final = 4_000_000
# A line break inside a JSON string: a good place to break a long text.
_ESCAPED_BREAK: Final = re.compile(r"((?<!\\)(?:\\\\)*\\n)(?=.)")
_FOLDABLE: Final = re.compile(rf"(.{{{_WIDTH // 2},{_WIDTH}}} |.{{{_WIDTH}}})(?=.)")

Definitions = Mapping[str, bytes]
"""Tool name → its definition, as JSON."""


@dataclass(frozen=True, slots=True)
class RenamedTool:
    """A tool that only has another name than before."""

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChanges:
    """The differences of two sets of tools. A tool is in at most one of the four fields."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[RenamedTool, ...] = ()
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tool to the lines of a diff."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.renamed or self.changed)


def diff_definitions(old: Definitions, new: Definitions) -> ToolChanges:
    """The changes from `old` to `new`. Raises InvalidDefinition for anything but a JSON object."""
    before, after = (
        {name: pick_digested(checks.parse_members(raw)) for name, raw in side.items()} for side in (old, new)
    )
    went, came = _group_by_content(before, after), _group_by_content(after, before)
    # A tool is renamed if exactly one removed and one added tool have the same content.
    pairs = ((names, came.get(content, ())) for content, names in went.items())
    renamed = tuple(RenamedTool(old[0], new[0]) for old, new in pairs if len(old) == len(new) == 1)
    gone, come = {one.before for one in renamed}, {one.after for one in renamed}
    changed: dict[str, tuple[str, ...]] = {}
    left = MAX_SHOWN_LINES
    for name in sorted(before.keys() & after.keys()):
        if encode_canonical(before[name]) != encode_canonical(after[name]):
            changed[name] = diff_lines(before[name], after[name]) if left > 0 else NOT_SHOWN
            left -= len(changed[name])
    return ToolChanges(
        added=tuple(sorted(after.keys() - before.keys() - come)),
        removed=tuple(sorted(before.keys() - after.keys() - gone)),
        renamed=renamed,
        changed=changed,
    )


def _group_by_content(tools: Mapping[str, Members], others: Mapping[str, Members]) -> dict[bytes, list[str]]:
    """The tools that `others` does not have, by everything but their name."""
    found: dict[bytes, list[str]] = {}
    for name in sorted(tools.keys() - others.keys()):
        content = {key: value for key, value in tools[name].items() if key != "name"}
        found.setdefault(encode_canonical(content), []).append(name)
    return found


def diff_lines(old: object, new: object) -> tuple[str, ...]:
    """A bounded unified diff of two JSON values, without invisible characters."""
    before, after = _split_lines(old), _split_lines(new)
    if len(before) * len(after) > _MAX_COMPARED:
        lines = [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    else:
        # The first two lines name files: drop them.
        lines = list(unified_diff(before, after, lineterm=""))[2:]
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"… and {len(lines) - MAX_DIFF_LINES} more lines"]
    return tuple(lines)


def _split_lines(value: object) -> Sequence[str]:
    text = _ESCAPED_BREAK.sub(r"\1\n", encode_json(value, indent=2, sort_keys=True))
    return [piece for line in text.split("\n") for piece in _FOLDABLE.sub(r"\1\n", line).split("\n")]
