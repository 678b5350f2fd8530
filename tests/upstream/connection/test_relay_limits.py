"""How long a relay waits: for the client of a call, and until a principal counts as the only one."""

import asyncio

import pytest

from tests.contract.link_clients import Client, never
from tests.contract.links import Ears
from tests.eventually import eventually_async
from toolgate.upstream.connection.contract import BackgroundTasks
from toolgate.upstream.connection.messages import Redactor, decode_incoming
from toolgate.upstream.connection.relay import Relay

pytestmark = pytest.mark.anyio

QUESTION = decode_incoming(b'{"id":7,"method":"elicitation/create","params":{}}')


class Stage:
    """A relay on a shared connection to a session-based server, and what the server gets back."""

    def __init__(self, call_ceiling_s: float) -> None:
        self.sent: list[bytes] = []
        self.background = BackgroundTasks()
        self.relay = Relay(
            Ears(),
            Redactor([]),
            background=self.background,
            send_now=self.sent.append,
            deliver=self.deliver,
            call_ceiling_s=call_ceiling_s,
        )
        self.relay.revision = "legacy"

    async def deliver(self, message: bytes) -> None:
        self.sent.append(message)

    def call(self, key: bytes, client: Client, *, timeout_s: float = 60.0) -> float:
        deadline = asyncio.get_running_loop().time() + timeout_s
        self.relay.enter(key, {}, client=client, deadline=deadline, timeout_s=timeout_s)
        return deadline


async def test_bud_2_the_ceiling_holds_however_long_a_client_thinks() -> None:
    stage, client = Stage(call_ceiling_s=2.0), Client(never)
    deadline = stage.call(b"1", client, timeout_s=1.5)
    stage.relay.receive(QUESTION)
    await eventually_async(lambda: len(client.asked) == 1)
    meanwhile = stage.relay.deadline_of(b"1", deadline)
    stage.relay.leave(b"1")
    await eventually_async(lambda: client.cut_off == 1)

    assert meanwhile == pytest.approx(deadline + 0.5)
    assert stage.sent == []
    await stage.background.aclose()


@pytest.mark.parametrize(("call_ceiling_s", "reached"), [(0.0, True), (60.0, False)])
async def test_a_principal_that_was_alone_for_as_long_as_a_call_may_last_is_reached_again(
    call_ceiling_s: float, reached: bool
) -> None:
    stage, eve = Stage(call_ceiling_s), Client(principal_id="eve")
    stage.call(b"1", Client(principal_id="ada"))
    stage.relay.leave(b"1")
    stage.call(b"2", eve)
    stage.relay.receive(QUESTION)
    await eventually_async(lambda: len(stage.sent) == 1)

    assert len(eve.asked) == reached
    assert (b"cannot be matched to a client" in stage.sent[0]) == (not reached)
    await stage.background.aclose()
