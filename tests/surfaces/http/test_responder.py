"""One answer on a connection."""

from dataclasses import dataclass

import pytest

from toolgate.surfaces.http.messages import HttpResponder


@dataclass
class Written:
    """A connection whose client reads at once."""

    data: bytes = b""
    unread_bytes: int = 0

    def write_response(self, data: bytes) -> None:
        self.data += data

    def write_long(self, head: bytes, body: bytes) -> None:
        self.data += head + body

    async def wait_drained(self) -> None:
        """It is."""


@pytest.mark.parametrize("is_stream", [True, False])
def test_added_headers_are_sent_whatever_the_answer_becomes(is_stream: bool) -> None:
    wire = Written()
    responder = HttpResponder(wire, keeps_alive=True, has_body=True)
    responder.add_headers([(b"x-one", b"1")])
    responder.add_headers([(b"x-two", b"2")])
    if is_stream:
        responder.send_message(b"1")
    responder.send(200, b"2")

    assert b"x-one: 1\r\nx-two: 2\r\n" in wire.data
    assert (b"data: 2\n\n" in wire.data) == is_stream
