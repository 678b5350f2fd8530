"""The part of YAML that catalogs of other programs need: maps, lists and texts. The only module that knows
the library.

It uses the library's parser, event by event, and never its constructors. It refuses aliases and tags, so a
small file cannot become a large value or name a type. Numbers stay text: a version `1.10` does not become
`1.1`.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from toolgate.errors import InvalidRecord

MAX_YAML_BYTES: Final = 1024 * 1024  # generous for a catalog of some hundred servers
MAX_DEPTH: Final = 32  # a catalog has about ten levels; each costs two stack frames
MAX_NODES: Final = 100_000  # one for every ten bytes of the largest file
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
"""The meaning of plain words. Any other is text, `no` and `off` included."""
# The parser in C, if the library was built with it, is twenty times as fast.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, loader: Any = _LOADER) -> object:
    """Parse the one document in `text`. Raises InvalidRecord, whose message never repeats its content."""
    if len(text.encode(errors="replace")) > MAX_YAML_BYTES:
        raise InvalidRecord(f"a YAML file may have {MAX_YAML_BYTES} bytes")
    try:
        return _YamlReader(yaml.parse(text, Loader=loader)).read_document()
    except yaml.MarkedYAMLError as exc:
        where = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        raise InvalidRecord(f"this is not YAML{where}: {exc.problem}") from exc
    except (yaml.YAMLError, UnicodeError) as exc:
        raise InvalidRecord("this is not YAML: it has invalid characters") from exc


class _YamlReader:
    """Reads the value that a stream of events describes. Raises InvalidRecord for what is not supported."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._nodes = 0

    def read_document(self) -> object:
        documents, value = 0, None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _invalid_yaml(event, "one document is expected, and another begins here")
            elif isinstance(event, yaml.NodeEvent):
                value = self._read_value(event, 0)
        return value

    def _read_value(self, event: Any, depth: int) -> object:
        if isinstance(event, yaml.AliasEvent):
            raise _invalid_yaml(event, "aliases are not supported: repeat the value")
        # The parser adds no tags: this one is in the file.
        if event.tag is not None:
            raise _invalid_yaml(event, "tags are not supported: write plain values")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _invalid_yaml(event, f"there are more than {MAX_NODES} values")
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.style is None or event.style == ""
            return _WORDS.get(event.value, event.value) if is_plain else event.value
        if depth >= MAX_DEPTH:
            raise _invalid_yaml(event, f"values nest deeper than {MAX_DEPTH} levels")
        members = self._read_members()
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._read_value(one, depth + 1) for one in members]
        found: dict[str, object] = {}
        for one in members:
            name = self._read_value(one, depth + 1)
            if not isinstance(name, str) or name in found:
                raise _invalid_yaml(one, "a name must be text, and unique in its map")
            found[name] = self._read_value(next(members), depth + 1)
        return found

    def _read_members(self) -> Iterator[Any]:
        """Yield the events that begin the members of a list or a map, whose names and values alternate."""
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event


def _invalid_yaml(event: Any, why: str) -> InvalidRecord:
    line = event.start_mark.line + 1
    return InvalidRecord(f"this YAML cannot be read in line {line}: {why}")
