"""One HTTP request to the chat door while it is answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from toolgate.model.principals import Principal
from toolgate.model.raw import Members
from toolgate.surfaces.http.messages import Request, Responder
from toolgate.surfaces.openai.target import Target


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
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer carries."""
        return [(b"x-request-id", self.request_id.encode()), (b"x-content-type-options", b"nosniff")]


Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]
"""Answers one request, or raises a ToolgateError as long as nothing was sent."""
