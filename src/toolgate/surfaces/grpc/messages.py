"""Converts records to messages and back. Pure: never decides whether a record may be stored.

An unset field of a message means the default, and is left out of the body. So an empty command is a missing
one, and a limit of 0 is the default and never zero.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from toolgate.model.revisions import Body, Kind
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy
from toolgate.registry.records.codec import ID_FIELDS

EXTRAS: Final = (
    *("tags", "category", "enabled", "sharing", "idle_timeout_s", "start_timeout_s", "prewarm"),
    *("protocol", "list_ttl_s", "package", "redaction", "approval_policy.in_place"),
)
"""The members of a server that SPEAR's clients do not know."""
_PARTS_THAT_MAY_BE_EMPTY: Final = frozenset({"oauth", "package", "rollout"})
"""Other messages that are set but empty mean the same as unset ones."""
_TRANSPORTS: Final[Mapping[int, str]] = {
    sms.MCP_TRANSPORT_STDIO: "stdio",
    sms.MCP_TRANSPORT_STREAMABLE_HTTP: "streamable_http",
    sms.MCP_TRANSPORT_HTTP_SSE_LEGACY: "http_sse_legacy",
}
_TRANSPORT_NUMBERS: Final = {text: number for number, text in _TRANSPORTS.items()}
_MESSAGES: Final[Mapping[Kind, type[Message]]] = {
    "server": sms.McpServerRecord,
    "task": policy.Task,
    "profile": policy.Profile,
    "pin": policy.Pin,
}


def encode_message(kind: Kind, body: Body) -> Message:
    """`body`, with all members, as the message of its kind.

    Leaves out members that another version of Toolgate stored in a form that no message has.
    """
    message_type = _MESSAGES[kind]
    try:
        nested = _NESTINGS[kind](body) if kind in _NESTINGS else body
        return message_type(**_select(message_type.DESCRIPTOR, nested))
    except (AttributeError, KeyError, TypeError, ValueError):
        return message_type(**{ID_FIELDS[kind]: str(body.get(ID_FIELDS[kind], ""))})


def parse_message(message: Message) -> dict[str, Any]:
    """The body of a record in a message."""
    body = _read_message(message)
    for kept_by_store in ("revision", "updated_at_ms"):
        body.pop(kept_by_store, None)
    if isinstance(message, sms.McpServerRecord):
        return _flatten_server(body)
    if isinstance(message, policy.Profile):
        if "rollout" in body:
            # A share of 0 is not left out, so that the check rejects it.
            body["rollout"] = {"share": 0} | _flatten_version(body["rollout"])
        return _flatten_version(body)
    if isinstance(message, policy.Pin) and message.changed:
        # A message has no null: an empty string means null.
        body["changed"] = {name: found or None for name, found in message.changed.items()}
    return body


def list_kept_members(message: Message) -> tuple[str, ...]:
    """The members to keep as stored, because `message` does not have them."""
    if isinstance(message, sms.McpServerRecord) and not message.HasField("extras"):
        return EXTRAS
    if isinstance(message, policy.Task) and not message.HasField("workload"):
        return ("workload",)
    return ()


def _nest_server(body: Body) -> dict[str, Any]:
    approval = body["approval_policy"]
    return {
        **body,
        "transport": _TRANSPORT_NUMBERS[body["transport"]],
        "approval_policy": {**approval, "default_policy": approval["default"]},
        "extras": body,
    }


def _flatten_server(body: dict[str, Any]) -> dict[str, Any]:
    if "transport" in body:
        body["transport"] = _TRANSPORTS.get(body["transport"], str(body["transport"]))
    approval = body.get("approval_policy", {})
    if "default_policy" in approval:
        approval["default"] = approval.pop("default_policy")
    extras: dict[str, Any] = body.pop("extras", {})
    return body | extras


def _nest_profile(body: Body) -> dict[str, Any]:
    rollout = body.get("rollout")
    return {**body, "selection": body, "rollout": rollout and {**rollout, "selection": rollout}}


def _flatten_version(version: dict[str, Any]) -> dict[str, Any]:
    selection: dict[str, Any] = version.pop("selection", {})
    return version | selection


def _select(descriptor: Any, value: Body) -> dict[str, Any]:
    """The members of `value` for which a message has fields."""
    return {
        name: _fit(field, value[name])
        for name, field in descriptor.fields_by_name.items()
        if value.get(name) is not None
    }


def _fit(field: FieldDescriptor, content: Any) -> Any:
    part = field.message_type
    if part is None:
        return content
    if part.full_name == policy.Names.DESCRIPTOR.full_name:
        return {"values": content}
    if part.GetOptions().map_entry:
        return {name: _fit(part.fields_by_name["value"], one) for name, one in content.items()}
    return _select(part, content)


def _read_message(message: Message) -> dict[str, Any]:
    """All fields that are set, as plain data."""
    plain = {field.name: _to_plain(value) for field, value in message.ListFields()}
    return {name: one for name, one in plain.items() if one != {} or name in _PARTS_THAT_MAY_BE_EMPTY}


def _to_plain(value: Any) -> Any:
    if isinstance(value, policy.Names):
        return list(value.values)
    if isinstance(value, Message):
        return _read_message(value)
    if isinstance(value, Mapping):
        return {name: _to_plain(one) for name, one in value.items()}
    return value if isinstance(value, str | int) else list(value)


_NESTINGS: Final[Mapping[Kind, Callable[[Body], dict[str, Any]]]] = {
    "server": _nest_server,
    "profile": _nest_profile,
}
