"""How a change to a record looks to people: field by field, and without its secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolgate.model.revisions import Body, Kind
from toolgate.redaction.records import redact_record

DiffOperation = Literal["added", "changed", "removed"]

ABSENT: Final = "(default)"


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field. A secret is masked on both sides, so a change of one shows as `***` becoming `***`."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDiff:
    """One server added, changed or removed."""

    operation: DiffOperation
    server_id: str
    file: str
    """The file that says so, or that said so last."""
    fields: tuple[FieldDiff, ...] = ()

    @property
    def details(self) -> str:
        """What follows the operation: the server, its file and, where it changed, every field that did."""
        fields = f": {'; '.join(map(str, self.fields))}" if self.operation == "changed" else ""
        return f"{self.server_id} ({self.file}){fields}"

    def __str__(self) -> str:
        return f"{self.operation} {self.details}"


def diff_server(server_id: str, file: str, *, before: Body | None, after: Body | None) -> RecordDiff:
    """What turns `before` into `after`; None is a server that is not there."""
    operation: DiffOperation = "added" if before is None else "removed" if after is None else "changed"
    return RecordDiff(
        operation=operation, server_id=server_id, file=file, fields=diff_fields("server", before, after)
    )


def diff_fields(kind: Kind, before: Body | None, after: Body | None) -> tuple[FieldDiff, ...]:
    """The fields in which two bodies of this kind differ; None is a record that is not there."""
    old, new = _flatten(before or {}), _flatten(after or {})
    shown_old, shown_new = (_flatten(redact_record(kind, body or {})) for body in (before, after))
    return tuple(
        FieldDiff(field, shown_old.get(field, ABSENT), shown_new.get(field, ABSENT))
        for field in [*old, *(field for field in new if field not in old)]
        if old.get(field, ABSENT) != new.get(field, ABSENT)
    )


def _flatten(body: Body, prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in body.items():
        flat |= (
            _flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return flat
