"""`subscriptions/listen`: one stream of the stateless era, for exactly what its client names."""

from collections.abc import Mapping

import msgspec

from toolgate.errors import InvalidParams
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.subscriptions.listeners import Changes
from toolgate.gateway.subscriptions.resources import MAX_EACH, Watch
from toolgate.model.protocol import LIST_CHANGED, SUBSCRIPTION_ID_KEY, UPDATED
from toolgate.surfaces.http.events import encode_event
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.surfaces.mcp.streams import Streams, Words, methods_of


class _Wanted(msgspec.Struct, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] = []

    @property
    def lists(self) -> Mapping[str, bool | None]:
        """Whether changes of lists are wanted, by the capability of those who have them."""
        return {
            "tools": self.tools_list_changed,
            "prompts": self.prompts_list_changed,
            "resources": self.resources_list_changed,
        }


_decode_wanted = msgspec.json.Decoder(_Wanted).decode


class Listening:
    """Serves clients that listen."""

    def __init__(self, gateway: Gateway, *, streams: Streams) -> None:
        self._gateway = gateway
        self._streams = streams

    async def serve(self, exchange: Exchange, message: Message, binding: Binding, *, trace: Trace) -> None:
        """Tell the client of what it wants to hear until it leaves. Resources it may not see are left out."""
        exchange.accepts("text/event-stream")
        wanted = _parse_wanted(message)
        watch = Watch(exchange.principal.id)
        try:
            if wanted.resource_subscriptions:
                view = await self._gateway.settled_view(binding.caller)
                await self._gateway.wishes.subscribe(view, watch, wanted.resource_subscriptions, trace=trace)
            words = _words(message.id or b"null", wanted, uris=list(watch.targets))
            await self._streams.announce(exchange, binding.caller, words, watch=watch)
        finally:
            self._gateway.subscriptions.watches.drop(watch)


def _parse_wanted(message: Message) -> _Wanted:
    try:
        wanted = _decode_wanted(message.params.get("notifications", b"null"))
    except msgspec.ValidationError as exc:
        raise InvalidParams("`notifications` must say what to listen for") from exc
    if len(wanted.resource_subscriptions) > MAX_EACH:
        raise InvalidParams(f"`resourceSubscriptions` names more than {MAX_EACH} resources")
    return wanted


def _words(request_id: bytes, wanted: _Wanted, *, uris: list[str]) -> Words:
    subscription_id = msgspec.Raw(request_id)
    meta = {SUBSCRIPTION_ID_KEY: subscription_id}
    lists = [name for name, is_wanted in wanted.lists.items() if is_wanted]
    heard = {LIST_CHANGED[name] for name in lists}

    def event(**members: object) -> bytes:
        return encode_event(msgspec.json.encode({"jsonrpc": "2.0", **members}))

    def changed(changes: Changes) -> bytes:
        methods = [method for method in methods_of(changes) if method in heard]
        changed_lists = [event(method=method, params={"_meta": meta}) for method in methods]
        updates = [event(method=UPDATED, params={"uri": uri, "_meta": meta}) for uri in changes.uris]
        return b"".join((*changed_lists, *updates))

    acknowledged: dict[str, object] = {f"{name}ListChanged": True for name in lists}
    if uris:
        acknowledged["resourceSubscriptions"] = uris
    return Words(
        first=event(
            method="notifications/subscriptions/acknowledged",
            params={"notifications": acknowledged, "_meta": meta},
        ),
        changed=changed,
        last=event(id=subscription_id, result={"resultType": "complete", "_meta": meta}),
    )
