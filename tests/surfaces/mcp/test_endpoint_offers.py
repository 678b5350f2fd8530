"""Prompts, resources and completions at the MCP door: for both eras, in scope only, from their own server."""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.surfaces.mcp.mcp_world import LegacyClient, McpWorld, Response, open_mcp_world
from tests.surfaces.mcp.test_sse import settled
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, record
from toolgate.audit.events import CallStarted
from toolgate.model.servers import RedactionRules, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

FEATURES: dict[str, Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
NO_RESOURCE = b'{"code":-32002,"message":"Resource not found","data":{"uri":"docs://none"}}'


@dataclass
class OfferingServer(MemoryServer):
    """Has something of every kind, and answers with what it was asked for."""

    async def handle(self, method: str, members: Json) -> RpcResponse:
        if method == "tools/call" or method.endswith("/list"):
            return await super().handle(method, members)
        if members.get("uri") == "docs://none":
            return RpcResponse(error=NO_RESOURCE)
        if method == "prompts/get":
            return RpcResponse(result=msgspec.json.encode({"messages": [], "description": members["name"]}))
        if method == "resources/read":
            return RpcResponse(
                result=msgspec.json.encode({"contents": [{"uri": members["uri"], "text": "x"}]})
            )
        return RpcResponse(result=msgspec.json.encode({"completion": {"values": [str(members["ref"])]}}))


def offering(era: Revision, *uris: str) -> OfferingServer:
    return OfferingServer(
        era=era,
        capabilities=FEATURES,
        tools=[definition("act")],
        prompts=[b'{"name":"greet"}'],
        resources=[msgspec.json.encode({"uri": uri, "name": uri}) for uri in uris],
        templates=[b'{"uriTemplate":"docs://{page}","name":"page"}'],
    )


def docs(**fields: Any) -> ServerRecord:
    return record("docs", **({"allowed_tools": ("*", "prompt:*", "resource:*")} | fields))


PLAIN = record("plain", allowed_tools=("*",))


def world(era: Revision = "legacy") -> MemoryNet:
    return MemoryNet(docs=offering(era, "docs://a", "docs://b"), plain=MemoryServer(era="legacy"))


async def request(
    opened: McpWorld, era: Revision, method: str, params: Any = None, url: str = "/api/mcp"
) -> Response:
    if era == "modern":
        return await opened.modern(url, method, params)
    return await (await opened.session(url)).send(method, params)


ERAS = pytest.mark.parametrize(
    ("client", "server"), [(a, b) for a in ("legacy", "modern") for b in ("legacy", "modern")]
)


@pytest.mark.requirement("002-053")
@ERAS
async def test_lists_and_what_is_got_by_them_are_the_same_in_all_four_cells(
    client: Revision, server: Revision
) -> None:
    async with open_mcp_world(world(server), docs(), PLAIN) as opened:
        listed = {}
        for method, member in {
            "prompts/list": "prompts",
            "resources/list": "resources",
            "resources/templates/list": "resourceTemplates",
        }.items():
            result = (await request(opened, client, method)).json["result"]
            listed[method] = [
                one.get("uri") or one.get("uriTemplate") or one["name"] for one in result[member]
            ]
            assert result.get("resultType") == ("complete" if client == "modern" else None)
        prompt = (await request(opened, client, "prompts/get", {"name": "docs.greet"})).json["result"]
        read = (await request(opened, client, "resources/read", {"uri": "docs://a"})).json["result"]
        page = (await request(opened, client, "resources/read", {"uri": "docs://page-7"})).json["result"]
        reference = {"type": "ref/prompt", "name": "docs.greet"}
        argument = {"name": "n_token", "value": "v"}
        completed = await request(
            opened, client, "completion/complete", {"ref": reference, "argument": argument}
        )

        assert listed == {
            "prompts/list": ["docs.greet"],
            "resources/list": ["docs://a", "docs://b"],
            "resources/templates/list": ["docs://{page}"],
        }
        assert prompt["description"] == "greet"
        assert [one["contents"][0]["uri"] for one in (read, page)] == ["docs://a", "docs://page-7"]
        assert ("ttlMs" in read) == (client == "modern")
        assert completed.json["result"]["completion"]["values"] == ["{'type': 'ref/prompt', 'name': 'greet'}"]
        assert [(one.tool, one.outcome) for one in opened.audited] == [
            ("prompt:greet", "ok"),
            ("resource:docs://a", "ok"),
            ("resource:docs://page-7", "ok"),
            ("prompt:greet", "ok"),
        ]
        assert bytes(opened.audited[-1].arguments) == b'{"name":"n_token","value":"***"}'


async def test_sec_1_a_secret_in_a_uri_is_not_in_the_audit() -> None:
    """Neither of one that is read, nor of one that is not there; and never half of one that is cut."""
    uris = [f"docs://ada:canary@host/{'x' * many}?token=canary" for many in (1, 160)]
    uris += [f"none://{'x' * 180}:canary{'x' * 30}@host/", "docs://host/?sick_note=canary"]
    hides = RedactionRules(hide=("*_note",))
    async with open_mcp_world(world(), docs(redaction=hides), PLAIN) as opened:
        for uri in uris:
            await request(opened, "modern", "resources/read", {"uri": uri})
        await asyncio.sleep(0)

        assert [one.outcome for one in opened.audited] == ["ok", "ok", "ok", "ok"]
        assert not [one.tool for one in opened.audited if "canary" in one.tool]
        await request(opened, "modern", "resources/read", {"uri": uris[0]}, "/api/mcp?servers=plain")
        await asyncio.sleep(0)
        assert [(one.tool, one.outcome) for one in opened.audited[4:]] == [
            ("resource:docs://***@host/x?token=***", "denied")
        ]


@pytest.mark.parametrize(("client", "code"), [("legacy", -32002), ("modern", -32602)])
async def test_an_unknown_resource_fails_with_the_error_of_each_revision(client: Revision, code: int) -> None:
    async with open_mcp_world(world(), docs(), PLAIN) as opened:
        of_server = await request(opened, client, "resources/read", {"uri": "docs://none"})
        of_gateway = await request(opened, client, "resources/read", {"uri": "x" * 5_000})

        assert (of_server.code, of_gateway.code) == (code, code)
        assert of_server.json["error"]["message"] == of_gateway.json["error"]["message"]


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_sco_22_prompts_and_resources_of_a_hidden_server_are_unknown(client: Revision) -> None:
    """SCO-2: nothing of them is listed, got, completed or subscribed to."""
    requests = [
        ("prompts/get", {"name": "docs.greet"}),
        ("resources/read", {"uri": "docs://a"}),
        ("resources/read", {"uri": "toolgate://s/docs/docs%3A%2F%2Fa"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "docs.greet"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "docs://{page}"}}),
    ]
    if client == "legacy":
        requests += [
            ("resources/subscribe", {"uri": "docs://a"}),
            ("resources/unsubscribe", {"uri": "docs://a"}),
        ]
    async with (
        settled(world(), docs(), PLAIN) as opened,
        settled(MemoryNet(), PLAIN) as without,
    ):
        url = "/api/mcp?servers=plain"
        for method, params in requests:
            hidden = await request(opened, client, method, params, url)
            absent = await request(without, client, method, params, url)
            assert (hidden.status, hidden.body) == (absent.status, absent.body), method
            assert hidden.code in {-32602, -32002}
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            assert b"docs" not in (await request(opened, client, method, None, url)).body
        assert opened.net["docs"].calls == []
        assert [one.outcome for one in opened.audited] == ["denied"] * len(requests)


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_what_servers_can_do_is_announced_where_the_caller_can_have_it(client: Revision) -> None:
    async def announced(opened: McpWorld, url: str = "/api/mcp") -> Any:
        if client == "modern":
            return (await opened.modern(url, "server/discover")).json["result"]["capabilities"]
        return (await opened.session(url)).initialized["capabilities"]

    async with settled(world(), docs(), PLAIN) as opened:
        assert await announced(opened) == FEATURES
        assert (await announced(opened, "/api/mcp?servers=plain")).keys() == {"tools"}
    async with settled(world(), docs(allowed_tools=("*",)), PLAIN) as opened:
        assert (await announced(opened)).keys() == FEATURES.keys() - {"prompts", "resources"}
    async with open_mcp_world(world(), docs(), PLAIN) as opened:
        assert await announced(opened) == FEATURES  # no one knows yet: rather too much than too little


