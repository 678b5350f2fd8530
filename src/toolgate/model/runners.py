"""Package runners: commands that download a server before they run it. Pure: it looks at the record alone."""

from collections.abc import Mapping, Sequence
from typing import Final

from toolgate.model.servers import ServerRecord

RUNNER_START_TIMEOUT_S: Final = 300.0
"""How long the start of a package runner may take. Servers took up to 50 s to download on a fast network."""

_RUNNERS: Final = frozenset({"npx", "pnpx", "bunx", "uvx", "pipx", "dnx", "docker", "podman", "nerdctl"})
_RUNNING_BY: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "npm": (("exec",), ("x",)),
    "pnpm": (("dlx",),),
    "yarn": (("dlx",),),
    "bun": (("x",), ("run",)),
    "uv": (("tool", "run"), ("run",)),
    "deno": (("run",),),
    "go": (("run",),),
}
"""Programs that are package runners with one of these subcommands."""
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash"})


def runner_of(record: ServerRecord) -> str | None:
    """The package runner that `record` starts, such as `npx` or `uv tool run`; None: it starts none."""
    if record.stdio is None:
        return None
    return _runner((record.stdio.command, *record.stdio.args))


def start_timeout_of(record: ServerRecord, otherwise_s: float) -> float:
    """How long its start may take; `otherwise_s` where neither the record nor its command says so."""
    if record.start_timeout_s:
        return float(record.start_timeout_s)
    return otherwise_s if runner_of(record) is None else max(RUNNER_START_TIMEOUT_S, otherwise_s)


def describe_download(runner: str) -> str:
    """What a runner does while its server does not run yet."""
    return f"{runner} is {'pulling the image' if runner in _CONTAINERS else 'downloading packages'}"


def _runner(words: Sequence[str]) -> str | None:
    program, arguments = words[0].rpartition("/")[2].removesuffix(".cmd"), words[1:]
    if program == "env":
        # Without further `env`, however many there are: this must end for every record.
        words = [word for word in arguments if "=" not in word and not word.startswith("-")]
        rest = [word for word in words if word.rpartition("/")[2] != "env"]
        return _runner(rest) if rest else None
    if program in _SHELLS:
        return _runner_of_script(arguments)
    if program in _RUNNERS:
        return program
    plain = [word for word in arguments if not word.startswith("-")]
    for subcommand in _RUNNING_BY.get(program, ()):
        if plain[: len(subcommand)] == list(subcommand):
            return " ".join((program, *subcommand))
    return None


def _runner_of_script(arguments: Sequence[str]) -> str | None:
    """Of `sh -c "exec npx …"`: what the first command of the script is."""
    script = next((word for word in arguments if not word.startswith("-")), "")
    words = [word for word in script.split() if word != "exec"]
    return _runner(words) if words else None
