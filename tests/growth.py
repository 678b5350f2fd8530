"""Whether something takes time in proportion to what it is given: a ratio in one run, not a time."""

import time
from collections.abc import Callable

TIMES_LONGER = 16


def grows_with_length(work: Callable[[int], object], size: int) -> bool:
    """Sixteen times the size takes about sixteen times as long: were it quadratic, 256 times."""
    return _cost_s(work, size * TIMES_LONGER) < 5 * TIMES_LONGER * max(_cost_s(work, size), 0.0005)


def _cost_s(work: Callable[[int], object], size: int) -> float:
    """Time of the processor, the least of three times."""
    costs = []
    for _ in range(3):
        began_s = time.process_time()
        work(size)
        costs.append(time.process_time() - began_s)
    return min(costs)
