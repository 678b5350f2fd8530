"""The diff of two sets of definitions, for people who approve the new one.

It compares what a digest covers, in any order. It leaves nothing out without saying so, and hides nothing:
invisible characters are escaped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from types import MappingProxyType
from typing import Any, Final

from toolgate.catalog.checks import encode_canonical, parse_members
from toolgate.catalog.definitions import pick_digested
from toolgate.model.json_text import encode_json

MAX_DIFF_LINES: Final = 1_000
"""Of one tool. Further lines are counted."""
MAX_SHOWN_LINES: Final = 5_000
"""Of all tools together. Later tools are named as changed, without their diff."""
NOT_SHOWN: Final = ("… more changes than can be shown at once",)

_WIDTH: Final = 120
# `difflib` takes the product of both lengths at worst. Past this, all old lines precede all new ones.
_MAX_COMPARED: Final = 4_000_000
# A line break inside a JSON string: a good place to break a long text.
_ESCAPED_BREAK: Final = re.compile(r"((?<!\\)(?:\\\\)*\\n)(?=.)")
_FOLDABLE: Final = re.compile(rf"(.{{{_WIDTH // 2},{_WIDTH}}} |.{{{_WIDTH}}})(?=.)")

Definitions = Mapping[str, bytes]
"""Tool name → its definition, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChanges:
    """The differences of two sets of tools. A tool is in at most one of the four."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """(old name, new name) of tools that are otherwise equal."""
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Tool name → the lines of a unified diff."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.renamed or self.changed)


def diff_definitions(old: Definitions, new: Definitions) -> ToolChanges:
    """The changes from `old` to `new`. Raises InvalidDefinition for what is not a JSON object."""
    before = {name: _parse_digested(raw) for name, raw in old.items()}
    after = {name: _parse_digested(raw) for name, raw in new.items()}
    removed = sorted(before.keys() - after.keys())
    added = sorted(after.keys() - before.keys())
    renamed = tuple(
        _find_renames({name: before[name] for name in removed}, {name: after[name] for name in added})
    )
    gone, come = {name for name, _ in renamed}, {name for _, name in renamed}
    return ToolChanges(
        added=tuple(name for name in added if name not in come),
        removed=tuple(name for name in removed if name not in gone),
        renamed=renamed,
        changed=MappingProxyType(_diff_changed(before, after)),
    )


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


def _diff_changed(
    before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]
) -> dict[str, tuple[str, ...]]:
    changed: dict[str, tuple[str, ...]] = {}
    left = MAX_SHOWN_LINES
    for name in sorted(before.keys() & after.keys()):
        if encode_canonical(before[name]) != encode_canonical(after[name]):
            changed[name] = diff_lines(before[name], after[name]) if left > 0 else NOT_SHOWN
            left -= len(changed[name])
    return changed


def _parse_digested(raw: bytes) -> dict[str, Any]:
    return pick_digested(parse_members(raw))


def _find_renames(
    removed: Mapping[str, dict[str, Any]], added: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Pairs that differ in their name alone, if that is unambiguous."""
    came = _group_by_content(added)
    for content, names in _group_by_content(removed).items():
        if len(names) == 1 and len(came.get(content, ())) == 1:
            yield names[0], came[content][0]


def _group_by_content(tools: Mapping[str, dict[str, Any]]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for name, members in tools.items():
        content = encode_canonical({key: value for key, value in members.items() if key != "name"})
        found.setdefault(content, []).append(name)
    return found


def _split_lines(value: object) -> Sequence[str]:
    text = _ESCAPED_BREAK.sub(r"\1\n", encode_json(value, indent=2, sort_keys=True))
    return [piece for line in text.split("\n") for piece in _FOLDABLE.sub(r"\1\n", line).split("\n")]
