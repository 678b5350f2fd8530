"""URI templates (RFC 6570), as far as it takes to say whether a URI could have come from one.

Both sides may be a stranger's, so matching never backtracks. Which positions of a URI can be reached is
kept as the bits of one number, and each part of a template moves all of them at once.
"""

import re
from typing import Final

MAX_TEMPLATE_BYTES: Final = 512
MAX_EXPRESSIONS: Final = 16
MAX_WORK: Final = 100_000
"""Of all templates of a server together: a URI may be held against every one, and others wait meanwhile."""
_EXPRESSION_WORK: Final = 12

_EXPRESSION: Final = re.compile(r"\{([^{}]+)\}")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_.%]+")


def work_of(template: str) -> int:
    """How much there is to do to hold a URI against a template, in characters."""
    head, *rest = _EXPRESSION.split(template)
    del head  # looked at in one go
    return sum(_EXPRESSION_WORK + len(literal) for literal in rest[1::2])


class UriTemplate:
    """One template, taken apart.

    Literal parts stand for themselves, `{x}` for anything without a `/`, and every other expression, of
    which there are many kinds, for anything at all.
    """

    __slots__ = ("_head", "_rest", "_tail")

    def __init__(self, text: str) -> None:
        head, *rest = _EXPRESSION.split(text)
        self._head = head
        self._rest = tuple(
            (_SIMPLE.fullmatch(expression) is not None, literal)
            for expression, literal in zip(rest[::2], rest[1::2], strict=True)
        )
        self._tail = rest[-1] if rest else ""

    def matches(self, uri: "Uri") -> bool:
        """Whether some values of the variables make the template into `uri`."""
        if not (uri.text.startswith(self._head) and uri.text.endswith(self._tail)):
            return False
        reached = 1 << len(self._head)
        for is_segment, literal in self._rest:
            reached = uri.skip(reached, within_segment=is_segment)
            for char in literal:
                reached = (reached & uri.places(char)) << 1
            if not reached:
                return False
        return bool(reached & uri.end)


class Uri:
    """A URI to hold against many templates. Bit i of a number stands for the position before character i."""

    __slots__ = ("_all", "_places", "_runs", "end", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 1 << len(text)
        self._all = (self.end << 1) - 1
        self._places: dict[str, int] = {}
        for at, char in enumerate(text):
            self._places[char] = self._places.get(char, 0) | 1 << at
        # By length, a power of two: where that many characters follow that are no `/`.
        self._runs: list[tuple[int, int]] = []
        length, run = 1, self.end - 1 & ~self.places("/")
        while run:
            self._runs.append((length, run))
            run &= run >> length
            length *= 2

    def places(self, char: str) -> int:
        """Where `char` stands."""
        return self._places.get(char, 0)

    def skip(self, reached: int, *, within_segment: bool) -> int:
        """The positions reached over any characters, or over any but `/`."""
        if not within_segment:
            lowest = reached & -reached
            return self._all & ~(lowest - 1)
        for length, run in self._runs:
            reached |= (reached & run) << length
        return reached
