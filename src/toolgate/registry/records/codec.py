"""Parses bodies into model values and encodes them back, and compares two bodies.

Nothing else converts a body to a value: files, REST and the store all call this module. A parsed value is
never checked again. A difference never shows a secret.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import ValidationError

from toolgate.chat.config import parse_task_chat
from toolgate.errors import InvalidRecord
from toolgate.model.chat import ChatUpstream
from toolgate.model.names import parse_server_id, parse_sha256, parse_task_id, parse_upstream_id
from toolgate.model.packages import Package
from toolgate.model.principals import IntegrationChoice, InternalSecret, Key
from toolgate.model.revisions import Body, Kind, StoredRecord
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Profile, Task
from toolgate.model.tools import Pin
from toolgate.policy.layers import parse_task_policy
from toolgate.redaction.records import redact_record
from toolgate.registry.records import policy_bodies, server_bodies
from toolgate.registry.records.body import StrictBody, field_path, find_problems, invalid_record
from toolgate.registry.records.server_bodies import default_namespace

Record: TypeAlias = (
    ServerRecord | Task | Profile | Key | Pin | Package | ChatUpstream | InternalSecret | IntegrationChoice
)
BODIES: Final[Mapping[Kind, type[StrictBody]]] = {
    "server": server_bodies.ServerBody,
    "task": policy_bodies.TaskBody,
    "profile": policy_bodies.ProfileBody,
    "key": policy_bodies.KeyBody,
    "pin": server_bodies.PinBody,
    "package": server_bodies.PackageBody,
    "chat_upstream": policy_bodies.ChatUpstreamBody,
    "secret": server_bodies.SecretBody,
    "choice": policy_bodies.ChoiceBody,
}
_OTHER_IDS: Final[Mapping[Kind, str]] = {"pin": "server_id", "chat_upstream": "upstream_id"}
ID_FIELDS: Final[Mapping[Kind, str]] = {kind: _OTHER_IDS.get(kind, f"{kind}_id") for kind in BODIES}
ID_PARSERS: Final[Mapping[str, Callable[[str], str]]] = {
    "server_id": parse_server_id,
    "package_id": parse_server_id,
    "upstream_id": parse_upstream_id,
    "task_id": parse_task_id,
    "profile_id": parse_task_id,
    "key_id": parse_task_id,
    "secret_id": parse_task_id,
    "choice_id": parse_sha256,
}
"""Parsers of ids by the name they have in bodies and paths."""


def parse_server(body: Mapping[str, Any], *, strict: bool = True) -> ServerRecord:
    """Parse a server. Raises InvalidRecord, which names each invalid field. If `strict`, an unknown field is
    invalid. Otherwise it is ignored, and `unknown_fields` returns it."""
    server: ServerRecord = _validate(server_bodies.ServerBody, body, strict=strict)
    return server


def parse_record(kind: Kind, record_id: str, body: Mapping[str, Any], *, strict: bool = True) -> Record:
    """Parse the record `record_id`, and the `config` of a task. Raises InvalidRecord. The body may omit the
    id, but must not contain a different one."""
    id_field = ID_FIELDS[kind]
    if body.get(id_field, record_id) != record_id:
        raise InvalidRecord(f"`{id_field}`: differs from the id `{record_id[:80]}` of the record")
    record: Record = _validate(BODIES[kind], {id_field: record_id, **body}, strict=strict)
    if isinstance(record, Task):
        parse_task_policy(record)
        parse_task_chat(record)
    return record


def parse_id(kind: Kind, text: str) -> str:
    return ID_PARSERS[ID_FIELDS[kind]](text)


def unknown_fields(kind: Kind, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of `body` that a lenient parse ignores."""
    try:
        BODIES[kind].model_validate(dict(body))
    except ValidationError as exc:
        return tuple(field_path(error["loc"]) for error in exc.errors() if error["type"] == "extra_forbidden")
    return ()


def namespace_of(stored: StoredRecord) -> str:
    """Return the tool namespace of a stored server, even if its body cannot be parsed."""
    return str(stored.body.get("tool_namespace") or default_namespace(stored.id))


def encode_record(record: Record) -> dict[str, Any]:
    """Return the shortest body that parses to `record`: without fields at their defaults."""
    body = _encode(record)
    if isinstance(record, ServerRecord) and record.tool_namespace == default_namespace(record.server_id):
        del body["tool_namespace"]
    if isinstance(record, Profile):
        if record.rollout is not None:
            body["rollout"] |= body["rollout"].pop("selection", {})
        # The common selection is at the top level.
        return {"profile_id": body.pop("profile_id"), **body.pop("selection", {}), **body}
    return body


def _validate(model: type[StrictBody], body: Mapping[str, Any], *, strict: bool) -> Any:
    try:
        return model.model_validate(dict(body), extra="forbid" if strict else "ignore").value()
    except ValidationError as exc:
        raise invalid_record(find_problems(exc)) from None


def _encode(value: object) -> dict[str, Any]:
    """Encode a dataclass: its fields in declared order, without fields at their defaults."""
    assert is_dataclass(value)
    encoded = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if content != (field.default if field.default_factory is MISSING else field.default_factory()):
            encoded[field.name] = _encode_value(content)
    return encoded


def _encode_value(value: object) -> object:
    if is_dataclass(value):
        return _encode(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {key: _encode_value(content) for key, content in cast("Mapping[str, object]", value).items()}
    return value


DiffOperation = Literal["added", "changed", "removed"]
ABSENT: Final = "(default)"


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A changed field of a record. Secrets are masked on both sides: a changed one shows as `***` → `***`."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDiff:
    """An added, changed or removed server."""

    operation: DiffOperation
    server_id: str
    file: str
    """The file that defines it, or last defined it."""
    fields: tuple[FieldDiff, ...] = ()

    @property
    def details(self) -> str:
        fields = f": {'; '.join(map(str, self.fields))}" if self.operation == "changed" else ""
        return f"{self.server_id} ({self.file}){fields}"

    def __str__(self) -> str:
        return f"{self.operation} {self.details}"


def diff_fields(kind: Kind, before: Body | None, after: Body | None) -> tuple[FieldDiff, ...]:
    """Return the fields in which two bodies of this kind differ. None: the record does not exist."""
    old, new = _flatten(before or {}), _flatten(after or {})
    shown_old, shown_new = (_flatten(redact_record(kind, body or {})) for body in (before, after))
    return tuple(
        FieldDiff(field, shown_old.get(field, ABSENT), shown_new.get(field, ABSENT))
        for field in [*old, *(field for field in new if field not in old)]
        if old.get(field, ABSENT) != new.get(field, ABSENT)
    )


def _flatten(body: Body, prefix: str = "") -> dict[str, Any]:
    """Flatten `{"a": {"b": 1}}` to `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in body.items():
        field = f"{prefix}{name}"
        flat |= _flatten(value, f"{field}.") if isinstance(value, Mapping) else {field: value}
    return flat
