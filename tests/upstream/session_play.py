"""Plays a node for a test that kills it: a server with a child for each of three sessions.

python -m tests.upstream.session_play PIDS_FILE
"""

import asyncio
import os
import sys
from dataclasses import replace

from tests.upstream.stdio_stage import faulty, tool
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.pool.pool import CallOrigin, Pool
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector


async def main(pids: str) -> None:
    opener = StdioConnector(Warden(), Secrets(os.environ))
    async with Pool({"stdio": opener}, on_change=lambda _: None) as pool:
        pool.apply({"faulty": replace(faulty("deaf", f"pids={pids}"), sharing="per_session")})
        await pool.settled(["faulty"])
        for session in ("a", "b", "c"):
            await pool.call("faulty", "tools/call", tool("pid"), origin=CallOrigin(session))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
