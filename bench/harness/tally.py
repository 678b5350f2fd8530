"""What a run of the load generator counted: every answer checked, its time kept."""
from __future__ import annotations

import statistics
from array import array

BAD = (b'"isError":true', b'"isError": true', b'"error":{', b'"error": {')


class Tally:
    """What a run counted, in the window that `mark` opens and `done` closes."""

    def __init__(self, expect: str | None):
        self.expect = (expect or "").encode()
        self.latencies = array("d")
        self.errors = 0
        self.sample = None
        self.running = True

    def reset(self):
        del self.latencies[:]
        self.errors = 0

    def add(self, seconds: float, head: bytes, body: bytes):
        if head[9:12] == b"200" and self.expect in body and not any(sign in body[-400:] for sign in BAD):
            self.latencies.append(seconds)
        else:
            self.errors += 1
            self.sample = self.sample or (head[:200] + body[:400]).decode(errors="replace")

    def figures(self, wall: float) -> dict:
        ordered = sorted(self.latencies)
        n = len(ordered)
        pick = lambda q: round(ordered[min(n - 1, int(n * q))] * 1e3, 4) if n else None  # noqa: E731
        return {"done": n, "errors": self.errors, "error_sample": self.sample, "per_s": round(n / wall, 2),
                "p50_ms": pick(0.50), "p90_ms": pick(0.90), "p99_ms": pick(0.99), "max_ms": pick(1.0),
                "mean_ms": round(statistics.fmean(ordered) * 1e3, 4) if n else None}
