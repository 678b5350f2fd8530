"""A head that was parsed before is looked up. No one may be able to tell, but by the clock."""

import asyncio

import pytest

from tests.surfaces.http.test_listener import SEEN, Bench, listening, statuses

pytestmark = pytest.mark.anyio

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


def known_paths(bench: Bench) -> list[str]:
    """The paths in the heads that the one connection knows."""
    [known] = bench.server.known
    return [head.path for head in known]


async def test_equal_heads_get_their_own_bodies() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        for body in (b"abc", b"def", b"g", b"", b"hijklmnopqrst"):
            writer.write(HEAD.replace(b"3", b"%d" % len(body)) + body)
            assert await read_answer(reader) == b"POST /x " + body

        assert known_paths(bench) == ["/x"]


async def test_a_known_head_waits_for_a_body_that_is_still_to_come() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        writer.write(HEAD + b"abc")
        await read_answer(reader)
        for parts in ((HEAD, b"def"), (HEAD + b"g", b"hi"), (HEAD[:9], HEAD[9:] + b"jkl")):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            assert await read_answer(reader) == b"POST /x " + b"".join(parts).removeprefix(HEAD)


async def test_a_known_head_with_more_behind_it_is_two_requests() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        writer.write(HEAD + b"abc")
        await read_answer(reader)
        writer.write(HEAD + b"def" + HEAD + b"ghi")

        assert [await read_answer(reader), await read_answer(reader)] == [b"POST /x def", b"POST /x ghi"]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="closes"),
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"), id="asks first"),
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\nX: 1\r\nX: 2\r\n\r\n"), id="a repeated header"),
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\nX: " + b"a" * 4_096 + b"\r\n\r\n"), id="long"),
        pytest.param(b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", id="not a post"),
    ],
)
async def test_a_head_that_is_out_of_the_ordinary_is_not_remembered(head: bytes) -> None:
    async with listening(keep_alive_s=0.2, request_s=60) as bench:
        assert statuses(await bench.raw(head + b"abc"))[-1] == 200
        assert known_paths(bench) == []


async def test_what_is_remembered_is_bounded() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        for number in range(10):
            writer.write(HEAD.replace(b"/x", b"/%d" % number) + b"abc")
            await read_answer(reader)

        assert known_paths(bench) == ["/9", "/8", "/7", "/6"]


async def test_what_one_connection_knows_another_does_not() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        writer.write(HEAD + b"abc")
        await read_answer(reader)
        await bench.connect()
        writer.write(HEAD + b"abc")
        await read_answer(reader)

        assert [len(known) for known in bench.server.known] == [1, 0]


async def test_a_head_is_never_remembered_for_a_request_that_came_behind_another() -> None:
    other = HEAD.replace(b"/x", b"/other")
    async with listening() as bench:
        reader, writer = await bench.connect()
        writer.write(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        async with asyncio.timeout(60):
            await SEEN["started"].wait()
        writer.write(other + b"abc")
        await writer.drain()
        await asyncio.sleep(0.05)
        SEEN["go"].set()
        responses = [await read_answer(reader), await read_answer(reader)]

        assert responses == [b'"done"', b"POST /other abc"]
        assert known_paths(bench) == ["/wait"]
