"""Plays a node for tests that kill it: starts faulty servers, says so, and then does nothing.

    python -m tests.upstream.node_play PIDS_FILE WORD…

Each WORD is the kind of helper one child starts (see `faulty_server`).
"""

import asyncio
import os
import sys

from tests.upstream.stdio_stage import Listener, faulty
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector


async def main(pids: str, *kinds: str) -> None:
    opener = StdioConnector(Warden(), Secrets(os.environ))
    links = [
        await opener(faulty("deaf", f"helper={kind}", f"pids={pids}"), Listener(), known_revision="legacy")
        for kind in kinds
    ]
    sys.stdout.write(f"{len(links)} children\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
