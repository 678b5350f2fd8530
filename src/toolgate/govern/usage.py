"""What was used, as policy names it; and what must be said of how much of it is known."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from toolgate.audit.index.index import AuditIndex
from toolgate.audit.usage import Extent, Use
from toolgate.gateway.uris import plain_uri
from toolgate.model.names import MAX_AUDITED_NAME, RESOURCE, ToolRef, kind_of

FEW_CALLS: Final = 20
"""So few tell little of what is needed."""


class Used(NamedTuple):
    """How one tool, prompt or resource was used."""

    calls: int
    """Since the time that is asked about."""
    last_ms: int
    """As far back as is known."""


def by_name(uses: Iterable[Use]) -> Mapping[ToolRef, Used]:
    """Uses by what was used, whoever it was by. A name that the audit has cut ends with `*`."""
    found: dict[ToolRef, Used] = {}
    for use in uses:
        name = f"{use.tool}*" if len(use.tool) >= MAX_AUDITED_NAME else use.tool
        ref = ToolRef(use.server_id, name)
        known = found.get(ref, Used(0, 0))
        found[ref] = Used(known.calls + use.calls, max(known.last_ms, use.last_ms))
    return found


def plainly(refs: Iterable[ToolRef]) -> Iterable[ToolRef]:
    """`refs`, and resources once more as plainly as they can be written: rules are held against both."""
    for ref in refs:
        yield ref
        if kind_of(ref.name) == RESOURCE:
            plain = plain_uri(ref.name[len(RESOURCE) :])
            if plain:
                yield ToolRef(ref.server_id, RESOURCE + plain)


async def read_extent(index: AuditIndex, *, since_ms: int, until_ms: int) -> tuple[Extent, Sequence[str]]:
    """How much of that time is known, with a warning for each gap."""
    extent = await index.extent(since_ms=since_ms, until_ms=until_ms)
    return extent, tuple(_gaps(extent, since_ms))


def _gaps(extent: Extent, since_ms: int) -> Iterable[str]:
    if extent.begins_ms is None:
        yield "the audit is empty: nothing is known of what was used"
    elif extent.begins_ms > since_ms:
        yield f"the audit begins on {day_of(extent.begins_ms)}: what was used before is not known"
    if extent.silent_days:
        yield (
            f"on {extent.silent_days} of {extent.days} days nothing at all is on record:"
            " either nobody called, or a node's log is missing"
        )


def day_of(at_ms: int) -> str:
    """The day, for people."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y-%m-%d}"
