"""gRPC has one queue for all loops of a process: what is left in it when a loop is closed fails a later test.

So a module that uses it has one loop, and lets the queue run dry before that is closed.
"""

import asyncio


async def run_dry() -> None:
    """Give the library's own thread time to hand over what is left; it cannot be asked whether it has."""
    for _ in range(20):
        await asyncio.sleep(0.01)
