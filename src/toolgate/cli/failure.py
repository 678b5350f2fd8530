"""The one way a command fails: a message, a hint, and the exit code that scripts rely on."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes, the same for every command. 2 is also what the option parser uses."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    UNREACHABLE = 4
    INCOMPLETE = 5
    """No problem was found, and part of the input could not be judged."""


class CommandError(Exception):
    """A command cannot continue. `hint` says what to do next; `code` and `data` are the gateway's."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str = "failed",
        exit_code: ExitCode = ExitCode.FAILED,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
        self.exit_code = exit_code
        self.data: Mapping[str, Any] = data or {}


class UsageError(CommandError):
    """The options, or a file that they name, cannot be used."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.USAGE)
