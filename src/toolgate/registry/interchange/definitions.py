"""The definition of one server in a file of another program, its body here, and what an import returns.

A `Definition` knows which of its fields were read. The others have no counterpart in a record and are
reported by name, so nothing is dropped in silence. Variables of other programs become references. No warning
repeats a value of a variable or a header.

All formats that describe a server by a `command` or a `url` come through `ImportResult.add`, so a field means
the same in each. Bodies are not checked: `parse_server` does that. A file that hides tools never becomes a
server that shows them.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.model.names import MAX_SERVER_ID, slugify_server_id
from toolgate.registry.interchange.server_json import make_reference
from toolgate.registry.records.server_bodies import MAX_CONCURRENCY, MAX_IDLE_S, MAX_TIMEOUT_MS

MAX_LABEL: Final = 200  # characters of a display name in a record
MAX_TAGS: Final = 64  # tags of a record
_MIN_TIMEOUT_MS: Final = 1_000  # programs differ in the unit: a smaller number is likely to be in seconds
_URL_FIELDS: Final = ("url", "serverUrl", "httpUrl")
_ALLOW_FIELDS: Final = ("allowed_tools", "allowedTools", "enabled_tools", "includeTools", "tools")
_DENY_FIELDS: Final = ("disallowed_tools", "disabled_tools", "disabledTools", "excludeTools")
_LABEL = re.compile(r"[\w.+-][\w .+-]{0,62}[\w.+-]|[\w.+-]")
_WILDCARD = re.compile(r"[*?]|^@")
_SSE_PATH = re.compile(r"/sse(?:/|$)")

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
    _ids: set[str] = field(default_factory=set, init=False)

    def make_id(self, name: str) -> str:
        """Make a unique id: `GitHub (work)` becomes `github-work`, a second one `github-work-2`."""
        stem = slugify_server_id(name, max_chars=MAX_SERVER_ID - 3) or "server"
        ids = chain([stem], (f"{stem}-{number}" for number in count(2)))
        server_id = next(one for one in ids if one not in self._ids)
        self._ids.add(server_id)
        return server_id

    def add(self, server_id: str, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Add the server that `fields` describe, called `name` in warnings. Returns its body."""
        body = make_body(server_id, Definition(name, fields, self))
        self.bodies.append(body)
        return body

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
        self.imports = imports

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
        self.imports.warnings.append(f"`{self.name[:_MAX_SHOWN]}`: {text}")

    def report_rest(self) -> None:
        """Note the fields that were not read. A field that is off or empty changes nothing."""
        for name, value in self._fields.items():
            if value not in (None, False, "", [], {}):
                self.imports.unread.setdefault(name, []).append(self.name)


def make_body(server_id: str, found: Definition) -> dict[str, Any]:
    """Make the body of a server, and report what of its definition has no counterpart."""
    body: dict[str, Any] = {"server_id": server_id}
    kind = str(found.take("type", "transport") or "").lower().replace("_", "-")
    url = found.take(*_URL_FIELDS)
    if url is None:
        body |= {"transport": "stdio", "stdio": translate_variables(_make_launch(found), found)}
    else:
        is_legacy = kind == "sse" or (not kind and _ends_in_sse(url))
        body["transport"] = "http_sse_legacy" if is_legacy else "streamable_http"
        body["http"] = translate_variables(_make_endpoint(url, found), found)
    _add_labels(body, found)
    _add_limits(body, found)
    is_disabled, is_enabled = found.take("disabled"), found.take("enabled", "isActive")
    if is_disabled is True or is_enabled is False:
        body["enabled"] = False
    if found.take("perSessionClient") is True:
        body["sharing"] = "per_session"
    _add_tools(body, found)
    found.report_rest()
    return body


def _make_launch(found: Definition) -> dict[str, Any]:
    launch = {name: value for name in ("command", "args", "env", "cwd") if (value := found.take(name))}
    if isinstance(env := launch.get("env"), dict):
        launch["env"] = {
            name: f"${{ENV:{name}}}" if value is None else as_text(value) for name, value in env.items()
        }
        if inherited := [name for name, value in env.items() if value is None]:
            found.warn(f"set {quote_names(inherited)} where the gateway runs: the file has no value")
    return launch


def _make_endpoint(url: object, found: Definition) -> dict[str, Any]:
    endpoint: dict[str, Any] = {"url": url}
    headers, login, token = found.take("headers", "http_headers"), found.take("auth", "oauth"), None
    if isinstance(login, str) and login != "oauth":
        token, login = login, None
    token = found.take("bearerToken") or token
    if token and not headers:
        headers = {"Authorization": f"Bearer {as_text(token)}"}
    elif token:
        found.put_back("bearerToken", token)
    if headers:
        endpoint["headers"] = headers
    if not login:
        return endpoint
    if isinstance(headers, Mapping) and any(str(name).lower() == "authorization" for name in headers):
        found.put_back("oauth", login)
    else:
        endpoint["oauth"] = _make_login(login if isinstance(login, dict) else {}, found)
    return endpoint


