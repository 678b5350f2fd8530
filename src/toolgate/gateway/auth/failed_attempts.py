"""Wrong credentials: counted by the address they come from, audited, and slowed down if they keep coming.

An attacker sends ever new credentials, a broken client the same one to the same path: each has its limit. A
valid credential is never refused, so that no one suffers for a neighbour behind the same proxy.
"""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _AttemptWindow:
    """What came from one peer within `WINDOW_S`. Only hashes are kept, which are useless to anyone else."""

    began_s: float
    attempts: int = 0
    credentials: set[int] = field(default_factory=set)
    paths: Counter[int] = field(default_factory=Counter)

    def add(self, credential: str, path: str) -> bool:
        """Count one attempt; whether it is one too many."""
        self.attempts += 1
        if len(self.credentials) <= MAX_ATTEMPTS:
            self.credentials.add(hash(credential))
        number = hash(path)
        if number in self.paths or len(self.paths) < MAX_PATHS:
            self.paths[number] += 1
        return len(self.credentials) > MAX_ATTEMPTS or self.paths[number] > MAX_ATTEMPTS


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
        now_s, network = self._clock_s(), _network_of(peer)
        window = self._peers.get(network)
        if window is None or now_s - window.began_s >= WINDOW_S:
            self._peers.pop(network, None)
            if len(self._peers) >= self._max_peers:
                self._peers.popitem(last=False)
            window = self._peers[network] = _AttemptWindow(now_s)
        is_too_many = window.add(credential, path)
        if window.attempts <= MAX_ATTEMPTS:
            self._record(peer, TooManyAttempts.code if is_too_many else Unauthenticated.code, now_s)
        if is_too_many:
            wait_s = max(1, round(window.began_s + WINDOW_S - now_s))
            raise TooManyAttempts(
                "too many wrong credentials came from this address",
                hint=f"wait {wait_s} s, or send a valid one",
                data={"retry_after_s": wait_s},
            )

    def _record(self, peer: str, code: str, now_s: float) -> None:
        if now_s - self._audited_since_s >= WINDOW_S:
            self._audited_since_s, self._audited = now_s, 0
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
