"""How long calls took, in classes each a tenth above the one before, whose counts can be added up."""

import math
from collections.abc import Mapping
from typing import Final

_STEP: Final = math.log(1.1)


def speed_of(duration_us: int) -> int:
    """The class of a duration."""
    return math.ceil(math.log(max(1, duration_us)) / _STEP)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """What `share` of the calls took at most, within 5 %. `counts`: class to how many, at least one."""
    rank, seen = share * sum(counts.values()), 0
    for speed in sorted(counts):
        seen += counts[speed]
        if seen >= rank:
            return _middle_ms(speed)
    raise AssertionError("there are counts")


def _middle_ms(speed: int) -> float:
    return round(math.exp((speed - 0.5) * _STEP) / 1000, 3) if speed else 0.001
