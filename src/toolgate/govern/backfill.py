"""Going through the whole catalog in batches: what was installed before there was one gets its rows.

Nothing is remembered in between. What is made of the same is passed over, so a run that was cut off is taken
up by starting it again.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolgate.errors import ToolgateError
from toolgate.govern.catalog import keeper_of
from toolgate.govern.control import Control

MAX_BATCH: Final = 100
BATCH_S: Final = 2.0
"""A batch ends with the package during which so much time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """How far a run has come."""

    done: int
    """Packages gone through, those of earlier batches included."""
    total: int
    changed: int
    """Packages whose rows were made or made anew in this batch."""
    failed: Mapping[str, str]
    """Package to why its rows could not be made. It is tried again by itself."""
    after: str | None
    """The last package of the batch; None: it was the last of all."""


async def backfill(control: Control, *, after: str, limit: int) -> Backfilled:
    """Make the rows of up to `limit` packages that come after the id `after`."""
    keeper = keeper_of(control)
    packages = keeper.server_ids()
    done, changed, failed = bisect_right(packages, after), 0, {}
    clock = asyncio.get_running_loop().time
    end_s = clock() + BATCH_S
    for package_id in packages[done : done + limit]:
        try:
            changed += await keeper.make(package_id)
        except ToolgateError as exc:
            failed[package_id] = str(exc)
        done += 1
        if clock() >= end_s:
            break
    last = packages[done - 1] if done < len(packages) else None
    return Backfilled(done=done, total=len(packages), changed=changed, failed=failed, after=last)
