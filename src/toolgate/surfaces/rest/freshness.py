"""Readers that have seen a revision elsewhere: they wait for it here, or are told; never shown an older."""

import asyncio
from typing import Final

from starlette.datastructures import Headers

from toolgate.errors import RevisionNotReached
from toolgate.gateway.gateway import Gateway
from toolgate.surfaces.rest.framework.request import parse_headers, parse_number

MIN_REVISION: Final = "Toolgate-Min-Revision"
SERVED: Final = "Toolgate-Revision"
"""On answers: nothing in them is older than this revision."""
PATIENCE_S: Final = 2.0


async def await_revision(gateway: Gateway, headers: Headers) -> None:
    """Return once the revision that `headers` ask for is served, or raise RevisionNotReached.

    What is served follows the store, so whoever reads the store itself reads nothing older either.
    """
    sent = parse_headers(headers, [MIN_REVISION])
    if not sent:
        return
    revision = parse_number(MIN_REVISION, sent[MIN_REVISION])
    try:
        async with asyncio.timeout(PATIENCE_S):
            await gateway.reached(revision)
    except TimeoutError:
        raise RevisionNotReached(
            f"revision {revision} is not served here yet", data={"revision": gateway.snapshot.revision}
        ) from None
