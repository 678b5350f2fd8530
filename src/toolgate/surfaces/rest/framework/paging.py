"""Lists in pages, sorted by id. A cursor names the last id of the page before it, so a page is right whatever
was added or removed meanwhile.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import Field

from toolgate.errors import InvalidRequest
from toolgate.surfaces.rest.framework.request import Parameter, RestCall

PAGE: Final = 500
MAX_PAGE: Final = 1_000
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
PAGING: Final = (
    Parameter("limit", f"How many at most: 1 to {MAX_PAGE}, {PAGE} unless said otherwise.", form="number"),
    Parameter("cursor", "The `next_cursor` of the page before."),
)

NextCursor = Annotated[str | None, Field(description="Where the next page begins; null: this is the last.")]
T = TypeVar("T")


class Page(NamedTuple):
    """Which part of a list is asked for."""

    limit: int
    after: str
    """The id the page begins after; empty: at the beginning."""

    def cut(
        self,
        sorted_by_id: Sequence[T],
        id_of: Callable[[T], str],
        *,
        bytes_of: Callable[[T], int] | None = None,
    ) -> tuple[Sequence[T], str | None]:
        """The page, and the cursor of the next; None: it is the last. Where `bytes_of` tells how large the
        entries are, a page also ends before it becomes too large.
        """
        rest = [one for one in sorted_by_id if id_of(one) > self.after]
        page = rest[: self.limit]
        if bytes_of is not None:
            sizes = accumulate(map(bytes_of, page))
            page = page[: max(1, sum(size <= MAX_PAGE_BYTES for size in sizes))]
        return page, encode_cursor(id_of(page[-1])) if len(rest) > len(page) else None

    def first(self, found: Sequence[T], id_of: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
        """The same of what was found from there on, of which no more than one too many was asked for."""
        page = found[: self.limit]
        return page, encode_cursor(id_of(page[-1])) if len(found) > len(page) else None


def parse_page(call: RestCall[Any], *, default: int = PAGE) -> Page:
    """What `limit` and `cursor` of the query ask for. Raises InvalidRequest."""
    limit = call.count("limit", default=default, most=MAX_PAGE)
    return Page(limit, parse_cursor(call.query["cursor"]) if "cursor" in call.query else "")


def encode_cursor(record_id: str) -> str:
    """The cursor for the id where a page ends."""
    return base64.urlsafe_b64encode(record_id.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> str:
    """The id of a cursor. Raises InvalidRequest."""
    try:
        record_id = base64.b64decode(
            cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        ).decode()
    except (binascii.Error, ValueError):
        record_id = ""
    if not record_id or encode_cursor(record_id) != cursor:
        raise InvalidRequest("invalid cursor", hint="begin without one")
    return record_id
