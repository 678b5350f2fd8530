"""A body over the limit, sent in one go: every client reads why it was refused, and none a broken pipe."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.node import node
from tests.surfaces.http.test_listener import Bench, listening
from toolgate.surfaces.http.connection import MAX_BODY_BYTES, MAX_DISCARDED_BYTES

pytestmark = pytest.mark.anyio

BODY = b"x" * (6 * MAX_BODY_BYTES)
NODE = """
const body = new Uint8Array(Number(process.argv[2]));
const response = await fetch(process.argv[1], { method: "POST", body });
console.log(JSON.stringify([response.status, await response.json()]));
"""

Ask = Callable[[str], Coroutine[Any, Any, tuple[int, Any]]]


async def ask_httpx(url: str) -> tuple[int, Any]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        response = await client.post(url, content=BODY)
        return response.status_code, response.json()


async def ask_httpx_in_chunks(url: str) -> tuple[int, Any]:
    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(BODY), 65_536):
            yield BODY[begin : begin + 65_536]

    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        response = await client.post(url, content=pieces())
        return response.status_code, response.json()


async def ask_standard_library(url: str) -> tuple[int, Any]:
    def request() -> tuple[int, Any]:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        connection.request("POST", address.path, BODY)
        response = connection.getresponse()
        found = response.status, json.load(response)
        connection.close()
        return found

    return await asyncio.to_thread(request)


async def ask_node(url: str) -> tuple[int, Any]:
    words = ["--input-type=module", "--eval", NODE, url, str(len(BODY))]
    process = await asyncio.create_subprocess_exec(node(), *words, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    status, response = json.loads(out)
    return status, response


@pytest.mark.parametrize("send", [ask_httpx, ask_httpx_in_chunks, ask_standard_library, ask_node])
async def test_a_client_that_sends_too_much_in_one_go_reads_why_it_is_refused(send: Ask) -> None:
    async with listening(request_s=60.0) as bench:
        status, response = await send(f"http://127.0.0.1:{bench.port}/json")

        assert (status, response["error"]["code"]) == (413, "too_large")


async def send_on(bench: Bench, size: int) -> bytes:
    """What a client reads that sends a body of `size` bytes, whatever becomes of it."""
    reader, writer = await bench.connect()
    writer.write(b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    head = await reader.readuntil(b"\r\n\r\n")
    piece = b"x" * 1024 * 1024
    try:
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    return head


async def test_what_is_read_of_a_refused_body_is_bounded() -> None:
    async with listening(request_s=60.0) as bench:
        head = await send_on(bench, 4 * MAX_DISCARDED_BYTES)

        assert b"413" in head
        assert b"connection: close" in head
        async with asyncio.timeout(60):
            while len(bench.server):
                await asyncio.sleep(0)


async def test_a_client_that_neither_sends_nor_leaves_after_a_refusal_is_cut_off() -> None:
    async with listening(request_s=0.1) as bench:
        response = await bench.raw(b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")

        assert b"413" in response
