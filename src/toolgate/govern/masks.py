"""Hidden values that come back. Who reads a record, changes a field and sends it again, must lose nothing.

A member that arrives exactly as it was shown means the value that is stored there. A mask that stands
for nothing stored is refused: it must never be stored as if it were the value. So is one in a place that
hides nothing: whoever may only look would be shown the value there.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.revisions import Body, Kind
from toolgate.redaction.records import redact_record
from toolgate.redaction.shapes import MASK

HIDING: Final[Mapping[Kind, Sequence[str]]] = {
    "server": ("stdio", "http"),
    "chat_upstream": ("base_url", "headers"),
    "task": ("workload",),
}
"""The members in which values are hidden. Elsewhere `***` is what it says: a pattern, a title."""


def restore_hidden(kind: Kind, sent: Body, *, shown: Body, stored: Body) -> dict[str, Any]:
    """A body with every hidden value replaced by what is stored. `shown` is how that was shown."""
    hiding = HIDING[kind]
    restored = {
        name: _restore(value, shown.get(name), stored.get(name), name) if name in hiding else value
        for name, value in sent.items()
    }
    shown_again = redact_record(kind, restored)
    for name in hiding:
        _check_hidden(sent.get(name), shown_again.get(name), name)
    return restored


def _check_hidden(sent: Any, shown: Any, where: str) -> None:
    """Raises InvalidRecord where a mask was sent, and the value it stands for would be shown there."""
    if isinstance(sent, Mapping):
        for name, value in sent.items():
            _check_hidden(value, _mapping(shown).get(name), f"{where}.{name}")
    elif isinstance(sent, list):
        for index, (value, look) in enumerate(zip(sent, _sequence(shown), strict=False)):
            _check_hidden(value, look, f"{where}[{index}]")
    elif isinstance(sent, str) and MASK in sent and sent != shown:
        raise _refused(where)


def _restore(sent: Any, shown: Any, stored: Any, where: str) -> Any:
    if isinstance(sent, dict):
        known, real = _mapping(shown), _mapping(stored)
        return {
            name: _restore(value, known.get(name), real.get(name), f"{where}.{name}")
            for name, value in sent.items()
        }
    if isinstance(sent, list):
        return _restore_list(sent, _sequence(shown), _sequence(stored), where)
    if sent == shown:
        return stored
    if isinstance(sent, str) and MASK in sent:
        raise _refused(where)
    return sent


def _restore_list(
    sent: Sequence[Any], shown: Sequence[Any], stored: Sequence[Any], where: str
) -> Sequence[Any]:
    """Where elements moved, a hidden one is found again by what stands before it, or by its look alone.

    Two secrets must never change places: what more than one value could be meant by is refused.
    """
    if sent == shown:
        return stored
    if not all(isinstance(value, str) for value in sent):
        return sent  # no list of a record: whoever checks it will say so
    by_place, by_look = defaultdict(set), defaultdict(set)
    for before, look, real in zip(("", *shown), shown, stored, strict=False):
        by_place[before, look].add(real)
        by_look[look].add(real)
    restored = list(sent)
    for index, (before, value) in enumerate(zip(("", *sent), sent, strict=False)):
        if MASK in value:
            meant = by_place.get((before, value)) or by_look[value]
            if len(meant) != 1:
                raise _refused(f"{where}[{index}]")
            (restored[index],) = meant
    return restored


def _refused(where: str) -> InvalidRecord:
    shown = ascii(where[:80])[1:-1]
    is_of_guest = where.startswith("workload")  # which gets no secret of the node
    return InvalidRecord(
        f"`{shown}`: `{MASK}` stands for a hidden value, and none is stored for it",
        hint="send the value itself"
        if is_of_guest
        else "send the value itself, or better a reference to it: `${ENV:NAME}`",
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
