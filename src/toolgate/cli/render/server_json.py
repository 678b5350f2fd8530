"""A `server.json`, to be written into a file as it is."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.escape import encode_json
from toolgate.cli.render.layout import stack


def render_server_json(answer: Mapping[str, Any]) -> RenderableType:
    """Indented, and never wrapped."""
    return stack(Text(encode_json(answer, indent=2), no_wrap=True, overflow="ignore"))
