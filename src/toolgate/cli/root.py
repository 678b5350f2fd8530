"""The `toolgate` program: finds the module of a command, runs it, and turns failures into exit codes.

A command's module is imported when the command is used, so `toolgate up` pays for no HTTP client and
`toolgate tools` for no gateway.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from toolgate import __version__
from toolgate.cli.command import CommandError, ExitCode, UsageError, print_failure
from toolgate.errors import ToolgateError
from toolgate.lazy_modules import load_lazily

COMMANDS: Final[Mapping[str, str]] = {
    "up": "Start the gateway. It runs until Ctrl-C, and takes all its servers with it.",
    "control": "Start the control plane alone. Nodes follow it; agents and editors call the nodes.",
    "node": "Start a node: it serves agents and editors what a control governs, and keeps nothing itself.",
    "nodes": "List the nodes with the revision each serves, and when it last reported.",
    "servers": "Register MCP servers, look at them, test them.",
    "tasks": "Tasks: which servers and tools each kind of work may use, and what it runs.",
    "run": "Run a task: its output to standard output, its log to standard error, its exit code as ours.",
    "invocations": "Runs of tasks: which there are, how they went, what they logged.",
    "profiles": "Profiles: selections of servers and tools that tasks share.",
    "pins": "Pins: a pinned server offers its tools only as they were approved.",
    "approvals": "Calls that wait for a person: which there are, and the decision.",
    "chat-upstreams": (
        "Chat upstreams: the OpenAI-compatible endpoints whose models the chat endpoint prompts."
    ),
    "keys": "Keys: who may call, and how far each key reaches.",
    "integrations": "Integrations: the servers you switch on and off for yourself, within your key.",
    "packages": "Packages: what was published, and what is installed.",
    "modules": "Modules: the WebAssembly programs that tasks run.",
    "catalog": "The catalog: what there is to choose from.",
    "tools": "List the tools of a URL, with their tokens and the rule that allows each.",
    "tokens": "Show what tools cost models in tokens, task by task: definitions, results, and what is saved.",
    "quotas": "Show the quotas of keys and tasks: what is used at all nodes together, and when each resets.",
    "skills": "Skills: the tools in a manifest, checked, as a URL or a task.",
    "explain": "Say for every tool, prompt and resource which layer and rule decided about it.",
    "plan": (
        "Show which records would change, and which tools each task would gain and lose. Nothing is written."
    ),
    "apply": (
        "Make servers, tasks, profiles, pins and chat upstreams what files say: all, or on any error none."
    ),
    "diff": "Show what `toolgate apply` would change. Nothing is written.",
    "watch": "Print each change of the registry, a line a transaction, until Ctrl-C.",
    "top": "Show calls a second, p95, errors and queues of each server, and what is denied, until Ctrl-C.",
    "audit": "Show what happened: calls, denials, changes, refused credentials, runs, approvals, processes.",
    "lint": "Find rules that match nothing, and literals in records that may be secrets.",
    "learn": (
        "Work out the least policy by what a task used: what stays, what goes, and when that was used last."
    ),
    "unused": (
        "Show which tools tasks grant, and keys let through, that went unused; and which servers are unused."
    ),
    "reload": "Read the registry directory again; exit code 1 if a file in it is wrong.",
    "connect": "Print what to paste into a client, or write it there with --write.",
    "doctor": "Look for what is wrong and say what to do; exit code 1 if something is.",
    "backup": "Have the gateway write all records and their history into a file in its data directory.",
    "export": (
        "Write all records, keys as hashes, and their history into one file, readable by its owner only."
    ),
    "import": "Fill an empty data directory or database from a file, revisions and history included.",
}
"""Command → what it is for, as its own help begins, in the order of the help: which so loads none of them."""
_MODULES: Final[Mapping[str, Sequence[str]]] = {
    "serve": ("up", "control", "node"),
    "status": ("tools", "explain", "nodes", "tokens", "quotas"),
    "servers": ("chat-upstreams",),
    "tasks": ("modules",),
    "runs": ("run", "invocations"),
    "keys": ("integrations",),
    "changes": ("plan", "apply", "diff", "watch", "reload"),
    "policy": ("lint", "learn", "unused"),
    "copies": ("backup", "export", "import"),
}
"""Module → those of its commands that do not have its name."""
_RENAMED: Final[Mapping[str, str]] = {
    "approvals show": "approvals get",
    "budgets": "quotas",
    "catalog show": "catalog get",
    "chat-upstreams show": "chat-upstreams get",
    "export": "backup",
    "import": "restore",
    "init": "packages init",
    "install": "packages install",
    "invocations show": "invocations get",
    "keys add": "keys create",
    "keys budgets": "keys set-quota",
    "keys revoke": "keys delete",
    "modules show": "modules get",
    "packages remove": "packages delete",
    "packages show": "packages get",
    "pins set": "pins approve",
    "price": "tokens price",
    "publish": "packages publish",
    "skill": "skills",
    "uninstall": "packages uninstall",
    "version": "--version",
}
"""Names that commands had before → the names that they have now."""


class LazyGroup(TyperGroup):
    """A group whose commands are modules, imported when they are used."""

    def list_commands(self, _ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:
        if cmd_name not in COMMANDS:
            self._name_all()  # the parser suggests the nearest of those it has
        elif cmd_name not in self.commands:
            self.commands[cmd_name] = _load_command(cmd_name)
        found = self.commands.get(cmd_name)
        assert found is None or isinstance(found, TyperCommand | TyperGroup)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._name_all()
        super().format_help(ctx, formatter)

    def _name_all(self) -> None:
        """Have a command under every name, of which nothing is known but what it is for."""
        for name, summary in COMMANDS.items():
            self.commands.setdefault(name, TyperCommand(name, help=summary))


app = typer.Typer(
    cls=LazyGroup,
    name="toolgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(*, is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"toolgate {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
]


@app.callback()
def toolgate(*, _version: VersionOption = False) -> None:
    """Many MCP servers behind one URL; each caller sees only the tools it needs, and anyone can ask why."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line. Usage errors and `--help` leave as SystemExit, as the parser has it."""
    words = list(sys.argv[1:] if args is None else args)
    # Libraries read these when they are loaded. gRPC would write to our standard error past every format, and
    # pydantic look through all that is installed for plugins of its own, at every start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        _reject_old_name(words)
        app(words, prog_name="toolgate")
    except (CommandError, ToolgateError) as exc:
        failure = (
            CommandError(str(exc), hint=exc.hint, code=exc.code) if isinstance(exc, ToolgateError) else exc
        )
        print_failure(failure, as_json="--json" in words)
        return failure.exit_code
    return ExitCode.OK


def _reject_old_name(words: Sequence[str]) -> None:
    """Raise UsageError with the new name for a command that had another name before."""
    for old in (" ".join(words[:count]) for count in (1, 2)):
        if (new := _RENAMED.get(old)) is not None and old not in COMMANDS:
            raise UsageError(f"`{old}` is now `{new}`", hint=f"run `toolgate {new}`")


def _load_command(name: str) -> TyperCommand | TyperGroup:
    module = next((module for module, commands in _MODULES.items() if name in commands), name)
    # What is imported stays: looking through it for garbage would take a sixth of the time.
    gc.disable()
    group = typer.main.get_group(load_lazily(f"toolgate.cli.commands.{module}").app)
    gc.freeze()
    gc.enable()
    command = group.commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)
    command.help = command.help or COMMANDS[name]
    return command
