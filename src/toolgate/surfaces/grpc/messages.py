"""Records as messages, and back. Pure: what may be stored is for others to say.

In a message, what is not set means the default. It is left out of the body, so that an empty command is a
missing one, and a budget of 0 is the default and never zero.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from toolgate.model.revisions import Body, Kind
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy

EXTRAS: Final = (
    *("tags", "category", "enabled", "sharing", "idle_timeout_s", "start_timeout_s", "prewarm"),
    *("protocol", "list_ttl_s", "package", "redaction", "approval_policy.in_place"),
)
"""The members of a server that a client of SPEAR's does not know."""
_PARTS_THAT_MAY_BE_EMPTY: Final = frozenset({"oauth", "package"})
"""Any other part that is set and holds nothing says no more than one that is not set."""
_LISTS: Final = ("servers", "tags", "allow")
_TRANSPORTS: Final[Mapping[int, str]] = {
    sms.MCP_TRANSPORT_STDIO: "stdio",
    sms.MCP_TRANSPORT_STREAMABLE_HTTP: "streamable_http",
    sms.MCP_TRANSPORT_HTTP_SSE_LEGACY: "http_sse_legacy",
}
_TRANSPORT_NUMBERS: Final = {text: number for number, text in _TRANSPORTS.items()}


def encode_message(kind: Kind, body: Body) -> Message:
    """`body` with all its members filled in, as the message of its kind.

    What another version of the program has stored in a way that fits no message, is left out of it.
    """
    encode, message_type, id_field = _ENCODERS[kind]
    try:
        return encode(body)
    except (AttributeError, KeyError, TypeError, ValueError):
        return message_type(**{id_field: str(body.get(id_field, ""))})


def parse_message(message: Message) -> dict[str, Any]:
    """The body of a record, from its message."""
    return _PARSERS[type(message)](message)


def list_kept_members(message: Message) -> tuple[str, ...]:
    """The members that stay as they are stored, because `message` does not speak of them."""
    if isinstance(message, sms.McpServerRecord) and not message.HasField("extras"):
        return EXTRAS
    if isinstance(message, policy.Task) and not message.HasField("workload"):
        return ("workload",)
    return ()


def _select(descriptor: Any, value: Body) -> dict[str, Any]:
    """The members of `value` that a message has fields for."""
    found: dict[str, Any] = {}
    for name, field in descriptor.fields_by_name.items():
        content = value.get(name)
        if isinstance(content, Mapping) and not field.is_repeated:
            found[name] = _select(field.message_type, content)
        elif content is not None:
            found[name] = content
    return found


def _encode_server(body: Body) -> sms.McpServerRecord:
    approval = body["approval_policy"]
    parts = {
        "transport": _TRANSPORT_NUMBERS[body["transport"]],
        "approval_policy": {**approval, "default_policy": approval["default"]},
        "extras": body,
    }
    return sms.McpServerRecord(**_select(sms.McpServerRecord.DESCRIPTOR, {**body, **parts}))


def _parse_server(record: sms.McpServerRecord) -> dict[str, Any]:
    body = _read_message(record)
    for kept_by_store in ("revision", "updated_at_ms"):
        body.pop(kept_by_store, None)
    if "transport" in body:
        body["transport"] = _TRANSPORTS.get(body["transport"], str(body["transport"]))
    approval = body.get("approval_policy", {})
    if "default_policy" in approval:
        approval["default"] = approval.pop("default_policy")
    extras: dict[str, Any] = body.pop("extras", {})
    return body | extras


def _encode_task(body: Body) -> policy.Task:
    return policy.Task(**_select(policy.Task.DESCRIPTOR, body))


def _parse_task(task: policy.Task) -> dict[str, Any]:
    body = _read_fields(task, ("task_id", "display_name", "config"))
    if workload := _read_message(task.workload):
        body["workload"] = workload
    return body


def _encode_profile(body: Body) -> policy.Profile:
    rollout = body.get("rollout")
    if rollout is not None:
        rest = _encode_version(rollout)
        rollout = policy.Rollout(version=rollout["version"], share=rollout["share"], by=rollout["by"], **rest)
    profile_id, version = body["profile_id"], body["version"]
    return policy.Profile(profile_id=profile_id, version=version, rollout=rollout, **_encode_version(body))


def _encode_version(body: Body) -> dict[str, Any]:
    environments = {name: _encode_selection(one) for name, one in body["environments"].items()}
    return {"selection": _encode_selection(body), "environments": environments}


def _parse_profile(profile: policy.Profile) -> dict[str, Any]:
    body = _read_fields(profile, ("profile_id", "version")) | _parse_version(profile)
    if profile.HasField("rollout"):
        rollout = profile.rollout
        # A share of 0 is not left out: it is refused for what it is.
        body["rollout"] = (
            {"share": rollout.share} | _read_fields(rollout, ("version", "by")) | _parse_version(rollout)
        )
    return body


def _parse_version(version: policy.Profile | policy.Rollout) -> dict[str, Any]:
    body = _parse_selection(version.selection)
    if version.environments:
        body["environments"] = {name: _parse_selection(one) for name, one in version.environments.items()}
    return body


def _encode_selection(body: Body) -> policy.Selection:
    lists = {name: policy.Names(values=body[name]) for name in _LISTS if body.get(name) is not None}
    return policy.Selection(deny=body["deny"], **lists)


def _parse_selection(selection: policy.Selection) -> dict[str, Any]:
    lists = {name: list(getattr(selection, name).values) for name in _LISTS if selection.HasField(name)}
    return lists | _read_fields(selection, ("deny",))


def _encode_pin(body: Body) -> policy.Pin:
    return policy.Pin(server_id=body["server_id"], tools=body["tools"], changed=body["changed"])


def _parse_pin(pin: policy.Pin) -> dict[str, Any]:
    body = _read_fields(pin, ("server_id", "tools"))
    if pin.changed:
        # In a message nothing can stand for null but an empty text.
        body["changed"] = {name: found or None for name, found in pin.changed.items()}
    return body


def _read_message(message: Message) -> dict[str, Any]:
    """All fields that are set, as plain data."""
    body = {}
    for field, value in message.ListFields():
        plain = _read_message(value) if isinstance(value, Message) else _to_plain(value)
        if plain or not isinstance(value, Message) or field.name in _PARTS_THAT_MAY_BE_EMPTY:
            body[field.name] = plain
    return body


def _read_fields(message: Any, names: Iterable[str]) -> dict[str, Any]:
    """The fields among `names` that hold something, as plain data."""
    return {name: _to_plain(value) for name in names if (value := getattr(message, name))}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str | int) else list(value)


_ENCODERS: Final[Mapping[Kind, tuple[Callable[[Body], Message], Callable[..., Message], str]]] = {
    "server": (_encode_server, sms.McpServerRecord, "server_id"),
    "task": (_encode_task, policy.Task, "task_id"),
    "profile": (_encode_profile, policy.Profile, "profile_id"),
    "pin": (_encode_pin, policy.Pin, "server_id"),
}
_PARSERS: Final[Mapping[type[Message], Callable[[Any], dict[str, Any]]]] = {
    sms.McpServerRecord: _parse_server,
    policy.Task: _parse_task,
    policy.Profile: _parse_profile,
    policy.Pin: _parse_pin,
}
