"""One HTTP request to the chat door while it is answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolgate.model.principals import Principal
from toolgate.model.raw import Members
from toolgate.surfaces.http.messages import Headers, Request, Responder
from toolgate.surfaces.openai.target import Target

_NO_KEY: Final = b"Bearer none"
"""OpenAI's clients insist on a key; with this one they say that they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a handler needs of one request."""

    request: Request
    responder: Responder
    principal: Principal
    target: Target
    body: Members
    """Of a POST: one JSON object, taken apart one level deep."""
    request_id: str
    """Made up here: it stands in the answer's headers, in the log and in the audit."""

    @property
    def task_id(self) -> str | None:
        """The task that path or header name. The key's own applies where they name none."""
        return self.target.task_id

    @property
    def authorization(self) -> str | None:
        """The credential, as it was sent."""
        return authorization_of(self.request)

    @property
    def told_id(self) -> tuple[bytes, bytes]:
        """The header by which the caller learns the request's id."""
        return _told(self.request_id)

    @property
    def headers(self) -> Headers:
        """What every whole answer carries."""
        return answer_headers(self.request_id)


def answer_headers(request_id: str) -> Headers:
    """What every whole answer carries, be it a failure."""
    return [_told(request_id), (b"x-content-type-options", b"nosniff")]


def authorization_of(request: Request) -> str | None:
    """The credential of a request, as it was sent."""
    sent = request.headers.get(b"authorization")
    return None if sent is None or sent == _NO_KEY else sent.decode("latin-1")


def _told(request_id: str) -> tuple[bytes, bytes]:
    return b"x-request-id", request_id.encode()


Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]
"""Answers one request, or raises a ToolgateError as long as nothing was sent."""
