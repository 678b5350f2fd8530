"""How nodes tell each other of sessions that their clients have ended, by way of control."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from toolgate.errors import InvalidRequest
from toolgate.govern.control import Control
from toolgate.model.sessions import MAX_ENDED, EndedSession
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.rpc import Call, Rpc

MAX_AT_ONCE: Final = 1_000
REREAD_MS: Final = 1_000
"""However many nodes ask, the database is asked this often."""
OVERLAP_MS: Final = 60_000
"""Transactions do not end in the order of their times: what may have been stored late is told again."""
MAX_LIFETIME_MS: Final = 7 * 24 * 3600 * 1000
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")


class EndedIntake:
    """Takes in and tells. It remembers what it has read: there may be thousands, and few of them are new."""

    def __init__(self) -> None:
        self._known: dict[str, EndedSession] = {}
        """By nonce, about in the order of their times."""
        self._newest_ms = 0
        self._read_ms = -REREAD_MS

    async def sync(
        self, control: Control, call: Call[node_pb2.SyncSessionsRequest]
    ) -> node_pb2.SyncSessionsResponse:
        """Keep what a node tells; all that was ended since `after_ms`."""
        sent, now_ms = call.request, control.clock_ms()
        if len(sent.ended) > MAX_AT_ONCE:
            raise InvalidRequest(f"at most {MAX_AT_ONCE} sessions go into one request")
        if sent.ended:
            await control.store.ended_sessions.add([_parse(one, now_ms) for one in sent.ended])
        # The node that tells knows of it already, and the others hear of it a moment later.
        if not 0 <= now_ms - self._read_ms < REREAD_MS:
            self._read_ms = now_ms
            await self._read(control, now_ms)
        ended = [
            node_pb2.EndedSession(nonce=one.nonce, until_ms=one.until_ms, at_ms=one.at_ms)
            for one in self._since(sent.after_ms - OVERLAP_MS)
        ]
        return node_pb2.SyncSessionsResponse(ended=reversed(ended))

    async def _read(self, control: Control, now_ms: int) -> None:
        after_ms = max(0, self._newest_ms - OVERLAP_MS)
        news = await control.store.ended_sessions.list(after_ms=after_ms)
        if all(one.nonce in self._known for one in news):
            return
        known = self._known | {one.nonce: one for one in news}
        left = [one for one in known.values() if one.until_ms > now_ms][-MAX_ENDED:]
        self._known = {one.nonce: one for one in left}
        self._newest_ms = max((one.at_ms for one in left), default=0)

    def _since(self, since_ms: int) -> Iterator[EndedSession]:
        """The newest first."""
        newest_first = reversed(self._known.values())
        late = takewhile(lambda one: one.at_ms >= since_ms - OVERLAP_MS, newest_first)
        return (one for one in late if one.at_ms >= since_ms)


def _parse(sent: node_pb2.EndedSession, now_ms: int) -> EndedSession:
    if not _NONCE.fullmatch(sent.nonce):
        raise InvalidRequest("`nonce` is not that of a session")
    return EndedSession(sent.nonce, min(sent.until_ms, now_ms + MAX_LIFETIME_MS))


def session_rpcs(intake: EndedIntake) -> tuple[Rpc, ...]:
    """The row of the service."""
    service = "toolgate.v1.NodeService"
    return (Rpc(service=service, method="SyncSessions", roles=("node",), handler=intake.sync),)
