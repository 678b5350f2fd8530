"""The chat door: the OpenAI API, with the tools of the caller's scope.

Order of things: who calls, what the URL asks for, one JSON body, then the handler of that resource. Nothing
here asks a model or calls a tool; the gateway does.
"""

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from toolgate.errors import Forbidden, MethodNotAllowed, NotFound, ParseFailed, ToolgateError
from toolgate.gateway.auth.identity import Identities, has_lapsed
from toolgate.gateway.discovery import Discovery
from toolgate.gateway.roles import reaches
from toolgate.model.chat import ChatUpstream
from toolgate.model.principals import Principal
from toolgate.model.raw import Members, decode_members
from toolgate.surfaces.http.endpoint import refusal_headers
from toolgate.surfaces.http.messages import Headers, Request, Responder
from toolgate.surfaces.http.parsing import (
    carried_by,
    check_media,
    check_members_once,
    check_once,
    parse_aside,
    parse_json,
)
from toolgate.surfaces.http.tracing import served as traced
from toolgate.surfaces.openai.completions import Completions
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.exchange import Exchange, Handler, answer_headers, authorization_of
from toolgate.surfaces.openai.models import ModelLists
from toolgate.surfaces.openai.responses import Responses
from toolgate.surfaces.openai.target import TASK_HEADER, parse_target
from toolgate.surfaces.openai.wire import send_failure

_ONCE_ONLY: Final = frozenset({b"authorization", b"content-encoding", b"content-type", TASK_HEADER})


class Served(NamedTuple):
    """How a resource is asked for, and who answers."""

    method: str
    handler: Handler


class OpenAiDoor:
    """Serves `/v1/…` and `/t/<task_id>/v1/…`."""

    def __init__(
        self,
        identities: Identities,
        parts: ChatParts,
        *,
        discovery: Discovery | None = None,
    ) -> None:
        """`discovery`: where the tokens come from that this gateway takes beside its own keys."""
        self._identities = identities
        self._parts = parts
        self._discovery = discovery
        self._upstreams: Mapping[str, ChatUpstream] = {}
        self._handlers: Mapping[str, Served] = {
            "chat/completions": Served("POST", Completions(parts).serve),
            "responses": Served("POST", Responses(parts).serve),
            "models": Served("GET", ModelLists(parts).serve),
        }

    async def __call__(self, request: Request, responder: Responder) -> None:
        request_id = f"req_{secrets.token_hex(16)}"
        try:
            check_once(request, _ONCE_ONLY)
            principal = await self._admit(request)
            target = parse_target(request)
            served = self._handlers.get(target.resource)
            if served is None:
                raise NotFound(f"`{target.resource}` is not served here")
            if request.method != served.method:
                raise MethodNotAllowed(
                    f"`{request.method}` is not served here",
                    hint=f"use {served.method}",
                    data={"allowed": [served.method]},
                )
            self._follow()
            body = await _parse_body(request) if served.method == "POST" else {}
            exchange = Exchange(
                request=request,
                responder=responder,
                principal=principal,
                target=target,
                body=body,
                request_id=request_id,
            )
            with self._traced(exchange):
                await self._serve(exchange, served.handler)
        except ToolgateError as exc:
            send_failure(responder, exc, [*self._refusal_headers(request, exc), *answer_headers(request_id)])

    def _traced(self, exchange: Exchange) -> AbstractContextManager[None]:
        tracing = self._parts.gateway.tracing
        if tracing is None:
            return nullcontext()
        resource, request = exchange.target.resource, exchange.request
        notes = {
            "toolgate.door": "responses" if resource == "responses" else "chat",
            "toolgate.principal": exchange.principal.id,
            **({"toolgate.task_id": exchange.task_id} if exchange.task_id else {}),
        }
        route = f"/v1/{resource}" if exchange.task_id is None else f"/t/{{task_id}}/v1/{resource}"
        return traced(tracing, carried_by(request), verb=request.method, route=route, notes=notes)

    async def _serve(self, exchange: Exchange, handler: Handler) -> None:
        """A conversation lives no longer than the credential it was begun with. A stream then breaks off."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None) as tenure:
                with self._identities.until_lapsed(
                    exchange.authorization, lambda: tenure.reschedule(clock())
                ):
                    await handler(exchange)
        except TimeoutError:
            if tenure.expired():
                raise has_lapsed() from None
            raise

    def _follow(self) -> None:
        """Part with upstreams that are gone, when next anybody comes."""
        upstreams = self._parts.gateway.snapshot.chat_upstreams
        if upstreams is not self._upstreams:
            self._upstreams = upstreams
            self._parts.models.apply(upstreams)

    async def _admit(self, request: Request) -> Principal:
        principal = await self._identities.admit(
            authorization_of(request),
            peer=request.peer,
            place=request.path,
            trusts_local=not request.is_from_elsewhere,
        )
        if not reaches(principal.role, "agent"):
            raise Forbidden(f"a credential of role `{principal.role}` asks no models")
        return principal

    def _refusal_headers(self, request: Request, exc: ToolgateError) -> Headers:
        url = None
        if self._discovery is not None:
            called_url = f"http://{request.headers.get(b'host', b'').decode('latin-1')}"
            url = self._discovery.metadata_url(called_url, "")
        headers = refusal_headers(exc, has_credential=b"authorization" in request.headers, metadata_url=url)
        return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _parse_body(request: Request) -> Members:
    """One JSON object that anybody can read again. Raises ParseFailed, UnsupportedMedia."""
    check_media(request)
    return await parse_aside(_parse_members, request.body)


def _parse_members(body: bytes) -> Members:
    whole = parse_json(body)
    if not isinstance(whole, dict):
        raise ParseFailed("the body is not a JSON object", hint="send one JSON object as UTF-8 JSON")
    check_members_once(body, whole)
    return decode_members(body)
