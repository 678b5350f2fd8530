"""`toolgate completion`: the script that completes commands and options in a shell, and what it asks for.

The script calls the program for candidates at each Tab. They come from the commands themselves: nothing is
asked of a gateway, and no command is run.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import typer
from typer import Argument

from toolgate.cli.command import command

# Commands and parameters are `Any` here: typer keeps their types to itself.

Shell = Literal["bash", "zsh", "fish"]
Candidate = tuple[str, str]
"""A word that may come next, and what it is."""

_BASH: Final = """\
# Completes toolgate in bash. Put this line into ~/.bashrc and open a new shell:
#
#     source <(toolgate completion bash)
#
_toolgate() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _toolgate toolgate
"""
_ZSH: Final = """\
#compdef toolgate
# Completes toolgate in zsh. Put these lines into ~/.zshrc and open a new shell:
#
#     autoload -Uz compinit && compinit
#     source <(toolgate completion zsh)
#
_toolgate() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then
        _describe toolgate found
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == _toolgate ]]; then
    _toolgate "$@"
else
    compdef _toolgate toolgate
fi
"""
_FISH: Final = """\
# Completes toolgate in fish. Write it where fish looks for it, and open a new shell:
#
#     toolgate completion fish > ~/.config/fish/completions/toolgate.fish
#
function __toolgate_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($words[1] completion fish -- $words[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command toolgate --no-files --arguments '(__toolgate_complete)'
"""
_SCRIPTS: Final[dict[Shell, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
# Names of commands and options have no colon.
_SEPARATORS: Final[dict[Shell, str]] = {"zsh": ":", "fish": "\t"}

app = typer.Typer(add_completion=False)


@command(app, "completion")
def print_completion(
    context: typer.Context,
    shell: Annotated[Shell, Argument(help="Shell that reads the script.")],
    words: Annotated[list[str] | None, Argument(hidden=True)] = None,
) -> None:
    """Print the completion script of a shell.

    Its first lines say where it goes. It completes commands, options and their values.

    \b
    source <(toolgate completion bash)
    """
    if words is None:
        sys.stdout.write(_SCRIPTS[shell])
        return
    root = context.find_root()
    for name, summary in list_candidates(root.command, root, words):
        described = f"{name}{_SEPARATORS[shell]}{summary}" if shell in _SEPARATORS else name
        sys.stdout.write(f"{described}\n")


def list_candidates(root: Any, context: Any, words: Sequence[str]) -> list[Candidate]:
    """The candidates for the last of `words`, given those before it. Empty: the shell completes files."""
    *before, current = words or [""]
    command, expecting, position = root, None, 0
    # Bash takes `--task=x` apart at the sign.
    for word in (one for one in before if one != "="):
        if expecting is not None:
            expecting = None
        elif word == "--":
            return []
        elif word.startswith("-") and word != "-":
            # The option that takes the next word as its value, if this is one.
            options = (one for one in _list_options(command) if word in one.opts and not one.is_flag)
            expecting = next(options, None)
        elif (inner := _find_subcommand(command, context, word)) is not None:
            command, position = inner, 0
        else:
            position += 1
    found = _list_next(command, context, current, expecting=expecting, position=position)
    return [one for one in found if one[0].startswith(current)]


def _find_subcommand(command: Any, context: Any, word: str) -> Any:
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    return command.get_command(context, word) if word in names else None


def _list_next(
    command: Any, context: Any, current: str, *, expecting: Any, position: int
) -> Iterable[Candidate]:
    if expecting is not None:
        return _list_choices(expecting)
    if current.startswith("-"):
        options = sorted((max(one.opts, key=len), str(one.help or "")) for one in _list_options(command))
        return [*options, ("--help", "Show this message and exit.")]
    if hasattr(command, "list_commands"):
        return _list_subcommands(command, context)
    arguments = [one for one in command.params if one.param_type_name == "argument" and not one.hidden]
    # The last one may take any number of words.
    at = min(position, len(arguments) - 1) if arguments and arguments[-1].nargs == -1 else position
    return _list_choices(arguments[at]) if at < len(arguments) else ()


def _list_options(command: Any) -> Iterator[Any]:
    return (one for one in command.params if one.param_type_name == "option" and not one.hidden)


def _list_subcommands(group: Any, context: Any) -> Iterator[Candidate]:
    """With what each does. A group that loads its commands late has that without loading them."""
    summaries = getattr(group, "summaries", {})
    for name in group.list_commands(context):
        summary = summaries.get(name) or group.get_command(context, name).help or ""
        yield name, " ".join(summary.split("\n\n")[0].split())


def _list_choices(parameter: Any) -> Iterator[Candidate]:
    return ((str(one), "") for one in getattr(parameter.type_descriptor, "choices", None) or ())
