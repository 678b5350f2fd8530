"""Calls that wait for input of a client that comes back with it."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import InputStateRefused, MissingCapability, ServerUnavailable, SessionLimit
from toolgate.gateway.call.elicitation import (
    MAX_PARKED_BYTES_EACH,
    MAX_PARKED_EACH,
    MAX_ROUNDS,
    ParkableCall,
    ParkedCalls,
    PendingInput,
)
from toolgate.upstream.connection.contract import CALL_CEILING_S, ClientChannel, RpcResponse
from toolgate.upstream.pool.pool import ServerResponse

pytestmark = pytest.mark.anyio

CAN = b'{"elicitation":{}}'
ASK = ("elicitation/create", b'{"message":"who?"}')


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def client(principal_id: str = "ada", capabilities: bytes = CAN, *, size: int = 0) -> ParkableCall:
    return ParkableCall(principal_id, capabilities, "", credential=principal_id, size=size)


def ignore(method: str, params: bytes) -> None:
    """No one listens."""


async def ask_times(asked: ClientChannel, times: int = 1) -> ServerResponse:
    """A call whose server asks one question after the other, and answers with the answers."""
    responses = [await asked.request(*ASK) for _ in range(times)]
    return ServerResponse(
        RpcResponse(result=b"[%b]" % b",".join(rpc.result or b"null" for rpc in responses)), "legacy"
    )


async def run(
    parking: ParkedCalls, work: Coroutine[Any, Any, ServerResponse], call: ParkableCall
) -> PendingInput:
    waiting = await parking.run(call, work, ignore)
    assert isinstance(waiting, PendingInput)
    return waiting


def make_responses(waiting: PendingInput, value: object) -> dict[str, msgspec.Raw]:
    return {key: msgspec.Raw(json.dumps(value).encode()) for key in waiting.requests}


async def test_a_call_whose_server_asks_nothing_is_never_parked() -> None:
    parking, call = ParkedCalls(), client()

    response = await parking.run(call, ask_times(call, 0), ignore)

    assert (response, len(parking)) == (ServerResponse(RpcResponse(result=b"[]"), "legacy"), 0)


async def test_a_question_comes_out_and_its_answer_goes_in() -> None:
    parking, call = ParkedCalls(), client()

    waiting = await run(parking, ask_times(call), call)
    (asked,) = waiting.requests.values()
    response = await parking.resume(
        waiting.handle, "ada", make_responses(waiting, {"action": "accept"}), ignore
    )

    assert (asked.method, asked.params) == ASK
    assert response == ServerResponse(RpcResponse(result=b'[{"action": "accept"}]'), "legacy")


async def test_a_handle_is_good_for_once_and_for_its_own_principal() -> None:
    parking, call = ParkedCalls(), client()
    waiting = await run(parking, ask_times(call), call)

    with pytest.raises(InputStateRefused):
        await parking.resume(waiting.handle, "eve", make_responses(waiting, "hers"), ignore)
    await parking.resume(waiting.handle, "ada", make_responses(waiting, "his"), ignore)
    with pytest.raises(InputStateRefused):
        await parking.resume(waiting.handle, "ada", make_responses(waiting, "again"), ignore)


async def test_who_brings_no_answer_is_asked_again_and_not_for_ever() -> None:
    """UPS-13"""
    parking, call = ParkedCalls(), client()
    waiting: Any = await run(parking, ask_times(call), call)
    for _ in range(MAX_ROUNDS - 1):
        waiting = await parking.resume(waiting.handle, "ada", {"unasked": msgspec.Raw(b"1")}, ignore)

    with pytest.raises(ServerUnavailable, match="more than 10 times"):
        await parking.resume(waiting.handle, "ada", {}, ignore)
    assert len(parking) == 0


async def test_a_client_that_cannot_be_asked_ends_the_call() -> None:
    parking, call = ParkedCalls(), client(capabilities=b'{"roots":{}}')
    ended = asyncio.Event()

    async def work() -> ServerResponse:
        try:
            await call.request(*ASK)
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    with pytest.raises(MissingCapability) as refused:
        await parking.run(call, work(), ignore)
    await asyncio.wait_for(ended.wait(), 60)
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {}}}


async def test_what_no_client_is_asked_is_refused_to_the_server() -> None:
    assert (await client().request("sms/send", b"{}")).error is not None


async def test_a_client_that_leaves_takes_its_call_along() -> None:
    parking, call = ParkedCalls(), client()
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> ServerResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    running = asyncio.ensure_future(parking.run(call, work(), ignore))
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.wait_for(cancelled.wait(), 60)


async def test_notifications_of_a_server_arrive_only_while_the_client_waits() -> None:
    parking, call = ParkedCalls(), client()
    notifications: list[str] = []

    async def work() -> ServerResponse:
        call.notify("before", b"{}")
        await call.request(*ASK)
        call.notify("after", b"{}")
        return ServerResponse(RpcResponse(result=b"{}"), "legacy")

    waiting = await parking.run(call, work(), lambda method, _: notifications.append(method))
    assert isinstance(waiting, PendingInput)
    call.notify("no one there", b"{}")
    await parking.resume(
        waiting.handle,
        "ada",
        make_responses(waiting, 1),
        lambda method, _: notifications.append(f"{method}!"),
    )

    assert notifications == ["before", "after!"]


async def test_a_call_that_ends_while_it_is_parked_still_has_its_answer() -> None:
    parking, call = ParkedCalls(), client()
    given_up = asyncio.Event()

    async def work() -> ServerResponse:
        asking = asyncio.ensure_future(call.request(*ASK))
        await given_up.wait()
        asking.cancel()
        return ServerResponse(RpcResponse(result=b'"without you"'), "legacy")

    waiting = await run(parking, work(), call)
    given_up.set()
    await pass_time(1)

    assert await parking.resume(waiting.handle, "ada", {}, ignore) == ServerResponse(
        RpcResponse(result=b'"without you"'), "legacy"
    )


async def test_one_principal_cannot_park_without_end() -> None:
    parking = ParkedCalls()
    for _ in range(MAX_PARKED_EACH):
        call = client()
        await run(parking, ask_times(call), call)

    call, other = client(), client("bob")
    with pytest.raises(SessionLimit):
        await parking.run(call, ask_times(call), ignore)
    await run(parking, ask_times(other), other)
    assert len(parking) == MAX_PARKED_EACH + 1
    parking.close()
    assert len(parking) == 0


async def test_what_waits_is_bounded_in_bytes_too() -> None:
    parking, quarter = ParkedCalls(), MAX_PARKED_BYTES_EACH // 4
    waiting = []
    for _ in range(4):
        call = client(size=quarter)
        waiting.append(await run(parking, ask_times(call), call))
    heavy, light, other = client(size=1), client(), client("bob", size=quarter)
    with pytest.raises(SessionLimit):
        await run(parking, ask_times(heavy), heavy)
    await run(parking, ask_times(light), light)
    await run(parking, ask_times(other), other)
    await parking.resume(waiting[0].handle, "ada", make_responses(waiting[0], {}), ignore)
    again = client(size=quarter)
    await run(parking, ask_times(again), again)

    assert len(parking) == 6
    parking.close()


async def test_an_abandoned_call_is_cancelled() -> None:
    parking, call = ParkedCalls(), client()
    waiting = await run(parking, ask_times(call), call)

    await pass_time(CALL_CEILING_S + 1)

    with pytest.raises(InputStateRefused):
        await parking.resume(waiting.handle, "ada", make_responses(waiting, 1), ignore)
    assert len(parking) == 0
