"""The part of YAML that catalogs of other programs need: maps, lists and texts. The only module that knows
the library.

It uses the library's parser, event by event, and never its constructors. It refuses aliases and tags, so a
small file cannot become a large value or name a type. Numbers stay text: a version `1.10` does not become
`1.1`.
"""

from typing import Any, Final

import yaml

from toolgate.errors import InvalidRecord

MAX_YAML_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 100_000

_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
"""The meaning of plain words. Any other is text, `no` and `off` included."""
# The parser in C, if the library was built with it, is twenty times as fast.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> object:
    """Parse the one document in `text`. Raises InvalidRecord, whose message never repeats its content."""
    if len(text.encode(errors="replace")) > MAX_YAML_BYTES:
        raise InvalidRecord(f"a YAML file may have {MAX_YAML_BYTES} bytes")
    builder = _YamlBuilder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as exc:
        where = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark else ""
        raise InvalidRecord(f"this is not YAML{where}: {exc.problem}") from exc
    except (yaml.YAMLError, UnicodeError) as exc:
        raise InvalidRecord("this is not YAML: it has invalid characters") from exc
    return builder.document


class _YamlBuilder:
    """Builds the value that a stream of events describes."""

    def __init__(self) -> None:
        self.document: object = None
        self._documents = 0
        self._nodes = 0
        self._open: list[_YamlCollection] = []

    def take(self, event: Any) -> None:
        """Apply one event. Raises InvalidRecord for what is not supported."""
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _invalid_yaml(event, "one document is expected, and another begins here")
            case yaml.AliasEvent():
                raise _invalid_yaml(event, "aliases are not supported: repeat the value")
            case yaml.NodeEvent():
                self._begin(event)
            case yaml.CollectionEndEvent():
                self._add(self._open.pop().value(), event)
            case _:
                pass

    def _begin(self, event: Any) -> None:
        # The parser adds no tags: this one is in the file.
        if event.tag is not None:
            raise _invalid_yaml(event, "tags are not supported: write plain values")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _invalid_yaml(event, f"there are more than {MAX_NODES} values")
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.style is None or event.style == ""
            self._add(_WORDS.get(event.value, event.value) if is_plain else event.value, event)
            return
        if len(self._open) >= MAX_DEPTH:
            raise _invalid_yaml(event, f"values nest deeper than {MAX_DEPTH} levels")
        self._open.append(_YamlCollection(is_map=isinstance(event, yaml.MappingStartEvent)))

    def _add(self, value: object, event: Any) -> None:
        if not self._open:
            self.document = value
        elif not self._open[-1].take(value):
            raise _invalid_yaml(event, "a name must be text, and unique in its map")


class _YamlCollection:
    """A list, or a map whose names and values alternate."""

    def __init__(self, *, is_map: bool) -> None:
        self._is_map = is_map
        self._values: list[object] = []
        self._names: dict[str, None] = {}

    def take(self, value: object) -> bool:
        """Add a value. Returns whether it is allowed here."""
        if not self._is_map or len(self._values) < len(self._names):
            self._values.append(value)
            return True
        if not isinstance(value, str) or value in self._names:
            return False
        self._names[value] = None
        return True

    def value(self) -> object:
        return dict(zip(self._names, self._values, strict=True)) if self._is_map else self._values


def _invalid_yaml(event: Any, why: str) -> InvalidRecord:
    line = event.start_mark.line + 1
    return InvalidRecord(f"this YAML cannot be read in line {line}: {why}")
