"""The `toolgate` program: finds the module of a command, runs it, and turns failures into exit codes.

A command's module is imported when the command is used, so `toolgate up` pays for no HTTP client and
`toolgate tools` for no gateway.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import typer
from typer.core import TyperCommand, TyperGroup

from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.output import print_failure
from toolgate.errors import ToolgateError

COMMANDS: Final[Mapping[str, str]] = {
    "up": "toolgate.cli.up",
    "control": "toolgate.cli.control",
    "node": "toolgate.cli.node",
    "nodes": "toolgate.cli.nodes",
    "servers": "toolgate.cli.servers",
    "tasks": "toolgate.cli.tasks",
    "run": "toolgate.cli.run",
    "invocations": "toolgate.cli.invocations",
    "profiles": "toolgate.cli.profiles",
    "pins": "toolgate.cli.pins",
    "approvals": "toolgate.cli.approvals",
    "chat-upstreams": "toolgate.cli.chat_upstreams",
    "keys": "toolgate.cli.keys",
    "init": "toolgate.cli.init",
    "publish": "toolgate.cli.publish",
    "install": "toolgate.cli.install",
    "uninstall": "toolgate.cli.uninstall",
    "packages": "toolgate.cli.packages",
    "modules": "toolgate.cli.modules",
    "catalog": "toolgate.cli.catalog",
    "tools": "toolgate.cli.tools",
    "price": "toolgate.cli.price",
    "tokens": "toolgate.cli.tokens",
    "budgets": "toolgate.cli.budgets",
    "skill": "toolgate.cli.skill",
    "explain": "toolgate.cli.explain",
    "plan": "toolgate.cli.plan",
    "apply": "toolgate.cli.apply",
    "diff": "toolgate.cli.diff",
    "watch": "toolgate.cli.watch",
    "top": "toolgate.cli.top",
    "audit": "toolgate.cli.audit",
    "lint": "toolgate.cli.lint",
    "learn": "toolgate.cli.learn",
    "unused": "toolgate.cli.unused",
    "reload": "toolgate.cli.reload",
    "connect": "toolgate.cli.connect",
    "doctor": "toolgate.cli.doctor",
    "backup": "toolgate.cli.backup",
    "export": "toolgate.cli.export",
    "import": "toolgate.cli.import_registry",
    "version": "toolgate.cli.version",
}
"""Command → the module whose `app` it is, in the order of the help."""


class LazyGroup(TyperGroup):
    """A group whose commands are modules, imported when asked for."""

    def list_commands(self, _ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:
        # An unknown name loads all of them: the parser suggests the nearest of those it has.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            self.commands.setdefault(name, _load(name))
        found = self.commands.get(cmd_name)
        assert found is None or isinstance(found, TyperCommand | TyperGroup)
        return found


app = typer.Typer(
    cls=LazyGroup,
    name="toolgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def toolgate() -> None:
    """Many MCP servers behind one URL; each caller sees only the tools it needs, and anyone can ask why."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line. Usage errors and `--help` leave as SystemExit, as the parser has it."""
    words = list(sys.argv[1:] if args is None else args)
    _prepare_libraries()
    try:
        app(words, prog_name="toolgate")
    except CommandFailed as failure:
        return _report(failure, words)
    except ToolgateError as error:
        return _report(CommandFailed(str(error), hint=error.hint, code=error.code), words)
    return Exit.OK


def _prepare_libraries() -> None:
    """They read these when they are loaded. gRPC would write to our standard error past every format, and
    pydantic look through all that is installed for plugins of its own, at every start.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def _report(failure: CommandFailed, words: Sequence[str]) -> int:
    print_failure(failure, as_json="--json" in words)
    return failure.exit_code


def _load(name: str) -> TyperCommand | TyperGroup:
    # What is imported stays: looking through it for garbage would take a sixth of the time.
    gc.disable()
    module = import_module(COMMANDS[name])
    gc.freeze()
    gc.enable()
    command = typer.main.get_command(module.app)
    assert isinstance(command, TyperCommand | TyperGroup)
    command.name = name
    return command
