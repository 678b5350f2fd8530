"""The collector that the settings name."""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from toolgate.errors import StartRefused
from toolgate.model.headers import HEADER_NAME
from toolgate.settings import OtlpSettings
from toolgate.upstream.collector import Collector

_HINT: Final = "write one `Name: value` a line"
_VALUE: Final = re.compile(r"[\x20-\x7e]+")


def collector_of(otlp: OtlpSettings) -> Collector:
    """The collector that the settings name. Raises StartRefused where its headers cannot be read."""
    return Collector(otlp.endpoint, read_headers(otlp))


def read_headers(otlp: OtlpSettings) -> Mapping[str, str]:
    """What the collector wants to see. Nothing of it is in what is raised."""
    if otlp.headers_file is not None:
        try:
            lines = otlp.headers_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise StartRefused(f"cannot read `otlp.headers_file` `{otlp.headers_file}`: {exc}") from exc
        return _parse_headers((line.partition(":") for line in lines if line.strip()), "otlp.headers_file")
    if otlp.headers is not None:
        pairs = filter(str.strip, otlp.headers.get_secret_value().split(","))
        parted = ((name, mark, unquote(value)) for name, mark, value in (one.partition("=") for one in pairs))
        return _parse_headers(parted, "otlp.headers")
    return {}


def _parse_headers(parted: Iterable[tuple[str, str, str]], setting: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    stripped = ((name.strip(), mark, value.strip()) for name, mark, value in parted)
    for number, (name, mark, value) in enumerate(stripped, start=1):
        if not mark or not HEADER_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise StartRefused(f"`{setting}`: header {number} is none that can be sent", hint=_HINT)
        found[name] = value
    return found
