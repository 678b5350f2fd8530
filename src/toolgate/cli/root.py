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
from typer.exceptions import Abort, TyperException

from toolgate import __version__
from toolgate.cli.command import CommandError, ExitCode, UsageError, open_console, print_failure
from toolgate.cli.help import HelpGroup, format_text, render_overview
from toolgate.errors import ToolgateError
from toolgate.lazy_modules import load_lazily

SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run": {
        "up": "Start the gateway: control plane, node and servers.",
        "control": "Start a control plane alone, for nodes to follow.",
        "node": "Start a node, which follows a control plane.",
    },
    "Use": {
        "connect": "Print the entry that a client needs, or write it.",
        "tools": "List the tools of a URL with the tokens each costs.",
        "call": "Call a tool and print its result.",
        "run": "Run a task's module and print its output.",
        "skills": "Check a skill, print its URL, or make its task.",
        "integrations": "Switch servers on and off for yourself.",
    },
    "Records": {
        "servers": "MCP servers: register, test, refresh, import.",
        "tasks": "Tasks: what each kind of work may use, and runs.",
        "profiles": "Profiles: selections of tools that tasks share.",
        "pins": "Pins: tools as approved; changes are quarantined.",
        "keys": "Keys: credentials with roles, ceilings and quotas.",
        "chat-upstreams": "Chat upstreams: endpoints that serve models.",
        "packages": "Packages: make, publish, install and remove them.",
        "modules": "Modules: WebAssembly programs that tasks run.",
        "catalog": "Catalog: the tools of all packages and servers.",
    },
    "Govern": {
        "plan": "Show what changes would do to records and tasks.",
        "apply": "Create or replace records from files, all or none.",
        "diff": "Show what `toolgate apply` would change.",
        "reload": "Read the directory of server files again.",
        "lint": "Find rules that match nothing, and bare secrets.",
        "learn": "Work out the least policy of a task from its use.",
        "unused": "List granted tools and servers that went unused.",
        "approvals": "Approvals: calls that wait for a decision.",
    },
    "Ask why": {
        "explain": "Show which rule allows or hides each tool.",
        "audit": "List calls, denials, changes and other events.",
        "doctor": "Find problems of a gateway, and suggest remedies.",
    },
    "Observe": {
        "top": "Show calls, latency and errors of servers, live.",
        "watch": "Print each change of the registry as it happens.",
        "invocations": "Invocations: runs of tasks, their logs and results.",
        "quotas": "Show how much of each quota is used.",
        "tokens": "Show what tools cost models in tokens, by task.",
        "nodes": "List the nodes with their state and revision.",
    },
    "Operate": {
        "login": "Save the address of a gateway and a key to it.",
        "logout": "Remove a saved gateway and its key.",
        "contexts": "Contexts: the saved gateways; which is current.",
        "backup": "Write all records and their history to a file.",
        "restore": "Fill an empty registry from a backup.",
        "completion": "Print the completion script of a shell.",
    },
}
"""Section of the help → command → what it does, as its own help begins. Listing them loads none of them."""
COMMANDS: Final = {name: summary for section in SECTIONS.values() for name, summary in section.items()}
_MODULES: Final[Mapping[str, Sequence[str]]] = {
    "serve": ("up", "control", "node"),
    "status": ("tools", "explain", "nodes", "tokens", "quotas"),
    "servers": ("chat-upstreams",),
    "tasks": ("modules",),
    "runs": ("run", "invocations"),
    "keys": ("integrations",),
    "changes": ("plan", "apply", "diff", "watch", "reload"),
    "policy": ("lint", "learn", "unused"),
    "copies": ("backup", "restore"),
    "contexts": ("login", "logout"),
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
"""Earlier names of commands → their present names."""


class LazyGroup(HelpGroup):
    """A group whose commands are modules, imported when they are used."""

    summaries: Final = COMMANDS
    """What each does, for completion."""

    def list_commands(self, _ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:
        if cmd_name not in COMMANDS:
            # The parser suggests the nearest name of those that have a command.
            for name, summary in COMMANDS.items():
                self.commands.setdefault(name, TyperCommand(name, help=summary))
        elif cmd_name not in self.commands:
            self.commands[cmd_name] = _load_command(cmd_name)
        found = self.commands.get(cmd_name)
        assert found is None or isinstance(found, TyperCommand | TyperGroup)
        return found

    def format_help(self, _ctx: object, formatter: Any) -> None:
        formatter.write(format_text(render_overview(str(self.help), SECTIONS, open_console().width)))


app = typer.Typer(
    cls=LazyGroup,
    name="toolgate",
    add_completion=False,  # `toolgate completion` prints the scripts
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
    """A self-hosted MCP gateway: all your MCP servers behind one URL."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code of the process."""
    words = list(sys.argv[1:] if args is None else args)
    # Libraries read these when they are loaded. gRPC would write to standard error in its own format, and
    # pydantic would search all installed packages for plugins at every start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        _reject_old_name(words)
        # A command that returns without an exit code has succeeded.
        return int(app(words, prog_name="toolgate", standalone_mode=False) or ExitCode.OK)
    except (CommandError, ToolgateError, TyperException, Abort) as exc:
        failure = _describe_failure(exc)
        print_failure(failure, as_json="--json" in words)
        return failure.exit_code


def _describe_failure(exc: Exception) -> CommandError:
    """Any failure as the error of a command."""
    match exc:
        case CommandError():
            return exc
        case ToolgateError():
            return CommandError(str(exc), hint=exc.hint, code=exc.code)
        case TyperException():
            # The parser writes sentences with names in quotes.
            message = exc.format_message().removesuffix(".").replace("'", "`").replace("Value error, ", "")
            context = getattr(exc, "ctx", None)
            hint = f"`{context.command_path} --help` explains the command" if context else ""
            return UsageError(message[:1].lower() + message[1:], hint=hint)
    return CommandError("cancelled: no input")


def _reject_old_name(words: Sequence[str]) -> None:
    """Raise UsageError with the new name for an earlier name of a command."""
    for old in (" ".join(words[:count]) for count in (1, 2)):
        if (new := _RENAMED.get(old)) is not None and old not in COMMANDS:
            raise UsageError(f"`{old}` is now `{new}`", hint=f"run `toolgate {new}`")


def _load_command(name: str) -> TyperCommand | TyperGroup:
    module = next((module for module, commands in _MODULES.items() if name in commands), name)
    # Imported modules stay: collecting garbage among them would take a sixth of the time.
    gc.disable()
    group = typer.main.get_group(load_lazily(f"toolgate.cli.commands.{module}").app)
    gc.freeze()
    gc.enable()
    command = group.commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)
    command.help = command.help or COMMANDS[name]
    return command
