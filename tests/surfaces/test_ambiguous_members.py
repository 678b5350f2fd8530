"""TRY-1: what policy, approval and audit looked at is what the server reads, whichever way it reads JSON."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.scenarios.soak import rounds
from tests.surfaces.ambiguous_json import Json, Path, readings, spoiled
from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, LegacyClient, Response, task
from tests.surfaces.mcp.test_endpoint_offers import FEATURES, OfferingServer
from tests.surfaces.mcp.test_sse import SseClient, connected
from tests.surfaces.openai.chat_world import ChatWorld, asking, open_chat_world, upstream
from tests.surfaces.rest_world import RestWorld, open_rest, stdio
from tests.surfaces.wasm.guest_world import TASK, GuestWorld, PlayedGuest
from tests.upstream.memory_link import MemoryNet, definition, record
from tests.upstream.scripted_model import Ask, Reply, ScriptedModel, calls, scripted_model, text
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.scope.caller import Caller
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.servers import ApprovalPolicy
from toolgate.registry.approvals import ApprovalVerdict, ElicitedDecision
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

BODIES: Final = rounds(suite=900, soak=50_000)
GRANTED: Final = {"ok", "pay", "docs://ok"}
ALLOWED: Final = ("ok", "prompt:ok", "resource:docs://ok")
LARGE: Final = 1_000_000
DENIED_REF: Final = {"type": "ref/prompt", "name": "denied"}
EVIL: Final[Mapping[str, Mapping[Path, Any]]] = {
    "tools/call": {
        ("method",): "resources/read",
        ("params",): {"name": "s.denied", "arguments": {}},
        ("params", "name"): "denied",
        ("params", "arguments"): {"amount": LARGE},
        ("params", "arguments", "amount"): LARGE,
        ("params", "arguments", "to", "amount"): LARGE,
        ("params", "uri"): "docs://denied",
        ("params", "requestState"): "denied",
        ("params", "_meta"): {"progressToken": 1},
        ("params", "_meta", "io.modelcontextprotocol/protocolVersion"): "2025-11-25",
    },
    "call_tool": {
        ("params", "name"): "s.denied",
        ("params", "arguments"): {"name": "s.denied"},
        ("params", "arguments", "name"): "s.denied",
        ("params", "arguments", "arguments"): {"amount": LARGE},
        ("params", "arguments", "arguments", "amount"): LARGE,
    },
    "prompts/get": {("params", "name"): "denied", ("params", "arguments", "amount"): LARGE},
    "resources/read": {("params", "uri"): "docs://denied", ("params", "name"): "denied"},
    "completion/complete": {
        ("params", "ref"): DENIED_REF,
        ("params", "ref", "name"): "denied",
        ("params", "ref", "uri"): "docs://denied",
        ("params", "ref", "type"): "ref/resource",
        ("params", "argument"): {"name": "x", "value": "denied"},
        ("params", "argument", "name"): "denied",
    },
    "rest": {
        ("name",): "s.denied",
        ("arguments",): {"amount": LARGE},
        ("arguments", "amount"): LARGE,
        ("arguments", "to", "amount"): LARGE,
    },
    "arguments": {("amount",): LARGE, ("to", "amount"): LARGE, ("to",): {"amount": LARGE}},
    "chat": {
        ("model",): "denied",
        ("toolgate",): {"mcp": {"enabled": True, "server_ids": ["s"]}},
        ("toolgate", "mcp"): {"enabled": True},
        ("metadata",): {"mcp.enabled": "true"},
        ("messages",): [{"role": "user", "content": "denied"}],
    },
}
AMOUNT: Final = {"amount": 1, "to": {"amount": 1}}


@dataclass
class GrantingApprovals:
    """Approves every call, and keeps what it was shown."""

    shown: list[Json] = field(default_factory=list)

    async def request(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
        self.shown.append(json.loads(question.arguments))
        return ApprovalVerdict("granted", new_id)

    async def settle(
        self, question: ApprovalRequest, response: ElicitedDecision, *, new_id: str
    ) -> ApprovalVerdict:
        del response
        return await self.request(question, new_id=new_id)


def spies() -> MemoryNet:
    server = OfferingServer(
        capabilities=FEATURES,
        tools=[definition("ok"), definition("denied")],
        prompts=[b'{"name":"ok"}', b'{"name":"denied"}'],
        resources=[b'{"uri":"docs://ok","name":"ok"}', b'{"uri":"docs://denied","name":"denied"}'],
    )
    bank = OfferingServer(tools=[definition("pay"), definition("denied")])
    return MemoryNet(s=server, bank=bank)


@dataclass
class Endpoints:
    """Every way to a tool, with the same two servers behind."""

    chat: ChatWorld
    rest: RestWorld
    session: LegacyClient
    batches: LegacyClient
    """A session of the one revision that has them."""
    sse: SseClient
    model: ScriptedModel
    approval_service: GrantingApprovals
    chance: random.Random
    start_records: str = "{}"
    """The arguments that the model calls a tool with."""
    statuses: set[int] = field(default_factory=set)

    def message(self, method: str, params: Json, evil: str = "") -> bytes:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return spoiled(body, EVIL[evil or method], self.chance).encode()

    async def stateless(self, url: str, method: str, params: Json, evil: str = "") -> Response:
        sent = self.message(method, {**params, "_meta": META}, evil)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
        if named := params.get("name") or params.get("uri"):
            headers["mcp-name"] = named
        return await self.chat.world.request("POST", url, sent, JSON_HEADERS | headers)

    async def in_session(self, method: str, params: Json) -> Response:
        sent = self.message(method, params)
        return await self.chat.world.request("POST", "/api/mcp", sent, JSON_HEADERS | self.session.headers)

    async def in_batch(self, method: str, params: Json) -> Response:
        sent = b"[%b,%b]" % (self.message(method, params), self.message(method, params))
        return await self.chat.world.request("POST", "/api/mcp", sent, JSON_HEADERS | self.batches.headers)

    async def on_stream(self, method: str, params: Json) -> Response:
        response = await self.sse.post(self.message(method, params))
        if response.status == 202:
            await self.sse.stream.event()
        return response

    async def by_rest(self, name: str) -> None:
        body = spoiled({"name": name, "arguments": AMOUNT}, EVIL["rest"], self.chance)
        response = await self.rest.request("POST", "/api/v1/mcp/call", body.encode())
        self.statuses.add(response.status_code)

    async def by_model(self) -> Response:
        self.start_records = spoiled(AMOUNT, EVIL["arguments"], self.chance)
        body = asking(metadata={"a": "b"}, temperature=0)
        return await self.chat.post(spoiled(body, EVIL["chat"], self.chance).encode())

    async def by_guest(self, name: str) -> None:
        def story(guest: PlayedGuest) -> None:
            descriptor = guest.call("mcp_open", "bank" if name == "pay" else "s")
            arguments = spoiled(AMOUNT, EVIL["arguments"], self.chance)
            guest.hostcall("mcp_call_tool", descriptor, name, arguments)

        await GuestWorld(self.chat.world, self.chat.models, TASK).play(ALL_FUNCTIONS, story)


def ways(to: Endpoints) -> list[Callable[[], Awaitable[Response | None]]]:
    prompt = {"name": "s.ok", "arguments": {"amount": "1"}}
    complete = {"ref": {"type": "ref/prompt", "name": "s.ok"}, "argument": {"name": "a", "value": "b"}}
    found = {"name": "call_tool", "arguments": {"name": "bank.pay", "arguments": AMOUNT}}
    ok, pay = ({"name": name, "arguments": AMOUNT} for name in ("s.ok", "bank.pay"))
    return [
        *(lambda call=call: to.stateless("/api/mcp", "tools/call", call) for call in (ok, pay)),
        *(lambda call=call: to.in_session("tools/call", call) for call in (ok, pay)),
        *(lambda call=call: to.on_stream("tools/call", call) for call in (ok, pay)),
        lambda: to.in_batch("tools/call", ok),
        lambda: to.stateless("/api/mcp/s/bank", "tools/call", {**pay, "name": "pay"}),
        lambda: to.stateless("/api/mcp/find", "tools/call", found, "call_tool"),
        *(
            lambda send=send, method=method, params=params: send(method, params)
            for send in (to.in_session, to.in_batch, to.on_stream)
            for method, params in (
                ("prompts/get", prompt),
                ("resources/read", {"uri": "docs://ok"}),
                ("completion/complete", complete),
            )
        ),
        lambda: to.stateless("/api/mcp", "prompts/get", prompt),
        lambda: to.stateless("/api/mcp", "resources/read", {"uri": "docs://ok"}),
        lambda: to.stateless("/api/mcp", "completion/complete", complete),
        *(lambda name=name: to.by_rest(name) for name in ("s.ok", "bank.pay")),
        *(lambda name=name: to.by_guest(name) for name in ("ok", "pay")),
        to.by_model,
    ]


@asynccontextmanager
async def open_endpoints(seed: int) -> AsyncIterator[Endpoints]:
    def script(request: Ask) -> Reply:
        is_notified = request.messages[-1]["role"] == "tool"
        return text("done") if is_notified else calls(("bank__pay", endpoints.start_records))

    approval = ApprovalPolicy(default="always", in_place=False)
    approval_service = GrantingApprovals()
    servers = (
        record("s", allowed_tools=ALLOWED),
        record("bank", allowed_tools=("pay",), approval_policy=approval),
    )
    job = task(TASK, default_server_ids=["s", "bank"])
    async with (
        scripted_model(script) as model,
        open_chat_world(
            spies(), *servers, upstreams=(upstream(model.url),), tasks=(job,), approvals=approval_service
        ) as chat,
        open_rest(spies(), approvals=approval_service) as rest,
    ):
        await rest.seed(
            server=[
                stdio("s", allowed_tools=list(ALLOWED)),
                stdio("bank", allowed_tools=["pay"], approval_policy={"default": "always"}),
            ]
        )
        await chat.world.gateway.wait_for_view(Caller(LOCAL_ADMIN))
        session = await chat.world.session("/api/mcp")
        batches = await chat.world.session("/api/mcp", protocolVersion="2025-03-26")
        async with connected(chat.world, "/api/mcp") as sse:
            await sse.request("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}})
            endpoints = Endpoints(
                chat, rest, session, batches, sse, model, approval_service, random.Random(seed)
            )
            yield endpoints


def strange(to: Endpoints) -> tuple[int, list[Any]]:
    """How many requests the servers and the model got since the last time, and what no one had granted."""
    found: list[Any] = []
    nets = (to.chat.net, to.rest.net)
    seen = [one for net in nets for server in ("s", "bank") for one in net[server].calls]
    for one in seen:
        for read in readings(one.raw):
            named = {"resources/read": [read.get("uri")], "completion/complete": read.get("ref", {}).values()}
            names = {*named.get(one.method, [read.get("name")])} - {"ref/prompt"}
            found += [(one.method, name) for name in names - GRANTED]
            if read.get("name") == "pay" and read.get("arguments") != to.approval_service.shown[-1]:
                found.append(("pay", read.get("arguments"), to.approval_service.shown[-1]))
    for request in to.model.requests:
        found += [("model", read["model"]) for read in readings(request.raw) if read["model"] != "m"]
    count = len(seen) + len(to.model.requests)
    for net in nets:
        net["s"].calls.clear()
        net["bank"].calls.clear()
    to.model.requests.clear()
    return count, found


async def test_try_1_no_reader_finds_another_name_or_amount_than_was_granted() -> None:
    async with asyncio.timeout(36_000), open_endpoints(seed=17) as to:
        reached, found = 0, list[Any]()
        all_ways = ways(to)
        for number in range(BODIES):
            response = await all_ways[number % len(all_ways)]()
            if response is not None:
                to.statuses.add(response.status)
            count, ungranted = strange(to)
            reached += count
            found += ungranted

        assert found == []
        assert reached > BODIES / 8  # those that say one thing to every reader
        assert max(to.statuses) < 500
