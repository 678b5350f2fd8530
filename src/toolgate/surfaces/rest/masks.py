"""Hidden values that come back. Who reads a record, changes a field and sends it again, must lose nothing.

A member that arrives exactly as it was shown means the value that is stored there. A mask that stands
for nothing stored is refused: it must never be stored as if it were the value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.revisions import Body
from toolgate.registry.redaction import MASK

_HIDING: Final = ("stdio", "http")
"""The members of a server in which values are hidden. Elsewhere `***` is what it says: a pattern, a title."""


def restore_hidden(sent: Body, shown: Body, stored: Body) -> dict[str, Any]:
    """A server's body with every hidden value replaced by what is stored. `shown` is how that was shown."""
    return {
        name: _restore(value, shown.get(name), stored.get(name), name) if name in _HIDING else value
        for name, value in sent.items()
    }


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
    """Where elements moved, a hidden one is found again by its look, if only one value looks like that."""
    pairs = list(zip(shown, stored, strict=True))
    restored = []
    for index, value in enumerate(sent):
        if not isinstance(value, str) or MASK not in value:
            restored.append(value)
        elif len(sent) == len(pairs) and value == pairs[index][0]:
            restored.append(pairs[index][1])
        else:
            meant = {real for look, real in pairs if look == value}
            if len(meant) != 1:
                raise _refused(f"{where}[{index}]")
            restored.append(meant.pop())
    return restored


def _refused(where: str) -> InvalidRecord:
    return InvalidRecord(
        f"`{where}`: `{MASK}` stands for a hidden value, and none is stored for it",
        hint="send the value itself, or better a reference to it: `${ENV:NAME}`",
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
