"""What is wrong with a body, told at once and field by field. Never what it holds: that may be a secret."""

from collections.abc import Sequence
from typing import Final, TypedDict

from pydantic import ValidationError

from toolgate.errors import InvalidRecord

MAX_SHOWN_PROBLEMS: Final = 10
MAX_PROBLEMS: Final = 1_000
"""Of one body. Whoever sends a million wrong members needs no answer that is larger still."""
UNKNOWN_FIELD: Final = "is not a known field"


class Problem(TypedDict):
    """One thing that is wrong. The field is empty where it is the body as a whole."""

    field: str
    problem: str


def find_problems(exc: ValidationError) -> list[Problem]:
    """What a validation found."""
    return [
        Problem(field=field_path(error["loc"]), problem=_problem(error["type"], error["msg"]))
        for error in exc.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]
    ]


def invalid_record(problems: Sequence[Problem]) -> InvalidRecord:
    """The error that names them: the first few in words, more in its data."""
    shown = [_sentence(one) for one in problems[:MAX_SHOWN_PROBLEMS]]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    return InvalidRecord("; ".join(shown), data={"problems": list(problems[:MAX_PROBLEMS])})


def field_path(loc: tuple[int | str, ...]) -> str:
    """`stdio.args[2]`. The parts are a stranger's words, so they are cut and made printable."""
    path = ""
    for part in loc:
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{printable(part[:80])}"
    return path.removeprefix(".")


def printable(text: str) -> str:
    """A stranger's words, fit for one line."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _sentence(problem: Problem) -> str:
    return f"`{problem['field']}`: {problem['problem']}" if problem["field"] else problem["problem"]


def _problem(error_type: str, message: str) -> str:
    match error_type:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return UNKNOWN_FIELD
        case _:
            return printable(message[:1].lower() + message[1:])