async def test_what_is_announced_before_servers_are_known_is_not_kept() -> None:
    async with open_mcp_world(world(), docs(), PLAIN) as opened:
        early = (await opened.modern("/api/mcp", "server/discover")).json["result"]
        await opened.modern("/api/mcp", "tools/list")
        late = (await opened.modern("/api/mcp", "server/discover")).json["result"]

        assert (early["ttlMs"], late["ttlMs"]) == (0, 300_000)


# Resources that clients want to hear of


async def subscribed(opened: McpWorld, uri: str, *, capabilities: Any = None) -> LegacyClient:
    session = await opened.session("/api/mcp", capabilities=capabilities or {})
    assert (await session.send("resources/subscribe", {"uri": uri})).json["result"] == {}
    return session


def update(opened: McpWorld, uri: str) -> None:
    opened.net["docs"].notify("notifications/resources/updated", msgspec.json.encode({"uri": uri}))


@pytest.mark.parametrize("known_as", ["docs://a", "toolgate://s/docs/docs%3A%2F%2Fa"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_an_update_reaches_each_subscriber_under_the_uri_it_subscribed_to(
    client: Revision, known_as: str
) -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        if client == "legacy":
            session = await subscribed(opened, known_as)
            other = (await subscribed(opened, "docs://b")).stream()
            stream = session.stream()
        else:
            wanted = {"notifications": {"resourceSubscriptions": [known_as, "docs://a/no?such"]}}
            stream = opened.open_modern("/api/mcp", "subscriptions/listen", wanted)
            acknowledged = (await stream.event())["params"]["notifications"]
            assert acknowledged["resourceSubscriptions"][0] == known_as
            wanted = {"notifications": {"resourceSubscriptions": ["docs://b"]}}
            other = opened.open_modern("/api/mcp", "subscriptions/listen", wanted)
            await other.event()
        assert (await stream.status, await other.status) == (200, 200)
        update(opened, "docs://a")
        notified_before = await stream.event()
        update(opened, "docs://b")
        notified_other = await other.event()

        expected = ["a", "b"] if client == "legacy" else ["a", "a/no?such", "b"]
        assert sorted((one.tool, one.outcome) for one in opened.audited) == [
            (f"resource:docs://{name}", "ok") for name in expected
        ]
        assert (notified_before["method"], notified_before["params"]["uri"]) == (
            "notifications/resources/updated",
            known_as,
        )
        assert notified_other["params"]["uri"] == "docs://b"
        assert {"docs://a", "docs://b"} <= opened.net["docs"].watched[-1]
        for one in (stream, other):
            await one.leave()
        if client == "modern":
            assert opened.gateway.subscriptions.watches.slots.taken == 0


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_a_subscription_is_acknowledged_once_the_server_has_it(
    client: Revision,
) -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        opened.net["docs"].notified = notified_before = asyncio.get_running_loop().create_future()
        if client == "legacy":
            response = (await opened.session("/api/mcp")).begin("resources/subscribe", {"uri": "docs://a"})
        else:
            wanted = {"notifications": {"resourceSubscriptions": ["docs://a"]}}
            response = opened.open_modern("/api/mcp", "subscriptions/listen", wanted)
        while not opened.net["docs"].watched:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

        assert not response.status.done()
        opened.gateway.audit.flush()
        (begun,) = [event for _, event in opened.sink.events]
        assert isinstance(begun, CallStarted)  # and the end is audited when the server knows
        notified_before.set_result(None)
        assert await response.status == 200
        (ended,) = opened.audited
        assert (begun.tool, begun.server_id) == (ended.tool, ended.server_id) == ("resource:docs://a", "docs")
        assert (ended.start, ended.door, ended.principal, ended.layer) == (1, "mcp", "local", begun.layer)
        await response.leave()


async def test_updates_wait_for_a_stream_and_end_with_the_subscription() -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        session = await subscribed(opened, "docs://a")
        await session.send("resources/subscribe", {"uri": "docs://b"})
        update(opened, "docs://a")
        stream = session.stream()
        notified_before = await stream.event()
        assert (await session.send("resources/unsubscribe", {"uri": "docs://a"})).json["result"] == {}
        update(opened, "docs://a")
        update(opened, "docs://b")

        assert (notified_before["params"]["uri"], (await stream.event())["params"]["uri"]) == (
            "docs://a",
            "docs://b",
        )
        await stream.leave()
        await session.delete()
        assert opened.gateway.subscriptions.watches.slots.taken == 0
        assert [(one.tool, one.outcome) for one in opened.audited] == [
            (f"resource:docs://{name}", "ok") for name in "aba"
        ]


async def test_sco_21_updates_of_a_revoked_resource_are_not_sent() -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        session = await subscribed(opened, "docs://a")
        await session.send("resources/subscribe", {"uri": "docs://b"})
        stream = session.stream()
        assert await stream.status == 200
        opened.apply(servers={"docs": docs(allowed_tools=("*", "resource:docs://b")), "plain": PLAIN})
        update(opened, "docs://a")
        update(opened, "docs://b")
        notified_before = [await stream.event() for _ in range(3)]

        assert [one["method"].removeprefix("notifications/") for one in notified_before[:2]] == [
            "prompts/list_changed",
            "resources/list_changed",
        ]
        assert notified_before[2]["params"] == {"uri": "docs://b"}
        assert (await session.send("resources/unsubscribe", {"uri": "docs://a"})).json["result"] == {}
        assert (await session.send("resources/unsubscribe", {"uri": "docs://a"})).code == -32002
        assert [one.outcome for one in opened.audited if one.tool == "resource:docs://a"] == [
            "ok",
            "ok",
            "denied",
        ]
        await stream.leave()


async def test_subscribing_needs_a_uri_and_completing_an_argument_that_is_an_object() -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        session = await opened.session("/api/mcp")

        assert (await session.send("resources/subscribe", {})).code == -32602
        assert (await session.send("resources/unsubscribe", {"uri": 1})).code == -32602
        asked = {"ref": {"type": "ref/prompt", "name": "docs.greet"}, "argument": "text"}
        assert (await session.send("completion/complete", asked)).code == -32602


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"notifications": []}, id="a list"),
        pytest.param({"notifications": {"toolsListChanged": "yes"}}, id="a word"),
        pytest.param({"notifications": {"resourceSubscriptions": [1]}}, id="a number"),
        pytest.param({"notifications": {"resourceSubscriptions": ["docs://a"] * 1_001}}, id="too many"),
    ],
)
async def test_an_invalid_subscription_is_rejected(params: Any) -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        assert (await opened.modern("/api/mcp", "subscriptions/listen", params)).code == -32602
        assert opened.gateway.subscriptions.watches.slots.taken == 0


