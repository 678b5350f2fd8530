"""Settings and records: pydantic models, documented by the docstrings of their fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pages.markdown import bullet, code, page, sentence, wrap
from toolgate.gateway.auth.issuer import OidcSettings
from toolgate.registry.records import policy_bodies, server_bodies
from toolgate.registry.records import policy_bodies as chat_bodies
from toolgate.registry.records import policy_bodies as profile_bodies
from toolgate.registry.records import policy_bodies as task_bodies
from toolgate.registry.records import policy_bodies as workload_bodies
from toolgate.settings import (
    ALIASES,
    PREFIX,
    ApprovalWebhookSettings,
    AuditSettings,
    GrpcSettings,
    OtlpSettings,
    Settings,
)

Models = Sequence[type[BaseModel]]
Schema = Mapping[str, Any]

_SETTINGS: Final = """
The value of a setting comes from the first of these: an option of `toolgate up`, `control` or `node`; its
environment variable (in brackets); the TOML file given with `--config`; its default. In a variable, separate
the entries of a list by commas and write a table as JSON. Each field of a table also has its own variable,
such as `TOOLGATE_AUDIT_DAYS` for `audit.days`. If a setting is invalid or the file has an unknown key,
Toolgate does not start, and the error names it.
"""
_SERVER: Final = """
A server is one record: a file in the registry directory, the body of `PUT
/admin/api/mcp/servers/{server_id}`, or the file for `toolgate servers apply`. The format is the same in all
of them.
"""
_CHAT_UPSTREAM: Final = """
A chat upstream is one record: the body of `PUT /admin/api/chat-upstreams/{upstream_id}`, or the file for
`toolgate chat-upstreams apply`. The [chat upstreams guide](../how-to/chat-upstreams.md) has examples.
"""
_POLICY: Final = """
These records decide which callers see which tools. [Policy](../explanation/policy.md) explains how they work
together.
"""
_SERVER_MODELS: Final[Models] = (
    server_bodies.ServerBody,
    server_bodies.StdioBody,
    server_bodies.HttpBody,
    server_bodies.OAuthBody,
    server_bodies.PackageRefBody,
    server_bodies.BudgetsBody,
    server_bodies.ApprovalBody,
    server_bodies.RedactionBody,
)
_CHAT_MODELS: Final[Models] = (chat_bodies.ChatUpstreamBody, chat_bodies.ChatBudgetsBody)
_POLICY_MODELS: Final[Models] = (
    task_bodies.TaskBody,
    workload_bodies.WorkloadBody,
    workload_bodies.WorkloadLimitsBody,
    profile_bodies.ProfileBody,
    profile_bodies.RolloutBody,
    profile_bodies.SelectionBody,
    server_bodies.PinBody,
    policy_bodies.KeyBody,
    policy_bodies.CeilingBody,
    policy_bodies.QuotasBody,
)
_EMPTY: Final[tuple[object, ...]] = (None, "", (), [], {})


def settings_page() -> str:
    """settings.md"""
    aliases = {field: variable for variable, field in ALIASES.items()}

    def variables(name: str) -> str:
        shown = filter(None, (PREFIX + name.upper(), aliases.get(name)))
        return f" ({', '.join(map(code, shown))})"

    parts = (ApprovalWebhookSettings, AuditSettings, GrpcSettings, OidcSettings, OtlpSettings)
    sections = [section(part) for part in parts]
    return page("Settings", _SETTINGS, _fields(Settings, variables), *sections)


def server_record_page() -> str:
    """server-record.md"""
    return page("Server records", _SERVER, *map(section, _SERVER_MODELS))


def chat_upstream_page() -> str:
    """chat-upstream-record.md"""
    return page("Chat upstream records", _CHAT_UPSTREAM, *map(section, _CHAT_MODELS))


def policy_records_page() -> str:
    """policy-records.md"""
    task, *others = map(section, _POLICY_MODELS)
    settings = "\n".join(
        bullet(f"**{code(key)}**: {text}") for key, text in policy_bodies.TASK_SETTINGS.items()
    )
    about = "The keys of a task's `config` that Toolgate reads. It keeps other keys unchanged."
    settings = f"## Task settings\n\n{about}\n\n{settings}"
    return page("Tasks, profiles, pins and keys", _POLICY, task, settings, *others)


def section(model: type[BaseModel]) -> str:
    """The docstring of a model, and its fields."""
    title = _words(model.__name__).capitalize()
    return f"## {title}\n\n{wrap(sentence(model.__doc__))}\n\n{_fields(model)}"


def _fields(model: type[BaseModel], note: Callable[[str], str] = lambda _: "") -> str:
    """One bullet per field: its name, type, default and description."""
    properties: Mapping[str, Schema] = model.model_json_schema()["properties"]
    lines = []
    for name, field in model.model_fields.items():
        form = f"{_kind(properties[name])}{_default(field.default)}"
        lines.append(bullet(f"**{code(name)}**{note(name)}: {form}. {properties[name]['description']}"))
    return "\n".join(lines)


def _kind(schema: Schema) -> str:
    """The type of a value, in words."""
    match schema:
        case {"$ref": str(reference)}:
            title = _words(reference.rpartition("/")[2])
            return f"[{title}](#{title.replace(' ', '-')})"
        case {"anyOf": list(choices)} | {"oneOf": list(choices)}:
            return " or ".join(_kind(one) for one in choices if one.get("type") != "null")
        case {"enum": list(values)}:
            return ", ".join(map(code, values))
        case {"type": "array", "items": items}:
            return f"list of {_kind(items)}"
        case {"type": "object"}:
            content = schema.get("additionalProperties")
            if content is True:
                return "JSON object"
            return f"table of {_kind(content) if isinstance(content, dict) else 'text'}"
    return _plain_kind(schema)


def _plain_kind(schema: Schema) -> str:
    match schema:
        case {"const": value}:
            return code(value)
        case {"type": "boolean"}:
            return "`true` or `false`"
        case {"type": "integer" | "number"}:
            return f"number{_bounds(schema)}"
        case {"format": "path"}:
            return "path"
    return "text"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is None:
        return "" if low is None else f", {low:,} or more"
    return f", {low:,} to {high:,}"


def _default(default: object) -> str:
    if default is PydanticUndefined:
        return ", required"
    if default in _EMPTY or isinstance(default, BaseModel):
        return ""
    shown = str(default).lower() if isinstance(default, bool) else default
    return f", default {code(f'{shown:,}' if isinstance(shown, int | float) else shown)}"


def _words(model_name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model_name.removesuffix("Body")).lower()
