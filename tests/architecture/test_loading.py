"""What is loaded at a start and by a small command: each library costs every one of them its time."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from toolgate.cli.root import COMMANDS, app

HEAVY = {
    "google.protobuf": "the protocol between control and nodes",
    "grpc": "the same",
    "jwt": "tokens of an identity provider",
    "numpy": "search by meaning",
    "onnxruntime": "the same",
    "opentelemetry": "tracing",
    "psycopg": "PostgreSQL",
    "sqlalchemy.dialects.postgresql": "the same",
    "wasmtime": "tasks that run modules",
    "yaml": "files in YAML",
}
"""Not needed until someone does what it is for."""
OF_A_GATEWAY = {
    "asyncio": "serving",
    "fastembed": "search by meaning",
    "obstore": "archives",
    "pydantic": "checking what is sent",
    "sqlalchemy": "the registry",
    "toolgate.app": "the parts of a process that serves",
    "toolgate.gateway": "the same",
    "toolgate.surfaces": "the same",
    "uvloop": "the same",
}
"""What a command that asks a gateway has no use for."""
START = """
import asyncio, toolgate.cli.commands.serve
from toolgate.app.up import open_up
from toolgate.settings import load_settings

async def start():
    settings = load_settings(None, {{}}, {{"data_dir": {data_dir!r}, "listen": "127.0.0.1:0"}})
    async with open_up(settings, {{}}):
        pass

asyncio.run(start())
"""
SMALL = ("approvals", "keys", "pins", "profiles", "servers", "status", "tasks")
"""Modules of commands that only ask a gateway."""


def loaded(program: str) -> set[str]:
    """The modules that a new process has loaded after `program`."""
    code = f"import sys\n{program}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split("\n")[-2].split())


def of(heavy: Iterable[str], modules: set[str]) -> set[str]:
    return {name for name in heavy if name in modules}


def test_a_gateway_starts_without_what_it_may_never_need(tmp_path: Path) -> None:
    modules = loaded(START.format(data_dir=str(tmp_path)))

    assert of(HEAVY, modules) == set()


def test_a_node_starts_without_a_database() -> None:
    modules = loaded("import toolgate.cli.commands.serve, toolgate.app.node")

    assert of([*HEAVY, "sqlalchemy", "toolgate.surfaces.rest.app"], modules) == {"google.protobuf", "grpc"}


@pytest.mark.parametrize("command", SMALL)
def test_a_command_that_asks_a_gateway_loads_none(command: str) -> None:
    modules = loaded(f"import toolgate.cli.commands.{command}")

    assert of([*HEAVY, *OF_A_GATEWAY], modules) == set()


@pytest.mark.parametrize("words", [["--help"], ["no-such-command"]], ids=["help", "an unknown command"])
def test_to_list_the_commands_loads_none_of_them(words: list[str]) -> None:
    modules = loaded(
        f"from toolgate.cli.root import main\ntry:\n    main({words})\nexcept SystemExit:\n    pass",
    )

    assert [name for name in modules if name.startswith("toolgate.cli.commands.")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_a_command_what_its_own_help_begins_with(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command = group.get_command(None, name)

    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name]
