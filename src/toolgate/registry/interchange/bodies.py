"""Makes the body of a server from a definition with a `command` or a `url`.

All formats that describe servers this way come through here, so a field means the same in each. Bodies are
not checked: `parse_server` does that. A file that hides tools never becomes a server that shows them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.registry.interchange.definitions import (
    Definition,
    ImportResult,
    as_number,
    as_text,
    quote_names,
    translate_variables,
)
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


def make_body(server_id: str, found: Definition, imports: ImportResult) -> dict[str, Any]:
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
    _add_tools(body, found, imports)
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


def _add_tools(body: dict[str, Any], found: Definition, imports: ImportResult) -> None:
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
        imports.restricted.add(body["server_id"])
        what = f"the file hides {quote_names(denied)}" if denied else "the file selects tools by tag"
        found.warn(f"{what}, a record lists what it shows: set `allowed_tools`")
    elif allowed is not None:
        body["allowed_tools"] = [make_pattern(str(one)) for one in allowed if one not in denied]


def make_pattern(tool: str) -> str:
    """The pattern that matches one tool of a server, also if its name looks like another kind of pattern."""
    if tool.startswith("@"):
        return f"?{tool[1:]}"
    return f"*/{tool}" if "/" in tool or tool.startswith(("prompt:", "resource:")) else tool
