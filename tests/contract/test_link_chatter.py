"""Whatever a server says while a request runs, the request is answered, and nothing breaks on the way."""

import logging
import random
from typing import Any

import msgspec
import pytest

from tests.contract.link_clients import Client, Json
from tests.contract.links import Ears, Subject
from tests.contract.test_link import CALL, params
from tests.scenarios.soak import rounds
from toolgate.upstream.connection.contract import ServerConnection

pytestmark = pytest.mark.anyio

CALLS = rounds(suite=20, soak=2_000)
MESSAGES = 20
"""In each call."""
METHODS = (
    *("notifications/progress", "notifications/message", "notifications/cancelled", "notifications/x"),
    *("notifications/tools/list_changed", "notifications/resources/updated", "elicitation/create"),
    *("notifications/elicitation/complete", "sampling/createMessage", "roots/list", "ping", "x"),
)
MEMBERS = ("progressToken", "progress", "requestId", "uri", "message", "mode", "level", "data", "_meta")
WORDS = ("", "form", "url", "info", "$token", "\x00", "é", "\u202e", "x" * 300)


class Chatter:
    """Messages of a server that has lost its mind, the same for every run."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def message(self) -> Json:
        dice = self._dice
        message: Json = {"method": dice.choice(METHODS), "params": self._params()}
        if dice.random() < 0.3:
            message["id"] = dice.choice(["a", "b", "1", -1, 1.5, ""])
        if dice.random() < 0.1:
            del message["params"]
        return message

    def _params(self) -> Any:
        return (
            {name: self._value() for name in self._dice.sample(MEMBERS, 3)}
            if self._often()
            else self._value()
        )

    def _value(self, depth: int = 3) -> Any:
        dice = self._dice
        if depth and dice.random() < 0.4:
            inner = [self._value(depth - 1) for _ in range(dice.randrange(3))]
            return inner if dice.random() < 0.5 else dict(zip(MEMBERS, inner, strict=False))
        return dice.choice([None, True, 0, 1, 2**70, -1.5, 1e300, *WORDS])

    def _often(self) -> bool:
        return self._dice.random() < 0.8


@pytest.mark.soak
async def test_chd_11_whatever_a_server_says_meanwhile_its_answer_arrives_and_nothing_fails(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    link: ServerConnection = await subject.opener(subject.record, Ears(), known_revision=None)
    chatter = Chatter(seed=1)
    try:
        for number in range(CALLS):
            sent = {"messages": [chatter.message() for _ in range(MESSAGES)]}
            meta = {"_meta": {"progressToken": number}}
            rpc = await link.request(CALL, params("tell", sent, **meta), timeout_s=60, client=Client())

            assert rpc.result is not None, sent
            assert "content" in msgspec.json.decode(rpc.result)
    finally:
        await link.aclose()

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
