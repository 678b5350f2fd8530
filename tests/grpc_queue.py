"""The completion queue of `grpc.aio`, closed between tests.

All event loops of a process share this queue, and any of them may take any event from it. An operation that
is cancelled still completes, later and on a thread of the library. If its loop is closed meanwhile, the next
loop that uses gRPC takes the event and fails with "Event loop is closed". The library closes the queue with
the last channel and server of the process, and then waits until every operation has completed.
"""

import gc
import sys
import threading
from typing import Final

from tests.eventually import eventually

_POLLER: Final = "(_poll_wrapper)"
"""The end of the name of the queue's thread: `threading` appends the name of the thread's function."""


def close_queue() -> None:
    """Close the queue, if it is open. Every channel and server must be closed."""
    if not _is_open():
        return
    for name in ("last_value", "last_exc", "last_traceback"):
        vars(sys).pop(name, None)  # of a failed test: pytest keeps its frames until the next one
    eventually(_is_closed)


def _is_closed() -> bool:
    gc.collect()  # closed channels and servers are in reference cycles; the queue's thread may hold one more
    return not _is_open()


def _is_open() -> bool:
    return any(thread.name.endswith(_POLLER) for thread in threading.enumerate())
