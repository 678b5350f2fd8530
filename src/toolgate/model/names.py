"""Names of servers, tasks and tools, references to secrets, and globs over names.

A name that passed its `parse_…` is never checked again. A tool is the pair (server_id, name); the two are
joined only at the endpoints, never inside the program.
"""

import re
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord

MAX_SERVER_ID: Final = 40  # generous for a name that people type
MAX_TOOL_NAME: Final = 128  # by MCP's rules for tool names (SEP-986)
MAX_VERSION: Final = 64  # generous: a semantic version with a pre-release and a short hash has about 30
MAX_AUDITED_NAME: Final = 200  # characters of a name or URI in the audit log; longer ones are cut
PROMPT: Final = "prompt:"
RESOURCE: Final = "resource:"
"""The prefixes of prompt names and resource URIs in rules and records. No tool name has a colon, so the three
kinds share one namespace without clashes."""

# `fullmatch` throughout: `$` would let a trailing newline pass.
# No `__` and no `.` inside an id, so joined names have one reading.
_SERVER_ID = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_NOT_IN_SERVER_ID = re.compile(r"[^a-z0-9]+")
_TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
# A version is also a directory name: it must not lead elsewhere.
_VERSION = re.compile(r"[0-9A-Za-z](?:[.+-]?[0-9A-Za-z])*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TOOL_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_TOOL_NAME}}}")


class ToolRef(NamedTuple):
    """A tool of a server, or a prompt or resource, whose name has its prefix."""

    server_id: str
    name: str

    def __str__(self) -> str:
        """The pattern that matches only this ref."""
        kind = kind_of(self.name)
        return f"{kind}{self.server_id}/{self.name[len(kind) :]}"


def kind_of(name: str) -> str:
    """The prefix of a name: `prompt:`, `resource:`, or empty for a tool."""
    if ":" not in name:  # true for nearly all names
        return ""
    if name.startswith(PROMPT):
        return PROMPT
    return RESOURCE if name.startswith(RESOURCE) else ""


def parse_server_id(text: str) -> str:
    return _parse_short_id(text, "server id")


def parse_upstream_id(text: str) -> str:
    """Parse the id of a chat upstream. Raises InvalidRecord.

    It contains no `/`, which separates it from a model.
    """
    return _parse_short_id(text, "chat upstream id")


def _parse_short_id(text: str, kind: str) -> str:
    hint = "use up to 40 lower-case letters and digits, single `-` or `_` between them"
    return _check_name(text, len(text) <= MAX_SERVER_ID and _SERVER_ID.fullmatch(text), kind, hint)


def _check_name(text: str, is_valid: object, kind: str, hint: str) -> str:
    if not is_valid:
        raise InvalidRecord(f"invalid {kind} `{text[:80]}`", hint=hint)
    return text


def slugify_server_id(text: str, *, max_chars: int = MAX_SERVER_ID) -> str:
    """`GitHub (work)` as a server id: `github-work`; empty if no character is valid."""
    return _NOT_IN_SERVER_ID.sub("-", text.lower()).strip("-")[:max_chars].rstrip("-")


def parse_task_id(text: str) -> str:
    """Parse a task, profile or key id. Raises InvalidRecord."""
    hint = "use up to 64 letters, digits, `.`, `-` and `_`, beginning and ending with a letter or digit"
    return _check_name(text, _TASK_ID.fullmatch(text), "id", hint)


def parse_version(text: str) -> str:
    hint = "use up to 64 letters and digits with single `.`, `+` or `-` between, like `1.2.0`"
    return _check_name(text, len(text) <= MAX_VERSION and _VERSION.fullmatch(text), "version", hint)


def parse_sha256(text: str) -> str:
    return _check_name(text, _SHA256.fullmatch(text), "SHA-256", "use 64 lower-case hexadecimal digits")


def is_tool_name(text: str) -> bool:
    """Whether `text` is a tool name by the rules of MCP: 1 to 128 of `A-Z a-z 0-9 _ . -`."""
    return _TOOL_NAME.fullmatch(text) is not None


REFERENCE: Final = re.compile(r"\$\{ENV:([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$(?!\{))*+))?\}")
"""`${ENV:NAME}` or `${ENV:NAME:-default}`: a reference in a record to a variable of the node, resolved at
connect. No reference begins within a default, so a text full of unclosed ones is searched once."""
SECRET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The name of a secret, as in `auth_ref`. It is also a file name in the node's secrets directory, so it
contains no path."""


class Glob:
    """A pattern for a whole text: `*` matches any run of characters, `?` exactly one, any other itself.

    Patterns also come from callers, so matching never backtracks over a star: each piece between two stars is
    searched from left to right, once.
    """

    __slots__ = ("matches",)

    matches: Callable[[str], bool]

    def __init__(self, text: str) -> None:
        head, *rest = text.split("*")
        # Most patterns have one star, at an end, and one may be matched with a hundred thousand names.
        if len(rest) == 1 and not head and "?" not in text:
            self.matches = methodcaller("endswith", rest[0])
        elif rest == [""] and "?" not in text:
            self.matches = methodcaller("startswith", head)
        else:
            middle = "".join(f"(?>.*?{_piece(piece)})" for piece in rest[:-1] if piece)
            tail = f".*{_piece(rest[-1])}" if rest else ""
            fullmatch = re.compile(_piece(head) + middle + tail, re.DOTALL).fullmatch
            self.matches = lambda subject: fullmatch(subject) is not None


def _piece(text: str) -> str:
    return re.escape(text).replace(r"\?", ".")


def compile_globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    globs = [Glob(pattern) for pattern in patterns]
    return lambda text: any(glob.matches(text) for glob in globs)


def matches_glob(pattern: str, text: str) -> bool:
    return Glob(pattern).matches(text)
