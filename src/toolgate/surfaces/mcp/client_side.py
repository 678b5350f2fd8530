"""The client of a session, as the server of one of its requests can reach it: on the stream of the answer."""

from typing import Final

from toolgate.gateway.call.elicitation import CANNOT, can_answer
from toolgate.model.protocol import LOG_MESSAGE
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.levels import is_heard
from toolgate.surfaces.mcp.responses import encode_notification
from toolgate.surfaces.mcp.session import Session
from toolgate.upstream.connection.contract import NO_CAPABILITIES, Reply

DEFAULT_LEVEL: Final = "info"
"""What servers that send log messages on demand only are asked for, where the client said nothing."""


class SessionClient:
    """Behind one request of a session. A client that takes no event stream can be told and asked nothing."""

    __slots__ = ("binding", "capabilities", "log_level", "principal_id", "responder", "session")
    has_session: Final = True

    def __init__(self, session: Session, responder: Responder, *, binding: Binding, hears: bool) -> None:
        self.session = session
        self.responder = responder
        self.binding = binding
        """By which its request is decided, however long that takes."""
        self.principal_id = session.principal_id
        self.capabilities = session.capabilities if hears else NO_CAPABILITIES
        self.log_level = session.log_level or DEFAULT_LEVEL if hears else ""

    def notify(self, method: str, params: bytes) -> None:
        if self.log_level and (method != LOG_MESSAGE or is_heard(params, self.session.log_level)):
            self.responder.say(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> Reply:
        if not can_answer(self.capabilities, method, params):
            return CANNOT
        self.session.totals.rounds += 1
        principal = self.binding.caller.principal
        return await self.session.asks.put(self.responder, method, params, principal=principal)
