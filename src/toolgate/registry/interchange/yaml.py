"""The YAML subset of other programs' catalogs: maps, lists and texts. Only this module knows the library.

It uses the library's parser, event by event, and never its constructors. It rejects aliases and tags, so a
small file cannot become a large value or name a type. Numbers stay text: a version `1.10` does not become
`1.1`.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

import yaml

from toolgate.errors import InvalidRecord

MAX_YAML_BYTES: Final = 1024 * 1024  # generous for a catalog of some hundred servers
MAX_DEPTH: Final = 32  # a catalog has about ten levels; each costs two stack frames
MAX_NODES: Final = 100_000  # one for every ten bytes of the largest file
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
"""The values of plain words. Any other word is text, including `no` and `off`."""
# The parser in C, if the library was built with it, is twenty times as fast.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, loader: Any = _LOADER) -> object:
    """Parse the one document in `text`. Raises InvalidRecord, whose message never repeats its content."""
    if len(text.encode(errors="replace")) > MAX_YAML_BYTES:
        raise InvalidRecord(f"a YAML file may have at most {MAX_YAML_BYTES} bytes")
    try:
        return _YamlReader(yaml.parse(text, Loader=loader)).read_document()
    except yaml.MarkedYAMLError as exc:
        where = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        raise InvalidRecord(f"the document is not YAML{where}: {exc.problem}") from exc
    except (yaml.YAMLError, UnicodeError) as exc:
        raise InvalidRecord("the document is not YAML: it has invalid characters") from exc


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
                    raise _invalid_yaml(event, "a second document begins here, only one is supported")
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
            raise _invalid_yaml(event, f"the document has more than {MAX_NODES} values")
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.style is None or event.style == ""
            return _WORDS.get(event.value, event.value) if is_plain else event.value
        if depth >= MAX_DEPTH:
            raise _invalid_yaml(event, f"values are nested deeper than {MAX_DEPTH} levels")
        # Each event begins a member of a list or a map, with names and values alternating.
        members = takewhile(lambda one: not isinstance(one, yaml.CollectionEndEvent), self._events)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._read_value(one, depth + 1) for one in members]
        found: dict[str, object] = {}
        for one in members:
            name = self._read_value(one, depth + 1)
            if not isinstance(name, str) or name in found:
                raise _invalid_yaml(one, "a key must be text, and unique in its map")
            found[name] = self._read_value(next(members), depth + 1)
        return found


def _invalid_yaml(event: Any, why: str) -> InvalidRecord:
    line = event.start_mark.line + 1
    return InvalidRecord(f"invalid YAML in line {line}: {why}")
