"""What a gateway says once it serves."""

from typing import Final

from rich.console import RenderableType
from rich.text import Text

from toolgate import __version__
from toolgate.cli.defaults import DEFAULT_URL
from toolgate.cli.render.layout import DIM, cell, sentence, stack, verbatim


HOW_TO_STOP: Final = Text("Ctrl-C stops the gateway and all its servers.", style=DIM)


def render_ready(url: str) -> RenderableType:
    """Where it is, and the two things one does next."""
    at = url_option(url)
    return stack(
        sentence(Text("Toolgate", style="bold"), f" {__version__} serves at ", cell(url, "bold")),
        verbatim(f"toolgate connect claude-code{at}\ntoolgate doctor{at}"),
        HOW_TO_STOP,
    )


def url_option(url: str) -> str:
    """What a command needs to find the gateway at `url`; nothing where it looks there anyway."""
    return "" if url == DEFAULT_URL else f" --url {url}"
