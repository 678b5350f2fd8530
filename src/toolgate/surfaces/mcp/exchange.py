"""One HTTP request to the MCP door while it is answered: its headers, its body, its client's patience."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from toolgate.errors import BodyTooLarge, HeaderMismatch, NotAcceptable, UnsupportedMedia
from toolgate.model.principals import Principal
from toolgate.surfaces.guard import Receive, Send

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
PATIENCE_S: Final = 0.1
"""A call that takes longer is watched for its client going away; faster ones are not worth a task."""

# First-copy and last-copy readers would disagree about these.
_ONCE_ONLY: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
    }
)


class Exchange:
    """What a handler needs of one request."""

    __slots__ = ("headers", "path", "principal", "query", "receive", "send")

    def __init__(
        self,
        headers: Mapping[bytes, bytes],
        principal: Principal,
        *,
        url: tuple[str, bytes],
        receive: Receive,
        send: Send,
    ) -> None:
        self.headers = headers
        self.principal = principal
        self.path, self.query = url
        self.receive = receive
        self.send = send

    def header(self, name: bytes) -> str | None:
        """A header's value without the white space around it, which not every parser trims."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    async def body(self) -> bytes:
        """The whole body: JSON by its own declaration, and within the limit."""
        self._check_media()
        if int(self.headers.get(b"content-length") or 0) > MAX_BODY_BYTES:
            raise _too_large()
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            return body
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await self.receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MAX_BODY_BYTES:
                raise _too_large()
        return b"".join(parts)

    def accepts(self, media: str) -> None:
        """Raise NotAcceptable where the client says it cannot take `media`."""
        accepted = self.header(b"accept")
        if accepted is None:
            return
        kinds = {one.split(";")[0].strip().lower() for one in accepted.split(",")}
        if not kinds & {media, "*/*", media.split("/", maxsplit=1)[0] + "/*"}:
            raise NotAcceptable(f"the client does not accept `{media}`")

    def _check_media(self) -> None:
        media = self.headers.get(b"content-type", b"")
        if media != b"application/json" and media.split(b";")[0].strip().lower() != b"application/json":
            raise UnsupportedMedia("the body must be `application/json`")
        if self.headers.get(b"content-encoding", b"identity") != b"identity":
            raise UnsupportedMedia("encoded bodies are not taken")


def parse_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. One that decides the routing may stand only once."""
    listed = list(pairs)
    headers = dict(listed)
    if len(headers) != len(listed):
        names = [name for name, _ in listed]
        for name in _ONCE_ONLY.intersection(names):
            if names.count(name) > 1:
                raise HeaderMismatch(f"the header `{name.decode()}` stands more than once")
    return headers


class Patience:
    """Cancels a handler when its client goes away. Costs one timer unless the call is slow."""

    __slots__ = ("_handle", "_handler", "_receive", "_watch", "is_lost")

    def __init__(self, receive: Receive, handler: "asyncio.Task[None]") -> None:
        self._receive = receive
        self._handler = handler
        self._watch: asyncio.Task[None] | None = None
        self._handle = asyncio.get_running_loop().call_later(PATIENCE_S, self._start)
        self.is_lost = False

    def end(self) -> None:
        """Stop watching."""
        self._handle.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _start(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_lost = True
        self._handler.cancel()


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")
