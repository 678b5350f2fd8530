"""One answer on a connection."""

import asyncio

import pytest

from toolgate.surfaces.http.messages import HttpResponder


class Written(asyncio.Transport):
    """A connection whose client reads at once."""

    data: bytes = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize("is_stream", [True, False])
def test_added_headers_are_sent_whatever_the_answer_becomes(is_stream: bool) -> None:
    wire = Written()
    responder = HttpResponder(wire, asyncio.Event(), keeps_alive=True, has_body=True)
    responder.add_headers([(b"x-one", b"1")])
    responder.add_headers([(b"x-two", b"2")])
    if is_stream:
        responder.send_message(b"1")
    responder.send(200, b"2")

    assert b"x-one: 1\r\nx-two: 2\r\n" in wire.data
    assert (b"data: 2\n\n" in wire.data) == is_stream