def _make_login(sent: Mapping[str, Any], found: Definition) -> dict[str, Any]:
    """Make the OAuth client of a server that people log in to."""
    names = {str(name).replace("_", "").lower(): value for name, value in sent.items()}
    login: dict[str, Any] = {"grant": "authorization_code"}
    if isinstance(client_id := names.get("clientid"), str):
        login["client_id"] = client_id
    scopes = names.get("scopes") or names.get("scope")
    if scopes := scopes.split() if isinstance(scopes, str) else scopes:
        login["scopes"] = scopes
    found.warn("log in with `toolgate servers login ID`: tokens are not imported")
    if names.get("clientsecret"):
        found.warn("its client secret is left out: name it in `http.oauth.client_secret_ref`, with `issuer`")
    return login


def _ends_in_sse(url: object) -> bool:
    try:
        return isinstance(url, str) and bool(_SSE_PATH.search(urlsplit(url).path))
    except ValueError:
        return False  # the record refuses such a URL


def _add_labels(body: dict[str, Any], found: Definition) -> None:
    named = found.take("name", "displayName", "alias")
    title = found.name if found.name != body["server_id"] else named
    if isinstance(title, str) and title and title.isprintable():
        body["display_name"] = title[:MAX_LABEL]
    if tags := make_tags(found.take_list("tags") or ()):
        body["tags"] = tags
    if is_label(category := found.take("category")):
        body["category"] = category


def is_label(value: object) -> bool:
    """Whether a record takes it as a tag or a category."""
    return isinstance(value, str) and bool(_LABEL.fullmatch(value))


def make_tags(found: Iterable[object]) -> list[str]:
    """The tags that a record can have, each once. A tag may be an object with a label."""
    texts = (one.get("label") or one.get("id") if isinstance(one, dict) else one for one in found)
    return list(dict.fromkeys(str(one) for one in texts if is_label(one)))[:MAX_TAGS]


def _add_limits(body: dict[str, Any], found: Definition) -> None:
    budgets: dict[str, int] = {}
    options = found.take_table("options")
    timeout = found.take("timeout") or options.pop("timeout", None)
    found.put_back("options", options)
    if (number := as_number(timeout)) is not None and number >= _MIN_TIMEOUT_MS:
        budgets["tool_timeout_ms"] = min(round(number), MAX_TIMEOUT_MS)
    else:
        found.put_back("timeout", timeout)
    if (number := as_number(found.take("max_concurrent_requests"))) is not None and number >= 1:
        budgets["max_concurrency"] = min(round(number), MAX_CONCURRENCY)
    if budgets:
        body["budgets"] = budgets
    idle_ms = as_number(found.take("idleTimeoutMs"))
    if found.take("startOnDemand") is True and idle_ms is not None:
        body["idle_timeout_s"] = min(max(round(idle_ms / 1_000), 1), MAX_IDLE_S)


def _add_tools(body: dict[str, Any], found: Definition) -> None:
    """Add what is allowed. A record cannot deny single tools, so a server with denials allows nothing yet."""
    allowed, settings = found.take_list(*_ALLOW_FIELDS), found.take_table("tools")
    denied = [one for name in _DENY_FIELDS for one in found.take_list(name) or ()]
    tags = [name for name in ("include_tags", "exclude_tags") if found.take(name) is not None]  # of FastMCP
    changed = []
    for tool, one in settings.items():
        if isinstance(one, dict) and one.pop("enabled", True) is False:
            denied.append(tool)
        elif one:
            changed.append(tool)
    if changed:
        found.warn(f"tools keep their own names and texts: no counterpart for {quote_names(changed)}")
    has_patterns = any(_WILDCARD.search(str(one)) for one in allowed or ())
    if tags or (denied and (allowed is None or has_patterns)):
        found.imports.restricted.add(body["server_id"])
        what = f"the file hides {quote_names(denied)}" if denied else "the file selects tools by tag"
        found.warn(f"{what}, a record lists what it shows: set `allowed_tools`")
    elif allowed is not None:
        body["allowed_tools"] = [make_pattern(str(one)) for one in allowed if one not in denied]


def make_pattern(tool: str) -> str:
    """The pattern that matches one tool of a server, also if its name looks like another kind of pattern."""
    if tool.startswith("@"):
        return f"?{tool[1:]}"
    return f"*/{tool}" if "/" in tool or tool.startswith(("prompt:", "resource:")) else tool


def quote_names(names: Iterable[object]) -> str:
    """Quote names of a file for a warning: the first few, and how many more there are."""
    quoted = [f"`{str(name)[:_MAX_SHOWN]}`" for name in names]
    more = f" and {len(quoted) - _MAX_NAMES} more" if len(quoted) > _MAX_NAMES else ""
    return ", ".join(quoted[:_MAX_NAMES]) + more


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
