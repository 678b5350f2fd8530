"""The client of a session, as the server of one of its requests can reach it: on the stream of the answer."""

from typing import Final

import msgspec

from toolgate.gateway.inputs import CAPABILITY_OF
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.answers import encode_notification
from toolgate.surfaces.mcp.capabilities import NONE
from toolgate.surfaces.mcp.levels import LOG_MESSAGE, is_heard
from toolgate.surfaces.mcp.session import Session
from toolgate.upstream.link import Reply

DEFAULT_LEVEL: Final = "info"
"""What servers that send log messages on demand only are asked for, where the client said nothing."""
CANNOT: Final = Reply(error=b'{"code":-32601,"message":"the client of this request cannot do that"}')

_Members = dict[str, msgspec.Raw]
_decode_capabilities = msgspec.json.Decoder(dict[str, _Members]).decode


class _Elicitation(msgspec.Struct):
    mode: str = "form"


_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode


class SessionClient:
    """Behind one request of a session. A client that takes no event stream can be told and asked nothing."""

    __slots__ = ("_responder", "_session", "capabilities", "log_level")

    def __init__(self, session: Session, responder: Responder, *, hears: bool) -> None:
        self._session = session
        self._responder = responder
        self.capabilities = session.capabilities if hears else NONE
        self.log_level = session.log_level or DEFAULT_LEVEL if hears else ""

    def notify(self, method: str, params: bytes) -> None:
        if self.log_level and (method != LOG_MESSAGE or is_heard(params, self._session.log_level)):
            self._responder.say(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> Reply:
        if not can_answer(self.capabilities, method, params):
            return CANNOT
        return await self._session.asks.put(self._responder.say, method, params)


def can_answer(capabilities: bytes, method: str, params: bytes) -> bool:
    """Whether a client of these (carried) capabilities may be asked that. One asked for a web page by a form
    could do nothing but fail.
    """
    can = {} if capabilities == NONE else _decode_capabilities(capabilities)
    name = CAPABILITY_OF.get(method)
    if name is None or name not in can:
        return False
    if name != "elicitation":
        return True
    try:
        mode = _decode_elicitation(params).mode
    except msgspec.DecodeError:
        return False
    # No mode named means forms: that is what there was before there were modes.
    return mode in (can[name].keys() or {"form"})
