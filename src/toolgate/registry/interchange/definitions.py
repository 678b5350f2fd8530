"""The definition of one server in a file of another program, and what an import returns.

A `Definition` knows which of its fields were read. The others have no counterpart in a record and are
reported by name, so nothing is dropped in silence. Variables of other programs become references. No warning
repeats a value of a variable or a header.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from toolgate.model.names import MAX_SERVER_ID, slugify_server_id
from toolgate.registry.interchange.server_json import make_reference

_MAX_SHOWN: Final = 80  # characters of a name in a warning, which is a line of a terminal
_MAX_NAMES: Final = 12  # names in a warning: an editor's settings have dozens

# `${NAME}` and `${NAME:-default}` in Claude Code, `${env:NAME}` and `${input:name}` in VS Code and Cursor,
# `${cmd: …}` in mcp-hub, and the separator of paths in the last three.
_VARIABLE = re.compile(
    r"\$\{(?:(?P<kind>env|input):)?(?P<name>[A-Za-z_][\w-]*)(?P<default>:-(?:[^}$]|\$(?!\{))*+)?\}"
    r"|\$\{(?P<separator>/)\}|\$\{cmd:(?P<command>[^{}]*)\}"
)
_OF_EDITORS: Final = frozenset({"workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "cwd"})
_HEADERS: Final = "the gateway passes no headers of its callers on: use `http.oauth` with `per_principal`"
_ENV_FILE: Final = "set its variables where the gateway runs, and name them in `stdio.env_from`"
_HINTS: Final = {
    "env_file": _ENV_FILE,
    "envFile": _ENV_FILE,
    "allow_all_keys": "a key reaches every server, unless it was created with `--servers` or `--tasks`",
    "autoApprove": "see `approval_policy` of the record",
    "extra_headers": _HEADERS,
    "passthrough_headers": _HEADERS,
    "passthroughHeaders": _HEADERS,
    "headersHelper": "write the headers into `http.headers`, or use `http.oauth`",
    "proxy": "set the proxy's variables in `stdio.env`",
}
"""What to do in place of a field that has no counterpart."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Bodies with an id, the servers that were skipped with the reason, and warnings."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    restricted: set[str] = field(default_factory=set)
    """Servers of which the file hides tools in a way that a record cannot express. They offer nothing until
    an admin sets `allowed_tools`."""
    unread: dict[str, list[str]] = field(default_factory=dict)
    """Fields without a counterpart, each with the servers that have it."""

    def report_unread(self) -> None:
        """Warn of each field without a counterpart, once."""
        for name, owners in self.unread.items():
            hint = f": {_HINTS[name]}" if name in _HINTS else ""
            self.warnings.append(f"no counterpart for {quote_names([name])} of {quote_names(owners)}{hint}")


class Definition:
    """The fields of one server in a file. It remembers which of them were read."""

    def __init__(self, name: str, fields: Mapping[str, Any], imports: ImportResult) -> None:
        self.name = name
        self._fields = dict(fields)
        self._imports = imports

    def take(self, *names: str) -> Any:
        """Return the first of these fields that is set, and mark all of them as read."""
        found = [self._fields.pop(name, None) for name in names]
        return next((value for value in found if value is not None), None)

    def take_list(self, *names: str) -> list[Any] | None:
        """Return the first of these fields that is a list, and mark it as read."""
        name = next((name for name in names if isinstance(self._fields.get(name), list)), None)
        found: list[Any] | None = None if name is None else self._fields.pop(name)
        return found

    def take_table(self, name: str) -> dict[str, Any]:
        """Return this field if it is an object, and mark it as read; else an empty object."""
        found = self._fields.pop(name) if isinstance(self._fields.get(name), dict) else {}
        return dict(found)

    def put_back(self, name: str, value: object) -> None:
        """Have `name` reported after all: its value cannot be used."""
        self._fields[name] = value

    def warn(self, text: str) -> None:
        self._imports.warnings.append(f"`{self.name[:_MAX_SHOWN]}`: {text}")

    def report_rest(self) -> None:
        """Note the fields that were not read. A field that is off or empty changes nothing."""
        for name, value in self._fields.items():
            if value not in (None, False, "", [], {}):
                self._imports.unread.setdefault(name, []).append(self.name)


def quote_names(names: Iterable[object]) -> str:
    """Quote names of a file for a warning: the first few, and how many more there are."""
    quoted = [f"`{str(name)[:_MAX_SHOWN]}`" for name in names]
    more = f" and {len(quoted) - _MAX_NAMES} more" if len(quoted) > _MAX_NAMES else ""
    return ", ".join(quoted[:_MAX_NAMES]) + more


def make_unique_id(name: str, taken: set[str]) -> str:
    """Make a unique id: `GitHub (work)` becomes `github-work`, a second one `github-work-2`."""
    stem = slugify_server_id(name, max_chars=MAX_SERVER_ID - 3) or "server"
    ids = chain([stem], (f"{stem}-{number}" for number in count(2)))
    server_id = next(one for one in ids if one not in taken)
    taken.add(server_id)
    return server_id


def map_texts(value: Any, change: Callable[[str, str], str], place: str = "") -> Any:
    """A copy of `value` with each text changed. `change` gets the text and the name of its member."""
    if isinstance(value, str):
        return change(value, place)
    if isinstance(value, list):
        return [map_texts(one, change, place) for one in value]
    if isinstance(value, dict):
        return {name: map_texts(one, change, str(name)) for name, one in value.items()}
    return value


def translate_variables(value: Any, found: Definition) -> Any:
    """Replace variables of other programs by references, in every text of a definition."""

    def translate(text: str, place: str) -> str:
        return _VARIABLE.sub(lambda match: _translate_variable(match, found, place), text)

    return map_texts(value, translate)


def make_variable(name: str, found: Definition, why: str) -> str:
    """A reference to a variable of the node that an admin has to set."""
    reference = make_reference(name)
    variable = reference.removeprefix("${ENV:").removesuffix("}")
    found.warn(f"set `{variable}` where the gateway runs: {why}")
    return reference


def _translate_variable(match: re.Match[str], found: Definition, place: str) -> str:
    if match["separator"]:
        return "/"
    if match["command"] is not None:
        return make_variable(f"{found.name}_{place}", found, "the gateway runs no command for a value")
    name, default, is_plain = match["name"].replace("-", "_"), match["default"] or "", match["kind"] is None
    if match["kind"] == "input":
        return make_variable(name, found, "no editor prompts for it")
    if is_plain and name == "pathSeparator":
        return "/"
    if is_plain and name == "userHome":
        name = "HOME"
    elif is_plain and name in _OF_EDITORS:
        found.warn(f"only an editor knows `{name}`: write the directory, or set that variable on the node")
    return f"${{ENV:{name}{default}}}"


def describe_task(server_ids: Iterable[str], patterns: Iterable[str] = ()) -> str:
    """Describe the task that shows what a group of another program shows."""
    config = [f"`mcp.default_server_ids = {json.dumps(list(dict.fromkeys(server_ids)))}`"]
    if allowlist := list(dict.fromkeys(patterns)):
        config.append(f"`mcp.tool_allowlist = {json.dumps(allowlist)}`")
    return f"to keep it, write a task with {' and '.join(config)}"


def as_text(value: object) -> Any:
    """A number or a switch as text; anything else as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def as_number(value: object) -> float | None:
    """A finite number, which is text in YAML."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None
