"""A person at a client of the official SDKs, of either era, who is asked whether calls may be made.

Run by the last SDK of the handshake era, it prints what came of the calls; it uses only what both have in
common.
"""

import asyncio
import json
import sys
from typing import Any, Literal

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

Json = dict[str, Any]
ANSWERS: tuple[Literal["accept", "decline", "cancel"], ...] = ("accept", "decline", "cancel", "accept")


class Person:
    """Answers one call after the other."""

    def __init__(self) -> None:
        self._answers = list(ANSWERS)
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        action = self._answers.pop(0)
        return types.ElicitResult(action=action, content={} if action == "accept" else None)


async def call_all(session: Any, person: Person, words: str) -> Json:
    """What comes of a call for each answer, each with arguments of its own, and what was asked."""
    texts = []
    for number, _ in enumerate(ANSWERS):
        result = await session.call_tool("echo", {"text": f"{words}-{number}"})
        texts.append(result.content[0].text)
    return {"texts": texts, "asked": person.asked}


async def main(url: str, words: str) -> None:
    person = Person()
    async with (
        streamable_http_client(url) as streams,
        ClientSession(streams[0], streams[1], elicitation_callback=person.elicit) as session,
    ):
        await session.initialize()
        came = await call_all(session, person, words)
    sys.stdout.write(json.dumps(came))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
