"""What the client of a session wants to hear of by itself: log messages, and updates of resources.

It holds for the session on this node, for as long as the node knows it.
"""

from toolgate.errors import InvalidParams, MethodNotFound, ToolgateError, UnknownResource
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.surfaces.mcp.levels import parse_level
from toolgate.surfaces.mcp.session import Session


class Hearing:
    """Takes the wishes of sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def change(self, message: Message, session: Session, *, binding: Binding, trace: Trace) -> None:
        """`logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`. Raises MethodNotFound."""
        if message.method == "logging/setLevel":
            session.log_level = parse_level(message.text("level"))
        elif message.method == "resources/subscribe":
            await self._subscribe(_uri(message), session, binding, trace)
        elif message.method == "resources/unsubscribe":
            await self._unsubscribe(_uri(message), session, binding, trace)
        else:
            raise MethodNotFound(f"no method `{message.method}`")

    async def _subscribe(self, uri: str, session: Session, binding: Binding, trace: Trace, /) -> None:
        view = await self._gateway.settled_view(binding.caller, for_call=True)
        if not await self._gateway.wishes.subscribe(view, session.watch, [uri], trace=trace):
            raise UnknownResource("Resource not found", data={"uri": uri})

    async def _unsubscribe(self, uri: str, session: Session, binding: Binding, trace: Trace, /) -> None:
        """Also of what the client may not see any more."""
        try:
            view = await self._gateway.settled_view(binding.caller, for_call=True)
        except ToolgateError:  # whoever may see nothing any more need not hear of anything either
            if uri not in session.watch.targets:
                raise
            self._gateway.subscriptions.watches.remove(session.watch, uri)
        else:
            await self._gateway.wishes.unsubscribe(view, session.watch, uri, trace=trace)


def _uri(message: Message) -> str:
    uri = message.text("uri")
    if not uri:
        raise InvalidParams("`uri` is missing")
    return uri
