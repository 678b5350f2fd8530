"""One HTTP request to the MCP door while it is answered: who asks, and what its headers say."""

from typing import Final

from toolgate.errors import NotAcceptable
from toolgate.model.principals import Principal
from toolgate.surfaces.http.messages import Request, Responder
from toolgate.surfaces.http.parsing import check_once

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

    __slots__ = ("headers", "principal", "request", "responder")

    def __init__(self, request: Request, responder: Responder, principal: Principal) -> None:
        self.request = request
        self.responder = responder
        self.principal = principal
        self.headers = request.headers

    @property
    def authorization(self) -> str | None:
        """The credential, as it was sent."""
        value = self.headers.get(b"authorization")
        return None if value is None else value.decode("latin-1")

    @property
    def hears(self) -> bool:
        """Whether the client takes an event stream for an answer."""
        accepted = self.headers.get(b"accept", b"*/*")
        if b"text/event-stream" in accepted:  # as nearly all write it
            return True
        return b"*/*" in accepted or b"text/event-stream" in accepted.lower()

    def header(self, name: bytes) -> str | None:
        """A header's value, without the white space around it."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def accepts(self, media: str) -> None:
        """Raise NotAcceptable where the client says it cannot take `media`."""
        accepted = self.header(b"accept")
        if accepted is None:
            return
        kinds = {one.split(";")[0].strip().lower() for one in accepted.split(",")}
        if not kinds & {media, "*/*", media.split("/", maxsplit=1)[0] + "/*"}:
            raise NotAcceptable(f"the client does not accept `{media}`")


async def nothing_more() -> None:
    """For a request that is answered already."""


def check_headers(request: Request) -> None:
    """Headers that decide the routing stand once at most."""
    if request.repeated:
        check_once(request, _ONCE_ONLY)