async def test_who_listens_hears_nothing_of_resources_it_cannot_see() -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        wanted = {"notifications": {"resourceSubscriptions": ["docs://a"]}}
        stream = opened.open_modern("/api/mcp?servers=plain", "subscriptions/listen", wanted)

        assert (await stream.event())["params"]["notifications"] == {}
        assert opened.gateway.subscriptions.watches.slots.taken == 0
        assert [(one.tool, one.outcome, one.code) for one in opened.audited] == [
            ("resource:docs://a", "denied", "unknown_resource")
        ]
        await stream.leave()


async def test_of_many_resources_that_a_client_cannot_see_each_is_put_on_record_in_a_turn_of_its_own() -> (
    None
):
    async with settled(world(), docs(), PLAIN) as opened:
        wanted = {"notifications": {"resourceSubscriptions": [f"docs://{n}" for n in range(300)]}}
        stream = opened.open_modern("/api/mcp?servers=plain", "subscriptions/listen", wanted)
        on_record = [0]
        async with asyncio.timeout(30):
            while on_record[-1] < 300:
                await asyncio.sleep(0)
                on_record.append(opened.gateway.audit.last_sequence)

        assert max(after - before for before, after in pairwise(on_record)) == 1
        assert (await stream.event())["params"]["notifications"] == {}
        await stream.leave()


