"""The proxy itself: what it does to a line is what it says it does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.upstream.fault_proxy import Fault, FaultProxy, open_fault_proxy

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Echo:
    """A server that says everything back, and keeps it."""

    def __init__(self) -> None:
        self.received = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[FaultProxy, Echo]]:
    echo = Echo()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with asyncio.timeout(60), server, open_fault_proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy, echo


@asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(proxy: FaultProxy, data: bytes) -> bytes:
    """What comes back of `data`, until the end."""
    async with connected(proxy) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        return await reader.read()


async def test_without_a_fault_it_carries_and_counts_every_byte() -> None:
    data = bytes(range(256)) * 2000
    async with proxied() as (proxy, echo):
        came_back = await exchange(proxy, data)

        assert (came_back == data, echo.received == data, proxy.connections) == (True, True, 1)
        assert (proxy.requests.carried_bytes, proxy.responses.carried_bytes) == (len(data), len(data))


@pytest.mark.parametrize(
    "fault", [Fault(slice_bytes=1), Fault(latency_s=0.001, slice_bytes=7), Fault(bytes_per_s=1e6)]
)
async def test_late_slow_and_sliced_bytes_all_arrive_in_order(fault: Fault) -> None:
    data = bytes(range(256))
    async with proxied() as (proxy, _):
        proxy.responses.fault = fault

        assert await exchange(proxy, data) == data


async def test_one_byte_of_one_direction_is_corrupt() -> None:
    async with proxied() as (proxy, echo):
        proxy.responses.fault = Fault(corrupt_at=5, slice_bytes=4)
        came_back = await exchange(proxy, b"0123456789")

        assert (echo.received, came_back) == (b"0123456789", b"01234\xca6789")


async def test_a_connection_is_reset_after_so_many_bytes_of_an_answer() -> None:
    async with proxied() as (proxy, _):
        proxy.responses.fault = Fault(reset_after=1000)
        async with connected(proxy) as (reader, writer):
            writer.write(b"x" * 5000)

            assert await reader.readexactly(1000) == b"x" * 1000
            with pytest.raises(ConnectionResetError):
                await reader.read()


async def test_a_request_can_be_cut_off_on_its_way() -> None:
    async with proxied() as (proxy, echo):
        proxy.requests.fault = Fault(reset_after=10)
        async with connected(proxy) as (reader, writer):
            writer.write(b"0123456789abcdef")
            with pytest.raises(ConnectionResetError):
                await reader.read()

        assert b"0123456789".startswith(echo.received)


async def test_what_is_held_arrives_when_it_is_released_and_not_before() -> None:
    async with proxied() as (proxy, echo), connected(proxy) as (reader, writer):
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxy.hold()
        writer.write(b"after")
        response = asyncio.ensure_future(reader.readexactly(5))
        done, _ = await asyncio.wait({response}, timeout=0.05)

        assert (done, echo.received) == (set(), b"before")
        proxy.release()
        assert await response == b"after"


async def test_all_connections_can_be_reset_and_new_ones_are_carried() -> None:
    async with proxied() as (proxy, _), connected(proxy) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)

        assert proxy.reset_all() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert await exchange(proxy, b"again") == b"again"


async def test_a_deaf_proxy_answers_no_attempt_to_connect_until_it_hears_again() -> None:
    async with proxied() as (proxy, _), connected(proxy) as (reader, writer):
        proxy.turn_deaf()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), connected(proxy):
                pass
        writer.write(b"still")
        assert await reader.readexactly(5) == b"still"
        proxy.turn_hearing()

        assert await exchange(proxy, b"again") == b"again"
