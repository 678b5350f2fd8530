"""Wrong credentials: counted by the address they come from, audited, and slowed down if they keep coming.

An attacker sends ever new credentials, a broken client the same one to the same path: each has its limit. A
valid credential is never refused, so that no one suffers for a neighbour behind the same proxy.
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
"""Different wrong credentials of a peer in `WINDOW_S`, and wrong ones at one path. Then it must wait."""
WINDOW_S: Final = 60.0
MAX_PEERS: Final = 2_000
"""Peers counted, about 40 MB at worst. Past it, the oldest window is dropped."""
MAX_PATHS: Final = 128
"""Paths counted per peer."""
MAX_AUDITED: Final = 1_000
"""Audit records in `WINDOW_S` for all peers together, so that no one outside can fill the disk."""


class _AttemptWindow:
    """What came from one peer within `WINDOW_S`. Only hashes are kept, which are useless to anyone else."""

    __slots__ = ("_credentials", "_paths", "attempts", "began_s")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.attempts = 0
        self._credentials: set[int] = set()
        self._paths: Counter[int] = Counter()

    def add(self, credential: str, path: str) -> bool:
        """Count one attempt; whether it is one too many."""
        self.attempts += 1
        if len(self._credentials) <= MAX_ATTEMPTS:
            self._credentials.add(hash(credential))
        number = hash(path)
        if number in self._paths or len(self._paths) < MAX_PATHS:
            self._paths[number] += 1
        return len(self._credentials) > MAX_ATTEMPTS or self._paths[number] > MAX_ATTEMPTS


class FailedAttempts:
    """Counts wrong credentials. `clock_s` is monotonic."""

    def __init__(
        self,
        audit: AuditLog | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        max_peers: int = MAX_PEERS,
        max_audited: int = MAX_AUDITED,
    ) -> None:
        self._audit = audit
        self._max_peers = max_peers
        self._max_audited = max_audited
        self._clock_s = clock_s
        self._peers: OrderedDict[str, _AttemptWindow] = OrderedDict()  # oldest window first
        self._audited_since_s = clock_s()
        self._audited = 0

    def __len__(self) -> int:
        return len(self._peers)

    def record_attempt(self, peer: str, credential: str, *, path: str) -> None:
        """A wrong credential came from `peer` to `path`. Raises TooManyAttempts past the limits."""
        window = self._window(_network_of(peer))
        is_too_many = window.add(credential, path)
        if window.attempts <= MAX_ATTEMPTS:
            self._record(peer, TooManyAttempts.code if is_too_many else Unauthenticated.code)
        if is_too_many:
            wait_s = max(1, round(window.began_s + WINDOW_S - self._clock_s()))
            raise TooManyAttempts(
                "too many wrong credentials came from this address",
                hint=f"wait {wait_s} s, or send a valid one",
                data={"retry_after_s": wait_s},
            )

    def _window(self, peer: str) -> _AttemptWindow:
        now = self._clock_s()
        window = self._peers.get(peer)
        if window is not None and now - window.began_s < WINDOW_S:
            return window
        self._peers.pop(peer, None)
        if len(self._peers) >= self._max_peers:
            self._peers.popitem(last=False)
        window = self._peers[peer] = _AttemptWindow(now)
        return window

    def _record(self, peer: str, code: str) -> None:
        now = self._clock_s()
        if now - self._audited_since_s >= WINDOW_S:
            self._audited_since_s, self._audited = now, 0
        self._audited += 1
        if self._audit is not None and self._audited <= self._max_audited:
            self._audit.record(CredentialRefused(at_ms=int(time.time() * 1e3), peer=peer, code=code))


def _network_of(peer: str) -> str:
    """The network whose attempts count together: an IPv6 host can call from a whole /64."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return peer
    return str(ipaddress.IPv6Network((address, 64), strict=False))
