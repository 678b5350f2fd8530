"""Writes the sessions and figures of README.md again, and leaves all other text as it is."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from .layers import Layer, describe_layers

Json = Mapping[str, Any]
_SESSION: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = r"\d[\d,]*(?<!,)"
_SAVED: Final = re.compile(r"N tools instead of N, N tokens instead of N".replace("N", _NUMBER))
_FAST: Final = re.compile(
    r"N µs of CPU per call; the next best gateway we measured needs N µs".replace("N", _NUMBER)
)
_TABLE: Final = re.compile(r"^\| measured \|.*\n(?:\|.*\n)+", re.MULTILINE)
_LAYERS: Final = re.compile(r"!\[[^\]]*\]\(docs/readme/layers\.svg\)")


class Figures(NamedTuple):
    """Everything measured that the text states."""

    scope: Json
    """The scope of the task `review`, as the REST API has it."""
    peers: Json
    layers: Sequence[Layer]


def load_peers() -> Json:
    """The comparison with other gateways."""
    return tomllib.loads(Path(__file__).with_name("peers.toml").read_text("utf-8"))


def rewrite_figures(text: str, figures: Figures) -> str:
    """`text` with the figures that were measured. Raises ValueError unless it states each of them once."""
    for pattern, now in (
        (_SAVED, describe_saving(figures.scope)),
        (_FAST, describe_speed(figures.peers)),
        (_TABLE, render_peers(figures.peers)),
        (_LAYERS, f"![{describe_layers(figures.layers)}](docs/readme/layers.svg)"),
    ):
        text = _replace_once(pattern, now, text)
    return text


def _replace_once(pattern: re.Pattern[str], now: str, text: str) -> str:
    text, count = pattern.subn(lambda _: now, text)
    if count != 1:
        raise ValueError(f"the text states this {count} times: {pattern.pattern}")
    return text


def describe_saving(scope: Json) -> str:
    """What a scope has, next to all that is registered."""
    return (
        f"{len(scope['tools'])} tools instead of {scope['registered_tools']}, "
        f"{scope['tokens']:,} tokens instead of {scope['registered_tokens']:,}"
    )


def describe_speed(peers: Json) -> str:
    """The CPU of a call, next to the best of the others."""
    own, *others = (row for row in peers["row"][0]["values"])
    best = min(others, key=lambda value: int(value.split()[0].replace(",", "")))
    return f"{own} of CPU per call; the next best gateway we measured needs {best}"


def render_peers(peers: Json) -> str:
    """The table of the comparison, in Markdown."""
    rows = [["measured", *peers["names"]], ["---"] * (1 + len(peers["names"]))]
    rows += [[row["what"], *row["values"]] for row in peers["row"]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def rewrite_sessions(text: str, run: Callable[[str], str]) -> str:
    """`text` with what each command of its terminal sessions prints now."""

    def replay(block: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.+)$", block[1], re.MULTILINE)
        return "```console\n" + "".join(f"$ {one}\n{run(one)}" for one in commands) + "```"

    return _SESSION.sub(replay, text)
