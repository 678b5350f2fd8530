"""`GET /v1/models`: what the upstreams serve, as one list.

The chat door: the OpenAI API, with the tools of the caller's scope.

Order of things: who calls, what the URL asks for, one JSON body, then the handler of that resource. Nothing
here asks a model or calls a tool; the gateway does.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

import msgspec

from toolgate.errors import Forbidden, MethodNotAllowed, NotFound, ParseFailed, ToolgateError, UnknownModel
from toolgate.gateway.auth.identity import Identities, credential_lapsed, reaches
from toolgate.gateway.auth.issuer import KEYS_ONLY, NoResourceMetadata, ResourceMetadata
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import Members, decode_members
from toolgate.model.principals import Principal
from toolgate.surfaces.http.endpoint import error_headers
from toolgate.surfaces.http.endpoint import trace_request as traced
from toolgate.surfaces.http.messages import Headers, HttpRequest, Responder
from toolgate.surfaces.http.parsing import (
    check_json_media,
    parse_json,
    parse_off_loop,
    read_trace_headers,
    reject_duplicate_members,
    reject_repeated_headers,
)
from toolgate.surfaces.openai.completions import CompletionsHandler
from toolgate.surfaces.openai.context import (
    TASK_HEADER,
    ChatExchange,
    ChatServices,
    Handler,
    answer_headers,
    authorization_of,
    parse_target,
)
from toolgate.surfaces.openai.responses import ResponsesHandler
from toolgate.surfaces.openai.wire import send_failure

LIST_TIMEOUT_S: Final = 10.0
"""For the whole list. Each upstream has less, and is left out after that."""


class ModelsHandler:
    """Answers requests for models."""

    def __init__(self, parts: ChatServices) -> None:
        self._parts = parts

    async def serve(self, exchange: ChatExchange) -> None:
        """All of them, or the one that the path names."""
        upstreams = self._parts.gateway.snapshot.chat_upstreams
        enabled = [one for _, one in sorted(upstreams.items()) if one.enabled]
        deadline_s = asyncio.get_running_loop().time() + LIST_TIMEOUT_S
        found = await self._parts.models.models(enabled, deadline_s=deadline_s)
        wanted = exchange.target.rest
        answer = _find_model(found, wanted) if wanted else {"object": "list", "data": found}
        exchange.responder.send(200, msgspec.json.encode(answer), exchange.headers)


def _find_model(found: Sequence[Members], model_id: str) -> Members:
    for one in found:
        if msgspec.json.decode(one["id"]) == model_id:
            return one
    raise UnknownModel(f"there is no model `{model_id[:200]}`")


_ONCE_ONLY: Final = frozenset({b"authorization", b"content-encoding", b"content-type", TASK_HEADER})


class ChatRoute(NamedTuple):
    """How a resource is asked for, and who answers."""

    method: str
    handler: Handler


class ChatEndpoint:
    """Serves `/v1/…` and `/t/<task_id>/v1/…`."""

    def __init__(
        self,
        identities: Identities,
        parts: ChatServices,
        *,
        discovery: ResourceMetadata | NoResourceMetadata = KEYS_ONLY,
    ) -> None:
        """`discovery`: where the tokens come from that this gateway takes beside its own keys."""
        self._identities = identities
        self._parts = parts
        self._discovery = discovery
        self._upstreams: Mapping[str, ChatUpstream] = {}
        self._handlers: Mapping[str, ChatRoute] = {
            "chat/completions": ChatRoute("POST", CompletionsHandler(parts).serve),
            "responses": ChatRoute("POST", ResponsesHandler(parts).serve),
            "models": ChatRoute("GET", ModelsHandler(parts).serve),
        }

    async def __call__(self, request: HttpRequest, responder: Responder) -> None:
        request_id = f"req_{secrets.token_hex(16)}"
        try:
            reject_repeated_headers(request, _ONCE_ONLY)
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
            exchange = ChatExchange(
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

    def _traced(self, exchange: ChatExchange) -> AbstractContextManager[None]:
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
        return traced(tracing, read_trace_headers(request), verb=request.method, route=route, notes=notes)

    async def _serve(self, exchange: ChatExchange, handler: Handler) -> None:
        """A conversation lives no longer than the credential it was begun with. A stream then breaks off."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None) as tenure:
                with self._identities.hold_credential(
                    exchange.authorization, lambda: tenure.reschedule(clock())
                ):
                    await handler(exchange)
        except TimeoutError:
            if tenure.expired():
                raise credential_lapsed() from None
            raise

    def _follow(self) -> None:
        """Part with upstreams that are gone, when next anybody comes."""
        upstreams = self._parts.gateway.snapshot.chat_upstreams
        if upstreams is not self._upstreams:
            self._upstreams = upstreams
            self._parts.models.apply(upstreams)

    async def _admit(self, request: HttpRequest) -> Principal:
        principal = await self._identities.admit(
            authorization_of(request),
            peer=request.peer,
            place=request.path,
            trusts_local=not request.is_from_elsewhere,
        )
        if not reaches(principal.role, "agent"):
            raise Forbidden(f"a credential of role `{principal.role}` asks no models")
        return principal

    def _refusal_headers(self, request: HttpRequest, exc: ToolgateError) -> Headers:
        called_url = f"http://{request.headers.get(b'host', b'').decode('latin-1')}"
        url = self._discovery.metadata_url(called_url, "")
        headers = error_headers(exc, has_credential=b"authorization" in request.headers, metadata_url=url)
        return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _parse_body(request: HttpRequest) -> Members:
    """One JSON object that anybody can read again. Raises ParseFailed, UnsupportedMedia."""
    check_json_media(request)
    return await parse_off_loop(_parse_members, request.body)


def _parse_members(body: bytes) -> Members:
    whole = parse_json(body)
    if not isinstance(whole, dict):
        raise ParseFailed("the body is not a JSON object", hint="send one JSON object as UTF-8 JSON")
    reject_duplicate_members(body, whole)
    return decode_members(body)
