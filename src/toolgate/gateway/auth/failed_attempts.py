"""Wrong credentials: counted by the address they come from, audited, and slowed down when they do not stop.

Somebody who guesses shows ever new credentials, a broken client the same one at the same place: each has its
limit. Who shows a right one is never kept out, so that nobody suffers for a neighbour behind the same proxy.
"""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from toolgate.audit.events import CredentialRefused
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import TooManyAttempts, Unauthenticated

MAX_ATTEMPTS: Final = 20
"""Wrong credentials of one peer within `WINDOW_S` that differ, and those at one place. Then it must wait."""
WINDOW_S: Final = 60.0
MAX_PEERS: Final = 2_000
"""Peers remembered. Past it the one whose window began first is forgotten."""
MAX_PATHS: Final = 128
"""Places counted for one peer."""
MAX_AUDITED: Final = 1_000
"""Records in `WINDOW_S`, however many peers try: nobody can fill the disk from outside."""


class _AttemptWindow:
    """What came from one peer within one span of time. Hashes are kept, which say nothing to anybody else."""

    __slots__ = ("_credentials", "_places", "began_s", "recorded")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.recorded = 0
        self._credentials: set[int] = set()
        self._places: Counter[int] = Counter()

    def is_too_much(self, credential: str, place: str) -> bool:
        """Count one more; whether it is one too many."""
        if len(self._credentials) <= MAX_ATTEMPTS:
            self._credentials.add(hash(credential))
        number = hash(place)
        if number in self._places or len(self._places) < MAX_PATHS:
            self._places[number] += 1
        return len(self._credentials) > MAX_ATTEMPTS or self._places[number] > MAX_ATTEMPTS


class FailedAttempts:
    """Takes note of every wrong credential. `clock_s` is monotonic."""

    def __init__(
        self, audit: AuditLog | None = None, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._audit = audit
        self._clock_s = clock_s
        # In the order in which their windows began, so that the oldest stands first.
        self._peers: OrderedDict[str, _AttemptWindow] = OrderedDict()
        self._audited_since_s = clock_s()
        self._audited = 0

    def __len__(self) -> int:
        return len(self._peers)

    def note(self, peer: str, credential: str, *, place: str) -> None:
        """A wrong credential came from `peer` to `place`. Raises TooManyAttempts where that goes too far."""
        window = self._window(_network_of(peer))
        is_too_much = window.is_too_much(credential, place)
        window.recorded += 1
        if window.recorded <= MAX_ATTEMPTS:
            self._record(peer, TooManyAttempts.code if is_too_much else Unauthenticated.code)
        if not is_too_much:
            return
        wait_s = max(1, round(window.began_s + WINDOW_S - self._clock_s()))
        raise TooManyAttempts(
            "too many wrong credentials came from this address",
            hint=f"wait {wait_s} s, or send a right one",
            data={"retry_after_s": wait_s},
        )

    def _window(self, peer: str) -> _AttemptWindow:
        now = self._clock_s()
        window = self._peers.get(peer)
        if window is not None and now - window.began_s < WINDOW_S:
            return window
        self._peers.pop(peer, None)
        if len(self._peers) >= MAX_PEERS:
            self._peers.popitem(last=False)
        window = self._peers[peer] = _AttemptWindow(now)
        return window

    def _record(self, peer: str, code: str) -> None:
        now = self._clock_s()
        if now - self._audited_since_s >= WINDOW_S:
            self._audited_since_s, self._audited = now, 0
        self._audited += 1
        if self._audit is not None and self._audited <= MAX_AUDITED:
            self._audit.record(CredentialRefused(at_ms=int(time.time() * 1e3), peer=peer, code=code))


def _network_of(peer: str) -> str:
    """Whose attempts are counted together: an IPv6 host has a whole /64 to call from."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return peer
    return str(ipaddress.IPv6Network((address, 64), strict=False))
