"""Tool patterns: which names a list of rules speaks of.

A pattern is anchored and case-sensitive. `*` stands for any run of characters, also none; `?` for exactly
one; every other character, `[`, `{`, `!` and `\\` included, for itself. Without a `/` it is held against
the tool name; with one, what stands before the `/` against the server id, what follows it against the tool
name.

Patterns come from callers too, so matching must never backtrack: a pattern is cut at its stars and the
pieces are searched from left to right, each once. The subject is only ever compared, never interpreted:
a `*` in a tool's name is a character like any other.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef

MAX_PATTERN: Final = 128
MAX_LISTED: Final = 2_000
MAX_LISTED_WILDCARDS: Final = 128
"""Patterns in one list of a record, and those with wildcards among them: each is held against every tool."""
_NONE: Final[frozenset[str]] = frozenset()


def parse_pattern(text: str) -> str:
    """`text` as a pattern, or InvalidRecord."""
    if not text:
        raise InvalidRecord("a pattern is empty", hint="name a tool, or use `*` for all")
    if len(text) > MAX_PATTERN:
        raise InvalidRecord(
            f"the pattern `{ascii(text[:40])[1:-1]}…` has {len(text)} characters",
            hint=f"use at most {MAX_PATTERN}; `*` stands for any run of characters",
        )
    if not text.isprintable() or " " in text:
        raise InvalidRecord(
            f"the pattern `{ascii(text)[1:-1]}` holds a space or a character that cannot be seen",
            hint="tool names hold letters, digits, `_`, `.` and `-`",
        )
    return text


def has_wildcard(text: str) -> bool:
    """Whether `text` can match more than itself."""
    return "*" in text or "?" in text


def check_patterns(patterns: Collection[str]) -> None:
    """InvalidRecord where one list of a record would take too long to hold against thousands of tools."""
    if len(patterns) > MAX_LISTED:
        raise InvalidRecord(
            f"the list has {len(patterns)} patterns",
            hint=f"use at most {MAX_LISTED}; `*` stands for many tools",
        )
    if (wild := sum(map(has_wildcard, patterns))) > MAX_LISTED_WILDCARDS:
        raise InvalidRecord(
            f"the list has {wild} patterns with wildcards",
            hint=f"use at most {MAX_LISTED_WILDCARDS}, or name the tools",
        )


class _Piece:
    """A part of a pattern between two stars: characters, some of which may be `?`."""

    __slots__ = ("_gaps", "_last", "_masks", "length", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)
        self._gaps = sum(1 << at for at, char in enumerate(text) if char == "?")
        self._last = 1 << self.length >> 1
        self._masks: dict[str, int] = {}
        if self._gaps:
            for at, char in enumerate(text):
                self._masks[char] = self._masks.get(char, self._gaps) | 1 << at

    def stands_at(self, subject: str, at: int) -> bool:
        """Whether `subject` holds the piece at `at`. The caller made sure that it is long enough."""
        if not self._gaps:
            return subject.startswith(self.text, at)
        return all(mine in {"?", subject[at + i]} for i, mine in enumerate(self.text))

    def find(self, subject: str, start: int, end: int) -> int:
        """The first place of the piece in `subject[start:end]`, or -1."""
        if not self._gaps:
            return subject.find(self.text, start, end)
        # Shift-And: bit i of `state` says that the characters up to here end with the piece's first i+1,
        # so one step a character serves all starting places at once.
        mask_of, gaps, last, state = self._masks.get, self._gaps, self._last, 0
        for at, char in enumerate(subject[start:end], start + 1):
            state = (state << 1 | 1) & mask_of(char, gaps)
            if state & last:
                return at - self.length
        return -1


class _Glob:
    """One text with wildcards, cut at its stars."""

    __slots__ = ("_head", "_middle", "_tail")

    def __init__(self, text: str) -> None:
        head, *rest = text.split("*")
        self._head = _Piece(head)
        self._tail = _Piece(rest[-1]) if rest else None
        self._middle = tuple(_Piece(piece) for piece in rest[:-1] if piece)

    def matches(self, subject: str) -> bool:
        head, tail = self._head, self._tail
        if tail is None:
            return len(subject) == head.length and head.stands_at(subject, 0)
        at, end = head.length, len(subject) - tail.length
        if end < at or not head.stands_at(subject, 0) or not tail.stands_at(subject, end):
            return False
        for piece in self._middle:
            found = piece.find(subject, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True


class _Wild(NamedTuple):
    """One pattern with wildcards. `server` None: it speaks of every server."""

    text: str
    server: _Glob | None
    tool: _Glob

    def reaches(self, server_id: str) -> bool:
        return self.server is None or self.server.matches(server_id)


@dataclass(frozen=True, slots=True)
class Patterns:
    """A set of patterns, compiled once. Two are equal when they hold the same texts, in any order."""

    texts: tuple[str, ...]
    _names: frozenset[str] = field(compare=False, repr=False)
    _refs: Mapping[str, frozenset[str]] = field(compare=False, repr=False)
    _wild: tuple[_Wild, ...] = field(compare=False, repr=False)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Patterns":
        unique = tuple(sorted(set(texts)))
        names: set[str] = set()
        refs: dict[str, set[str]] = {}
        wild: list[_Wild] = []
        for text in unique:
            server, slash, tool = text.rpartition("/")
            if has_wildcard(text):
                wild.append(_Wild(text, _Glob(server) if slash else None, _Glob(tool)))
            elif slash:
                refs.setdefault(server, set()).add(tool)
            else:
                names.add(tool)
        frozen = {server: frozenset(tools) for server, tools in refs.items()}
        return cls(unique, frozenset(names), frozen, tuple(wild))

    @property
    def has_bare(self) -> bool:
        """Whether a pattern here names no server, and so speaks of all of them."""
        return bool(self._names) or any(wild.server is None for wild in self._wild)

    @property
    def server_ids(self) -> frozenset[str]:
        """The servers named outright, without a wildcard in their id."""
        parts = (text.rpartition("/") for text in self.texts)
        return frozenset(server for server, slash, _ in parts if slash and not has_wildcard(server))

    def names_server(self, server_id: str) -> bool:
        """Whether a pattern here has a server part, and it is this server's."""
        if server_id in self._refs:
            return True
        return any(wild.server is not None and wild.server.matches(server_id) for wild in self._wild)

    def first_match(self, ref: ToolRef) -> str | None:
        """The pattern that speaks of `ref`: an exact one if there is, else the first in order of text."""
        if ref.name in self._names:
            return ref.name
        if ref.name in self._refs.get(ref.server_id, _NONE):
            return str(ref)
        for wild in self._wild:
            if wild.reaches(ref.server_id) and wild.tool.matches(ref.name):
                return wild.text
        return None

    def matches_any(self, server_id: str, names: Collection[str]) -> bool:
        """Whether a pattern here speaks of one of the tools `names` of that server."""
        if not self._names.isdisjoint(names):
            return True
        if not self._refs.get(server_id, _NONE).isdisjoint(names):
            return True
        reaching = [wild.tool for wild in self._wild if wild.reaches(server_id)]
        return any(tool.matches(name) for tool in reaching for name in names)


def matches_text(pattern: str, text: str) -> bool:
    """Whether `pattern`, in which `/` is a character like any other, matches the whole of `text`."""
    return _Glob(pattern).matches(text)
