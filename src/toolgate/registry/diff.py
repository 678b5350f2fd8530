"""How a change to a server looks to people: field by field, and without its secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolgate.model.revisions import Body
from toolgate.registry.redaction import redact_server

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

    operation: Literal["added", "changed", "removed"]
    server_id: str
    file: str
    """The file that says so, or that said so last."""
    fields: tuple[FieldDiff, ...] = ()

    def __str__(self) -> str:
        head = f"{self.operation} {self.server_id} ({self.file})"
        if self.operation != "changed":
            return head
        return f"{head}: {'; '.join(map(str, self.fields))}"


def diff_server(server_id: str, file: str, *, before: Body | None, after: Body | None) -> RecordDiff:
    """What turns `before` into `after`; None is a server that is not there."""
    operation: Literal["added", "changed", "removed"] = "changed"
    if before is None:
        operation = "added"
    elif after is None:
        operation = "removed"
    return RecordDiff(
        operation=operation, server_id=server_id, file=file, fields=_diff_fields(before or {}, after or {})
    )


def _diff_fields(before: Body, after: Body) -> tuple[FieldDiff, ...]:
    old, new = _flat(before), _flat(after)
    shown_old, shown_new = _flat(redact_server(before)), _flat(redact_server(after))
    return tuple(
        FieldDiff(field, shown_old.get(field, ABSENT), shown_new.get(field, ABSENT))
        for field in [*old, *(field for field in new if field not in old)]
        if old.get(field, ABSENT) != new.get(field, ABSENT)
    )


def _flat(body: Body, prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in body.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
