"""Patterns: which tools, prompts and resources a list of rules matches.

A pattern is a glob (`model.names.Glob`), anchored and case-sensitive. With a `/`, the part before it matches
the server id, and the part after it the tool name. Without a `/` it matches the tool name of any server.

A pattern that begins with `prompt:` or `resource:` matches prompts or resources, any other pattern only
tools: `*` is every tool and nothing else. In these patterns the first `/` separates server and name, except
that in `resource:` a part with a colon is the scheme of the URI.

A name that begins with `@` is an effect: `@read_only` matches every tool whose approved definition states it,
`fs/@read_only` those of one server. It never matches a tool name, not even a native name `@read_only`. An
allowlist and a denylist read a definition differently, each in the way that allows less: see `model.tools`.

A name is only compared, never interpreted: a `*` in a tool name is a plain character.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord
from toolgate.model.names import RESOURCE, Glob, ToolRef, kind_of
from toolgate.model.tools import HINTS, Effects

MAX_PATTERN: Final = 128  # characters: the maximum of a tool name
MAX_KIND_PATTERN: Final = 1_024  # of prompts and resources: half of the longest URI
MAX_LISTED: Final = 2_000  # patterns in one list of a record: the maximum tools of one server
MAX_LISTED_WILDCARDS: Final = 128  # of them with wildcards: each is matched with every tool
EFFECT: Final = "@"
"""The first character of an effect."""
_NONE: Final[frozenset[str]] = frozenset()


def parse_pattern(text: str) -> str:
    """Parse a pattern. Raises InvalidRecord."""
    kind = kind_of(text)
    if text == kind:
        hint = f"write a name after it, or `{kind}*` for all" if kind else "name a tool, or use `*` for all"
        raise InvalidRecord(f"the pattern `{kind}` has no name" if kind else "empty pattern", hint=hint)
    longest = MAX_KIND_PATTERN if kind else MAX_PATTERN
    if len(text) > longest:
        hint = f"use at most {longest} characters; `*` matches any run of characters"
        raise InvalidRecord(f"the pattern `{ascii(text[:40])[1:-1]}…` has {len(text)} characters", hint=hint)
    if not text.isprintable() or " " in text:
        message = f"the pattern `{ascii(text)[1:-1]}` contains a space or an invisible character"
        raise InvalidRecord(message, hint="use `?` for one character, `*` for any run of characters")
    if EFFECT in text and not kind:
        _check_effect(text)
    return text


def _check_effect(text: str) -> None:
    server, name = _split_pattern(text)
    word = name.removeprefix(EFFECT)
    if name.startswith(EFFECT) and word not in HINTS:
        close = get_close_matches(word.lower().replace("-", "_"), HINTS, n=1)
        guess = f"did you mean `{EFFECT}{close[0]}`? " if close else ""
        known = ", ".join(f"`{EFFECT}{effect}`" for effect in HINTS)
        raise InvalidRecord(f"unknown effect `{name}`", hint=f"{guess}the effects are {known}")
    if server is not None and server.startswith(EFFECT):
        message = f"the pattern `{text}` has an invalid server id `{server}`"
        raise InvalidRecord(message, hint=f"write the server before the effect, as in `fs/{EFFECT}read_only`")


def effect_of(text: str) -> str | None:
    """The effect that a pattern matches. None: it matches names."""
    name = _split_pattern(text)[1] if EFFECT in text else ""
    return name.removeprefix(EFFECT) if name.startswith(EFFECT) else None


def has_wildcard(text: str) -> bool:
    return "*" in text or "?" in text


def check_patterns(patterns: Collection[str]) -> None:
    """Raises InvalidRecord for a list that would take too long to match with thousands of tools."""
    if len(patterns) > MAX_LISTED:
        hint = f"use at most {MAX_LISTED}; `*` matches many tools"
        raise InvalidRecord(f"the list has {len(patterns)} patterns", hint=hint)
    if (wild := sum(map(has_wildcard, patterns))) > MAX_LISTED_WILDCARDS:
        hint = f"use at most {MAX_LISTED_WILDCARDS}, or name the tools"
        raise InvalidRecord(f"the list has {wild} patterns with wildcards", hint=hint)


class _WildcardPattern(NamedTuple):
    """One pattern with wildcards. `server` None: any."""

    text: str
    server: Glob | None
    name: Glob

    def covers_server(self, server_id: str) -> bool:
        return self.server is None or self.server.matches(server_id)


class _EffectPattern(NamedTuple):
    """One pattern for an effect. `server` None: any."""

    text: str
    server: Glob | None
    effect: str


def _split_pattern(text: str) -> tuple[str | None, str]:
    """The server of a pattern, if it has one, and its name with the prefix of its kind."""
    kind = kind_of(text)
    if not kind:
        server, slash, name = text.rpartition("/")
    else:
        server, slash, name = text[len(kind) :].partition("/")
    if not slash or (kind == RESOURCE and ":" in server):
        return None, text
    return server, kind + name


class Patterns:
    """A set of patterns, compiled once. Two sets are equal if they contain the same texts, in any order."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(sorted(set(texts)))
        self.are_about_tools = not any(map(kind_of, self.texts))
        self.has_bare = False
        """Whether a pattern has no server, and so matches any server."""
        self._names: set[str] = set()
        self._refs: defaultdict[str, set[str]] = defaultdict(set)
        self._wild: defaultdict[str, list[_WildcardPattern]] = defaultdict(list)
        """By kind: a wildcard never matches another kind."""
        self._effects: defaultdict[str, list[_EffectPattern]] = defaultdict(list)
        """By the server that is named without wildcards, or under an empty name."""
        servers: set[str] = set()
        for text in self.texts:
            server, name = _split_pattern(text)
            if server is None:
                self.has_bare = True
            else:
                servers.add(server)
            if name.startswith(EFFECT):
                glob = Glob(server) if server is not None and has_wildcard(server) else None
                where = server if server is not None and glob is None else ""
                self._effects[where].append(_EffectPattern(text, glob, name.removeprefix(EFFECT)))
            elif has_wildcard(text):
                glob = None if server is None else Glob(server)
                self._wild[kind_of(text)].append(_WildcardPattern(text, glob, Glob(name)))
            elif server is not None:
                self._refs[server].add(name)
            else:
                self._names.add(name)
        self.has_effects = bool(self._effects)
        self.server_ids = frozenset(server for server in servers if not has_wildcard(server))
        """The servers that are named without wildcards."""
        self._servers = [Glob(server) for server in servers if has_wildcard(server)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Patterns) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def names_server(self, server_id: str) -> bool:
        """Whether a pattern has a server part that matches this server."""
        return server_id in self.server_ids or any(glob.matches(server_id) for glob in self._servers)

    def first_match(self, ref: ToolRef, native: str = "", *, effects: Effects, is_deny: bool) -> str | None:
        """The pattern that matches `ref`: an exact one, else the first in order of text.

        A tool with an alias matches by its alias and by its `native` name, which is never of another kind.
        `effects` are those of its approved definition, or UNSTATED. Effects are matched last.
        """
        found = self._match_name(ref)
        if found is not None:
            return found
        if native and not kind_of(native):
            found = self._match_name(ToolRef(ref.server_id, native))
        if found is None and self.has_effects and not kind_of(ref.name):
            return self.match_effect(ref.server_id, effects, is_deny=is_deny)
        return found

    def _match_name(self, ref: ToolRef) -> str | None:
        if ref.name in self._names:
            return ref.name
        if ref.name in self._refs.get(ref.server_id, _NONE):
            return str(ref)
        for wild in self._wild.get(kind_of(ref.name), ()):
            if wild.covers_server(ref.server_id) and wild.name.matches(ref.name):
                return wild.text
        return None

    def match_effect(self, server_id: str, effects: Effects, *, is_deny: bool) -> str | None:
        """The pattern for an effect that matches a tool of this server with these `effects`."""
        for one in self._effects_for(server_id):
            if effects.counts_as(one.effect, is_deny=is_deny):
                return one.text
        return None

    def explain_effects(self, ref: ToolRef, match: str | None, effects: Effects) -> str:
        """What the definition states about the effect of `match`, or about each effect if `match` is None."""
        if kind_of(ref.name) or (match is not None and effect_of(match) is None):
            return ""
        patterns = (one for one in self._effects_for(ref.server_id) if match in {None, one.text})
        named = "" if match is not None else "`{}`: "
        stated = [named.format(one.text) + effects.describe(one.effect) for one in patterns]
        return f" ({'; '.join(stated)})" if stated else ""

    def _effects_for(self, server_id: str) -> Iterator[_EffectPattern]:
        yield from self._effects.get(server_id, ())
        for one in self._effects.get("", ()):
            if one.server is None or one.server.matches(server_id):
                yield one

    def matches_any(self, server_id: str, names: Collection[str]) -> bool:
        """Whether a pattern matches one of the `names` of a server. Effects do not count."""
        if not self._names.isdisjoint(names) or not self._refs.get(server_id, _NONE).isdisjoint(names):
            return True
        for kind, wild in self._wild.items():
            if globs := [one.name for one in wild if one.covers_server(server_id)]:
                # Most names are tools, and only other kinds have a colon.
                own = [name for name in names if (kind_of(name) if ":" in name else "") == kind]
                if any(any(map(glob.matches, own)) for glob in globs):
                    return True
        return False
