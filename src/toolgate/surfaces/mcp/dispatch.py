"""The methods both eras serve, the same but for the shape of the answer: lists, and what goes to a server."""

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from toolgate.catalog.encoding import adapt_result
from toolgate.errors import InvalidParams, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.gateway.starting import check_started
from toolgate.model.protocol import LIST_METHODS
from toolgate.model.tools import Era, ListKind
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.binding import DOOR, Binding
from toolgate.surfaces.mcp.jsonrpc import MAX_NAME_CHARS, Message
from toolgate.surfaces.mcp.responses import SERVER_INFO, failed_call, send_result, send_upstream_error
from toolgate.upstream.connection.contract import ClientSide
from toolgate.upstream.pool.pool import Answer

LISTS: Final[Mapping[str, ListKind]] = {method: kind for kind, method in LIST_METHODS.items()}
"""Answered from memory."""
REQUESTS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Answered by a server."""


class Methods:
    """Lists and asks servers for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, responder: Responder, message: Message, binding: Binding, *, era: Era) -> None:
        """Answer one of `LISTS` from bytes encoded once per view."""
        gateway, kind = self._gateway, LISTS[message.method]
        is_limited = kind == "tools"
        view = binding.view(gateway) if is_limited else binding.calling_view(gateway)
        if not view.is_settled(kind):
            view = await gateway.settled_view(binding.caller, for_call=not is_limited)
        cursor = message.text("cursor")
        page = view.page(kind, era, cursor, SERVER_INFO)
        if cursor is None:  # further pages are of the same list
            self._note(view, kind)
        send_result(responder, message.id or b"null", page)

    def _note(self, view: View, kind: ListKind) -> None:
        if kind == "tools":
            self._gateway.listed(view, DOOR)
        else:
            self._gateway.offers.offered(view, DOOR)

    def ask(
        self, message: Message, binding: Binding, *, client: ClientSide | None, session: str = ""
    ) -> Coroutine[Any, Any, Answer]:
        """What a server answers to one of `REQUESTS`. The message stays as it came.

        Not a coroutine of its own, as a plain call is worth one frame less on the way to its server.
        """
        view = binding.calling_view(self._gateway)
        if view.is_partial and not _is_known(view, message):
            return self._ask_settled(message, binding, client=client, session=session)
        return self._ask(view, message, client=client, session=session)

    async def _ask_settled(
        self, message: Message, binding: Binding, *, client: ClientSide | None, session: str
    ) -> Answer:
        view = await self._gateway.settled_view(binding.caller, for_call=True)
        if view.is_partial and message.method == "tools/call":
            check_started(self._gateway, view, message.text("name") or "", self.trace(message, session))
        return await self._ask(view, message, client=client, session=session)

    def _ask(
        self, view: View, message: Message, *, client: ClientSide | None, session: str
    ) -> Coroutine[Any, Any, Answer]:
        params = {**message.params}  # the gateway writes the server's own names into it
        trace = self.trace(message, session)
        if message.method != "tools/call":
            return self._gateway.fetch(view, message.method, params, trace=trace, client=client)
        name = message.text("name")
        if not name or len(name) > MAX_NAME_CHARS:
            raise InvalidParams("`name` must be a tool's name")
        return self._gateway.call(view, name, params, trace=trace, client=client)

    def server_of(self, message: Message, binding: Binding) -> str:
        """Where one of `REQUESTS` would go now. Raises as `ask` does."""
        view = binding.calling_view(self._gateway)
        return self._gateway.server_of(view, message.method, message.params, trace=self.trace(message))

    def trace(self, message: Message, session: str = "") -> Trace:
        """By which its call is found in the audit."""
        return Trace(DOOR, session, (message.id or b"null").decode(), message.round)


def _is_known(view: View, message: Message) -> bool:
    """Whether its tool is there: then it need not wait for servers that are still to be listed."""
    return message.method == "tools/call" and message.text("name") in view.routes


def send_answer(responder: Responder, message: Message, answer: Answer, *, era: Era) -> None:
    """What a server answered, as a client of `era` takes it. Raises InputNeeded where it asks first."""
    request_id, reply = message.id or b"null", answer.reply
    if reply.members is None:
        send_upstream_error(
            responder, request_id, reply.error or b"{}", method=message.method, modern=era == "modern"
        )
        return
    result = adapt_result(reply.take_members(), upstream=answer.era, client=era, method=message.method)
    send_result(responder, request_id, result)


def send_failure(responder: Responder, message: Message, exc: ToolgateError, *, era: Era) -> bool:
    """A failure of a tool's call, as a result that a model can act on. False for others: nothing is sent."""
    failure = failed_call(exc) if message.method == "tools/call" else None
    if failure is None:
        return False
    result = adapt_result(failure, upstream="legacy", client=era)
    send_result(responder, message.id or b"null", result)
    return True
