"""What the client of a session wants to hear of by itself: log messages, and updates of resources.

It holds for the session on this node, for as long as the node knows it.
"""

from toolgate.errors import InvalidParams, MethodNotFound, UnknownResource
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.routes import Route
from toolgate.surfaces.mcp.envelope import Message
from toolgate.surfaces.mcp.levels import parse_level
from toolgate.surfaces.mcp.session import Session


class Hearing:
    """Takes the wishes of sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def change(self, message: Message, session: Session) -> None:
        """`logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`. Raises MethodNotFound."""
        if message.method == "logging/setLevel":
            session.log_level = parse_level(message.text("level"))
        elif message.method == "resources/subscribe":
            await self._subscribe(_uri(message), session)
        elif message.method == "resources/unsubscribe":
            await self._unsubscribe(_uri(message), session)
        else:
            raise MethodNotFound(f"no method `{message.method}`")

    async def _subscribe(self, uri: str, session: Session) -> None:
        route = await self._find(uri, session)
        self._gateway.subscriptions.watches.add(
            session.watch, uri, server_id=route.server_id, uri=route.upstream_uri
        )
        await self._gateway.subscriptions.watches.settle([route.server_id])

    async def _unsubscribe(self, uri: str, session: Session) -> None:
        """Also of what the client may not see any more."""
        if uri in session.watch.targets:
            self._gateway.subscriptions.watches.remove(session.watch, uri)
        else:
            await self._find(uri, session)

    async def _find(self, uri: str, session: Session) -> Route:
        view = await self._gateway.settled_view(session.binding.caller)
        route = view.find_resource(uri)
        if route is None:
            raise UnknownResource("Resource not found", data={"uri": uri})
        return route


def _uri(message: Message) -> str:
    uri = message.text("uri")
    if not uri:
        raise InvalidParams("`uri` is missing")
    return uri
