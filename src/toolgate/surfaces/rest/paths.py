"""Finding what a path leads to, by its segments: regular expressions would slow every start and request."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, Protocol, TypeVar


class _Placed(Protocol):
    """What stands under one path of the table."""

    @property
    def methods(self) -> Collection[str]:
        """Those it answers to."""


P = TypeVar("P", bound=_Placed)


class Paths(Generic[P]):
    """Everything by its path, in which `{name}` stands for any one segment that is not empty."""

    def __init__(self, placed: Mapping[str, P]) -> None:
        self._by_length: dict[int, list[tuple[list[str], P]]] = defaultdict(list)
        for template, one in placed.items():
            parts = template.split("/")
            self._by_length[len(parts)].append((parts, one))
        for rows in self._by_length.values():
            rows.sort(key=lambda row: [_is_id(part) for part in row[0]])  # words before ids

    def find(self, path: str, method: str) -> tuple[P, Mapping[str, str]] | None:
        """What stands under `path`, and the ids in it.

        A path where an id could stand in another, as `/servers/import` could be a server, has its own methods
        alone: to any other method, it is the other's id.
        """
        parts = path.split("/")
        found = [
            (one, ids)
            for template, one in self._by_length.get(len(parts), ())
            if (ids := _ids_in(zip(template, parts, strict=True))) is not None
        ]
        return next((row for row in found if method in row[0].methods), found[-1] if found else None)


def _is_id(part: str) -> bool:
    return part.startswith("{")


def _ids_in(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str] | None:
    """The ids by their names; None where the path is another."""
    ids = {}
    for wanted, part in pairs:
        if _is_id(wanted) and part:
            ids[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return ids
