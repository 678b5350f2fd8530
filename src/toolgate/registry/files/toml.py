"""TOML of others, read within bounds: the library takes gigabytes for a key of some ten thousand parts."""

import re
import tomllib
from typing import Any, Final

MAX_KEY_PARTS: Final = 32
_PART: Final = r"""[ \t]*+(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_DEEP_KEY: Final = re.compile(rf"(?:^|[{{,\[]){_PART}(?:\.{_PART}){{{MAX_KEY_PARTS}}}", re.MULTILINE)


def parse_toml(text: str) -> dict[str, Any]:
    """The document. Raises TOMLDecodeError, and RecursionError for what is nested too deep."""
    if found := _DEEP_KEY.search(text):
        line = text.count("\n", 0, found.start() + 1) + 1
        raise tomllib.TOMLDecodeError(f"A key has more than {MAX_KEY_PARTS} parts (at line {line}, column 1)")
    return tomllib.loads(text)
