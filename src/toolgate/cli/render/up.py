"""What a gateway says once it serves."""

from rich.console import RenderableType
from rich.text import Text

from toolgate import __version__
from toolgate.cli.defaults import DEFAULT_URL
from toolgate.cli.render.layout import DIM, cell, sentence, stack, verbatim


def render_ready(url: str) -> RenderableType:
    """Where it is, and the two things one does next."""
    at = "" if url == DEFAULT_URL else f" --url {url}"
    return stack(
        sentence(Text("Toolgate", style="bold"), f" {__version__} serves at ", cell(url, "bold")),
        verbatim(f"toolgate connect claude-code{at}\ntoolgate doctor{at}"),
        Text("Ctrl-C stops the gateway and all its servers.", style=DIM),
    )