async def test_others_have_their_turn_while_many_subscriptions_are_put_on_record() -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        long = "%25%2541" * 180  # takes long to search for secrets
        wanted = {"notifications": {"resourceSubscriptions": [f"docs://{n}{long}" for n in range(200)]}}
        stream = opened.open_modern("/api/mcp", "subscriptions/listen", wanted)
        on_record = [0]
        async with asyncio.timeout(60):
            while on_record[-1] < 200:
                await asyncio.sleep(0)
                on_record.append(opened.gateway.audit.last_sequence)

        begun = [min(one, 200) for one in on_record]
        assert max(after - before for before, after in pairwise(begun)) < 100
        await stream.leave()


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_each_changed_list_has_its_own_notification(client: Revision) -> None:
    async with settled(world(), docs(), PLAIN) as opened:
        if client == "legacy":
            stream = (await opened.session("/api/mcp")).stream()
        else:
            wanted = {"promptsListChanged": True, "resourcesListChanged": True}
            stream = opened.open_modern("/api/mcp", "subscriptions/listen", {"notifications": wanted})
            assert (await stream.event())["params"]["notifications"] == wanted
        assert await stream.status == 200
        server = opened.net["docs"]
        server.prompts = [b'{"name":"part"}']
        server.notify("notifications/prompts/list_changed")
        first = await stream.event()
        server.templates = ()
        server.tools = [definition("other")]
        server.notify("notifications/tools/list_changed")
        server.notify("notifications/resources/list_changed")
        received = {first["method"]}
        while "notifications/resources/list_changed" not in received:
            received.add((await stream.event())["method"])

        expected = {"notifications/prompts/list_changed", "notifications/resources/list_changed"}
        assert received - {"notifications/tools/list_changed"} == expected
        assert ("notifications/tools/list_changed" in received) <= (client == "legacy")
        await stream.leave()


async def test_sco_9_others_have_their_turn_while_many_resources_are_looked_for() -> None:
    """A server may make it as hard as templates are allowed to be."""
    net = world()
    hard = ["a:" + f"{{x{number}}}a" + "{x}a" * 15 + "a" * 380 for number in range(150)]
    net["docs"].templates = [msgspec.json.encode({"uriTemplate": one, "name": "x"}) for one in hard]
    uris = ["a:" + "a" * (2_000 - number) for number in range(20)]
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with open_mcp_world(net, docs()) as opened:
        await opened.modern("/api/mcp", "resources/list")
        other = asyncio.ensure_future(take_turns())
        stream = opened.open_modern(
            "/api/mcp", "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
        )
        acknowledged = await stream.event()
        other.cancel()

        assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": uris}
        assert turns > len(uris) / 4
        assert [notified_before for notified_before in net["docs"].watched if notified_before] == [
            frozenset(uris)
        ]
        await stream.leave()
