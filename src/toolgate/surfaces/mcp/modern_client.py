"""A client of the stateless era, as the server of one of its requests can reach it.

It hears of its request on the stream of the answer. It cannot be asked anything there: it answers by sending
its request again.
"""

from typing import Final

from toolgate.errors import MissingCapability
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.call.elicitation import CANNOT, missing_capability
from toolgate.model.protocol import CAPABILITY_OF, LOG_MESSAGE
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.levels import is_heard
from toolgate.surfaces.mcp.responses import encode_notification
from toolgate.upstream.connection.contract import Reply


class ModernClient:
    """Behind one request."""

    __slots__ = ("_exchange", "capabilities", "log_level", "missing", "principal_id")
    has_session: Final = False

    def __init__(self, exchange: Exchange, capabilities: bytes, log_level: str) -> None:
        self._exchange = exchange
        self.principal_id = exchange.principal.id
        self.capabilities = capabilities
        self.log_level = log_level
        self.missing: MissingCapability | None = None
        """Why the request was broken off: its server wants what this client does not offer."""

    @property
    def credential(self) -> str:
        """With which it came: see `fingerprint_of`."""
        return fingerprint_of(self._exchange.principal)

    @property
    def can_visit(self) -> bool:
        """Whether somebody can be sent to a web page."""
        return b'"url"' in self.capabilities

    def notify(self, method: str, params: bytes) -> None:
        if method == LOG_MESSAGE and not (self.log_level and is_heard(params, self.log_level)):
            return
        if self._exchange.hears:
            self._exchange.responder.say(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> Reply:
        if method in CAPABILITY_OF and self.missing is None:
            self.missing = missing_capability(method, params)
            self._exchange.responder.task.cancel()
        return CANNOT
