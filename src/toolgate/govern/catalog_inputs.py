"""What the catalog's rows of one server are made of, and how one knows that they were made already.

Three things make rows: what the server is (its package, or how it is reached), what people wrote about it,
and what it lists. Each has a digest, and the three together are what the table keeps beside the rows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from toolgate.catalog.rows import DeclaredTool, project
from toolgate.model.packages import CatalogRow, Package
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools

_FORMAT: Final = "1"
"""Of rows: with another one, all are made anew."""
_UNLISTED: Final = "-"


class MadeFrom(NamedTuple):
    """Digests of what rows were made of."""

    origin: str
    words: str
    listed: str
    """Of the tools that were listed; `-` where none were."""

    def __str__(self) -> str:
        return ":".join((_FORMAT, *self))

    @classmethod
    def parse(cls, text: str) -> "MadeFrom | None":
        """None: made by another version of this program."""
        form, _, rest = text.partition(":")
        parts = rest.split(":")
        return cls(*parts) if form == _FORMAT and len(parts) == len(cls._fields) else None


@dataclass(frozen=True)
class Inputs:
    """All that is known of one server."""

    record: ServerRecord
    package: Package | None
    """None: it runs from no package."""
    offer: ServerTools

    @property
    def is_listed(self) -> bool:
        return self.offer.state == "ready" or bool(self.offer.tools)

    @cached_property
    def made_from(self) -> MadeFrom:
        return MadeFrom(self._origin, self._words, self._listed)

    @property
    def _origin(self) -> str:
        """Tools that were listed earlier are of use as long as this stays the same."""
        if self.package is None:
            return _digest(self.record.launch)
        if self.package.attached:
            return _digest((self.record.launch, self.package.sha256))
        return _digest(self.package.sha256)

    @property
    def _words(self) -> str:
        record = self.record
        return _digest((record.display_name, record.category, record.tags, self.package))

    @property
    def _listed(self) -> str:
        if not self.is_listed:
            return _UNLISTED
        return _digest([(name, tool.digest) for name, tool in self.offer.tools.items()])

    def is_served_by(self, before: MadeFrom | None) -> bool:
        """Whether rows that were made from `before` are what would be made now."""
        if before is None:
            return False
        # What it listed in an earlier life still holds while nobody has asked it again.
        return before == (self.made_from if self.is_listed else self.made_from._replace(listed=before.listed))

    def make_rows(
        self,
        declared: Sequence[DeclaredTool],
        *,
        earlier: Sequence[CatalogRow] = (),
        at_ms: int,
    ) -> tuple[CatalogRow, ...]:
        """The rows. `earlier` are those of the same origin, of use until the server is listed again."""
        offer = self.offer if self.is_listed else None
        rows = project(self.package, declared, record=self.record, offer=offer, at_ms=at_ms)
        if self.is_listed or not earlier:
            return rows
        said = self._placeholder(at_ms)
        return tuple(_reworded(row, said) for row in earlier)

    def _placeholder(self, at_ms: int) -> CatalogRow:
        """The row of a package of which nothing but its words is known."""
        package = None if self.package is None else replace(self.package, source="legacy")
        (row,) = project(package, (), record=self.record, offer=None, at_ms=at_ms)
        return row


def _reworded(row: CatalogRow, said: CatalogRow) -> CatalogRow:
    """What a tool was known as, with what is written about its package now."""
    return replace(
        row,
        package_name=said.package_name,
        package_description=said.package_description,
        category=said.category,
        tags=said.tags,
        schema_version=said.schema_version,
        updated_at_ms=said.updated_at_ms,
    )


def _digest(value: object) -> str:
    # Values all through, whose texts are the same in every process.
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:32]
