"""`toolgate version`."""

import platform
from typing import Annotated

import typer
from rich.text import Text
from typer import Option

from toolgate import __version__
from toolgate.cli.output import CommandOutput

app = typer.Typer(add_completion=False)


@app.command("version")
def version_command(
    *, as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False
) -> None:
    """Print the version of this program."""
    facts = {"toolgate": __version__, "python": platform.python_version(), "platform": platform.system()}
    line = f"toolgate {__version__} (Python {facts['python']}, {facts['platform']})"
    CommandOutput(as_json=as_json).show(facts, Text(line))
