"""What is asked of a client in the middle of its requests, and how its answers find their way back.

A question goes out on the stream of the request it belongs to. Its answer comes as a message of its own in
the same session, on the same node, and is found by an id that nobody else could have made up.
"""

import asyncio
import secrets
from typing import Final

import msgspec

from toolgate.errors import InvalidRequest
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.model.principals import Principal
from toolgate.model.protocol import CANCELLED
from toolgate.surfaces.http.events import KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.jsonrpc import ClientAnswer
from toolgate.surfaces.mcp.responses import encode_notification, encode_request
from toolgate.upstream.connection.contract import Reply

MAX_OPEN: Final = 32
"""Questions of one session that may wait for their answers."""
_ID_PREFIX: Final = b'"toolgate-'

TOO_MANY: Final = Reply(error=b'{"code":-32603,"message":"the client has too much to answer already"}')
GONE: Final = Reply(error=b'{"code":-32603,"message":"the client reads nothing at the moment"}')


class Asks:
    """The open questions of one session."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[Principal, asyncio.Future[Reply]]] = {}

    async def put(self, responder: Responder, method: str, params: bytes, *, principal: Principal) -> Reply:
        """Ask ahead of an answer, and wait for what comes back. A question that is given up is taken back.

        Only the credential of `principal` can answer: another token of the same subject may be allowed less.
        """
        if len(self._open) >= MAX_OPEN:
            return TOO_MANY
        ask_id = b'%b%b"' % (_ID_PREFIX, secrets.token_urlsafe(16).encode())
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[ask_id] = principal, answer
        try:
            if not responder.say(encode_request(ask_id, method, params)):
                return GONE
            # People take their time, and whoever is between us and them may cut a stream that is silent.
            while not (await asyncio.wait({answer}, timeout=KEEPALIVE_S))[0]:
                await responder.write(KEEPALIVE)
            return answer.result()
        except asyncio.CancelledError:
            taken_back = msgspec.json.encode({"requestId": msgspec.Raw(ask_id)})
            responder.say(encode_notification(CANCELLED, taken_back))
            raise
        finally:
            del self._open[ask_id]

    def take(self, answer: ClientAnswer, principal: Principal) -> None:
        """Bring an answer to the request that waits for it. A late or second answer has no effect.

        Raises InvalidRequest for an answer to what `principal` was never asked here.
        """
        asked_principal, asked = self._open.get(answer.id, (principal, None))
        is_own = asked_principal is principal or fingerprint_of(asked_principal) == fingerprint_of(principal)
        if asked is not None and is_own and not asked.done():
            asked.set_result(answer.reply)
        elif not (is_own and answer.id.startswith(_ID_PREFIX)):
            raise InvalidRequest("this answers nothing that was asked", hint="answer with the request's `id`")
