"""What a process prints once it serves, and the commands to type next."""

from shlex import quote
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate import __version__
from toolgate.cli.render.layout import DIM, bold, copyable, sentence, stack_parts
from toolgate.model.http import is_loopback, parse_address

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def url_option(url: str) -> str:
    """What a command line needs that is to reach the gateway at `url`: nothing for the usual one."""
    return "" if url == DEFAULT_URL else f" --url {quote(url)}"


def _render_start(what: str, url: str, *more: Text) -> RenderableType:
    return Group(sentence(Text("Toolgate", style="bold"), f" {__version__} {what} at ", bold(url)), *more)


def render_ready(url: str, *, console: str | None = None) -> RenderableType:
    """Where a gateway is, and the two things one does next."""
    at = url_option(url)
    return stack_parts(
        _render_start("serves", url, *render_console(console)),
        copyable(f"toolgate connect claude-code{at}\ntoolgate doctor{at}"),
        Text("Ctrl-C stops the gateway and all its servers.", style=DIM),
    )


def render_console(url: str | None) -> list[Text]:
    """Where its console is: a line, or none."""
    return [] if url is None else [sentence("its console is at ", bold(url))]


def render_control_ready(url: str, grpc: str, *, console: str | None = None) -> RenderableType:
    """Where a control is, and how to give it a node."""
    add_key = f"toolgate keys add node-1 --role node --out node.key{url_option(url)}"
    start_node = f"toolgate node --control {grpc} --control-key-file node.key"
    if is_loopback(parse_address(grpc)[0]):
        # A node on the same machine needs an address and a directory of its own.
        start_node += " \\\n  --listen 127.0.0.1:8081 --data .toolgate-node"
    followed = sentence("nodes follow it at ", bold(grpc))
    return stack_parts(
        _render_start("controls", url, followed, *render_console(console)),
        Group(
            Text("A node needs a key, and is started with it:", style="bold"),
            copyable(f"{add_key}\n{start_node}"),
        ),
        Text("Ctrl-C stops it; its nodes go on with what they have.", style=DIM),
    )


def render_node_ready(url: str, control: str) -> RenderableType:
    """Where a node is, and whom it follows."""
    return stack_parts(
        _render_start("serves", url, sentence("and follows ", bold(control))),
        copyable(f"toolgate connect claude-code{url_option(url)}"),
        Text("Ctrl-C stops it and all its servers.", style=DIM),
    )
