"""Credentials that something long rests on, such as an open stream: it is told when one lapses."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from toolgate.model.principals import Principal

RECHECK_S: Final = 60.0
"""The longest an expiry is slept through: the time of day may be set anew meanwhile."""


class Proof(NamedTuple):
    """Whom a credential proves, and until when; None: until it is revoked."""

    principal: Principal
    expires_at_s: float | None = None


class _Tenure:
    """One that is held: what the credential of that digest proved when it began."""

    __slots__ = ("digest", "on_lapse", "proof", "timer")

    def __init__(self, digest: bytes, proof: Proof, on_lapse: Callable[[], None]) -> None:
        self.digest = digest
        self.proof = proof
        self.on_lapse = on_lapse
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Tenures:
    """All that are held. `clock_s` is the time of day, which expiries are given in."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._held: set[_Tenure] = set()

    @contextmanager
    def hold(self, digest: bytes, proof: Proof, *, on_lapse: Callable[[], None]) -> Iterator[None]:
        """Have `on_lapse` called if, within the block, `proof` expires or is no more that of `digest`."""
        tenure = _Tenure(digest, proof, on_lapse)
        self._held.add(tenure)
        self._look_again(tenure)
        try:
            yield
        finally:
            self._held.discard(tenure)
            tenure.stop()

    def recheck(self, proofs: Mapping[bytes, Proof]) -> None:
        """What is in force is now this: end what rests on something else."""
        for tenure in tuple(self._held):
            if proofs.get(tenure.digest) != tenure.proof:
                self._lapse(tenure)

    def _look_again(self, tenure: _Tenure) -> None:
        expires_at_s = tenure.proof.expires_at_s
        if expires_at_s is None:
            return
        left_s = expires_at_s - self._clock_s()
        if left_s <= 0:
            self._lapse(tenure)
            return
        loop = asyncio.get_running_loop()
        tenure.timer = loop.call_later(min(left_s, RECHECK_S), self._look_again, tenure)

    def _lapse(self, tenure: _Tenure) -> None:
        self._held.discard(tenure)
        tenure.stop()
        tenure.on_lapse()
