"""The chat endpoint: the OpenAI API, with the tools of the caller's scope.

It authenticates each request, parses its URL and its JSON body, and calls the handler of its resource. It
never prompts a model or calls a tool; the gateway does.
"""

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from toolgate.errors import Forbidden, MethodNotAllowed, ParseFailed, ToolgateError, UnknownModel
from toolgate.gateway.auth.identity import Identities, credential_lapsed, reaches
from toolgate.gateway.auth.issuer import KEYS_ONLY, ResourceMetadata
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import Members, decode_members
from toolgate.surfaces.http import parsing
from toolgate.surfaces.http.messages import HttpRequest, Responder, error_headers, trace_request
from toolgate.surfaces.openai.completions import serve_completions
from toolgate.surfaces.openai.exchange import (
    TASK_HEADER,
    ChatExchange,
    ChatServices,
    Handler,
    parse_target,
    read_authorization,
    response_headers,
    send_failure,
)
from toolgate.surfaces.openai.responses import ResponsesHandler

LIST_TIMEOUT_S: Final = 10.0
"""The deadline of the whole list of models. Each upstream has a shorter one, and is omitted after it."""
_SINGLE_HEADERS: Final = frozenset({b"authorization", b"content-encoding", b"content-type", TASK_HEADER})


class ChatEndpoint:
    """Serves `/v1/…` and `/t/<task_id>/v1/…`."""

    def __init__(
        self, identities: Identities, services: ChatServices, *, metadata: ResourceMetadata = KEYS_ONLY
    ) -> None:
        """`metadata` names the issuer of the tokens that this gateway accepts in addition to its own keys."""
        self._identities = identities
        self._services = services
        self._metadata = metadata
        self._upstreams: Mapping[str, ChatUpstream] = {}
        self._routes: Mapping[str, tuple[str, Handler]] = {
            "chat/completions": ("POST", serve_completions),
            "responses": ("POST", ResponsesHandler().serve),
            "models": ("GET", serve_models),
        }

    async def __call__(self, request: HttpRequest, responder: Responder) -> None:
        request_id = f"req_{secrets.token_hex(16)}"
        try:
            parsing.reject_repeated_headers(request, _SINGLE_HEADERS)
            principal = await self._identities.authenticate(
                read_authorization(request),
                peer=request.peer,
                path=request.path,
                trusts_local=not request.is_from_elsewhere,
            )
            if not reaches(principal.role, "agent"):
                raise Forbidden(f"role `{principal.role}` may not use the chat API")
            target = parse_target(request)
            method, handler = self._routes[target.resource]
            if request.method != method:
                message = f"this path has no method `{request.method[:20]}`"
                raise MethodNotAllowed(message, hint=f"use {method}", data={"allowed": [method]})
            if method == "POST":
                parsing.check_json_media(request)
            # Close the connections to upstreams that the newest snapshot no longer has.
            upstreams = self._services.gateway.snapshot.chat_upstreams
            if upstreams is not self._upstreams:
                self._upstreams = upstreams
                self._services.models.apply(upstreams)
            exchange = ChatExchange(
                services=self._services,
                request=request,
                responder=responder,
                principal=principal,
                target=target,
                body=await parsing.parse_off_loop(_parse_members, request.body) if method == "POST" else {},
                request_id=request_id,
            )
            with self._trace(exchange):
                await self._run_handler(exchange, handler)
        except ToolgateError as exc:
            headers = error_headers(exc, request, self._metadata).items()
            challenge = [(name.encode(), value.encode()) for name, value in headers]
            send_failure(responder, exc, [*challenge, *response_headers(request_id)])

    def _trace(self, exchange: ChatExchange) -> AbstractContextManager[None]:
        tracing = self._services.gateway.tracer
        resource, task_id = exchange.target.resource, exchange.target.task_id
        notes = {
            "toolgate.door": "responses" if resource == "responses" else "chat",
            "toolgate.principal": exchange.principal.id,
            **({"toolgate.task_id": task_id} if task_id else {}),
        }
        route = f"/v1/{resource}" if task_id is None else f"/t/{{task_id}}/v1/{resource}"
        headers = parsing.read_trace_headers(exchange.request)
        return trace_request(tracing, headers, verb=exchange.request.method, route=route, notes=notes)

    async def _run_handler(self, exchange: ChatExchange, handler: Handler) -> None:
        """Run the handler. End the chat and close its stream when the credential expires or is revoked."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None) as deadline:
                with self._identities.hold_credential(
                    read_authorization(exchange.request), lambda: deadline.reschedule(clock())
                ):
                    await handler(exchange)
        except TimeoutError:
            if deadline.expired():
                raise credential_lapsed() from None
            raise


async def serve_models(exchange: ChatExchange) -> None:
    """`GET /v1/models`: the models of all enabled upstreams, or the one that the path names."""
    services = exchange.services
    upstreams = services.gateway.snapshot.chat_upstreams
    enabled = [one for _, one in sorted(upstreams.items()) if one.enabled]
    deadline_s = asyncio.get_running_loop().time() + LIST_TIMEOUT_S
    found = await services.models.models(enabled, deadline_s=deadline_s)
    model_id = exchange.target.rest
    listed: object = {"object": "list", "data": found}
    if model_id:
        listed = next((one for one in found if msgspec.json.decode(one["id"]) == model_id), None)
        if listed is None:
            raise UnknownModel(f"no model `{model_id[:200]}`")
    exchange.responder.send(200, msgspec.json.encode(listed), exchange.headers)


def _parse_members(body: bytes) -> Members:
    """One JSON object without ambiguous members. Raises ParseFailed."""
    whole = parsing.parse_json(body)
    if not isinstance(whole, dict):
        raise ParseFailed("the body is not a JSON object", hint="send one JSON object as UTF-8 JSON")
    parsing.reject_duplicate_members(body, whole)
    return decode_members(body)
