"""`toolgate init`: a new package that works at once."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.layout import encode_json
from toolgate.cli.render.packages import render_new_package
from toolgate.errors import InvalidRecord
from toolgate.model.names import parse_server_id, slugify_server_id
from toolgate.packages.manifest import MANIFEST_NAME
from toolgate.packages.packing import IGNORE_NAME

FILES: Final = {"server.py": "server.py", "README.md": "README.md", "toolgateignore": IGNORE_NAME}
"""Of the template: its name there, and in the package."""

app = typer.Typer(add_completion=False)


@app.command("init")
def init_command(
    directory: Annotated[Path, Argument(help="Where to put it; made if it is not there.")] = Path(),
    *,
    package_id: Annotated[
        str | None, Option("--id", help="Its id, in every URL and policy. Default: the directory's name.")
    ] = None,
    name: Annotated[str | None, Option("--name", help="Its name for people. Default: the id.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Make a package with one tool that runs at once. Nothing that is there is touched."""
    chosen = _choose_package_id(directory, package_id)
    contents = {MANIFEST_NAME: _build_manifest(chosen, name or chosen)}
    template = files("toolgate.cli") / "package_template"
    for source, target in FILES.items():
        text = (template / source).read_text("utf-8")
        contents[target] = text.replace("NAME", name or chosen) if target == "README.md" else text
    _check_free(directory, contents)
    directory.mkdir(parents=True, exist_ok=True)
    for target, text in contents.items():
        with (directory / target).open("x", encoding="utf-8") as file:
            file.write(text)
    made = {"package_id": chosen, "directory": str(directory), "files": sorted(contents)}
    CommandOutput(as_json=as_json).show(made, render_new_package(made))


def _choose_package_id(directory: Path, given: str | None) -> str:
    try:
        return parse_server_id(slugify_server_id(directory.resolve().name) if given is None else given)
    except InvalidRecord as exc:
        hint = "give one with --id" if given is None else exc.hint
        raise CommandError(str(exc), hint=hint, exit_code=ExitCode.USAGE) from exc


def _build_manifest(package_id: str, name: str) -> str:
    document: dict[str, Any] = {
        "manifestSchemaVersion": "v2",
        "id": package_id,
        "name": name,
        "version": "0.1.0",
        "description": "",
        "category": "",
        "tags": [],
        "run": {"transport": "stdio", "command": "python3", "args": ["server.py"]},
    }
    return encode_json(document, indent=2) + "\n"


def _check_free(directory: Path, contents: dict[str, str]) -> None:
    occupied = [name for name in contents if (directory / name).exists() or (directory / name).is_symlink()]
    if directory.is_file() or occupied:
        what = ", ".join(f"`{directory / name}`" for name in occupied) or f"`{directory}`"
        raise CommandError(
            f"{what} is there already, and nothing is overwritten",
            hint="choose another directory, or move what is there",
            exit_code=ExitCode.USAGE,
        )
