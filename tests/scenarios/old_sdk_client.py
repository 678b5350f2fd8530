"""The last SDK of the handshake era as a client: prints what it saw on its tour through a URL."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.scenarios.tour import Visitor, tour


async def main(url: str) -> None:
    visitor = Visitor()
    async with (
        streamable_http_client(url) as (received, sent, _),
        ClientSession(
            received,
            sent,
            elicitation_callback=visitor.elicit,
            sampling_callback=visitor.sample,
            logging_callback=visitor.log,
            message_handler=visitor.hear,
        ) as session,
    ):
        await session.initialize()
        seen = await tour(session, visitor, by_listening=False)
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
