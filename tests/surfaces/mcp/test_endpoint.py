"""The MCP door in memory: both eras see one scope, and nothing outside of it."""

import json

import pytest

from tests.surfaces.mcp.mcp_world import (
    JSON_HEADERS,
    META,
    MODERN,
    LegacyClient,
    McpWorld,
    Stream,
    key,
    open_mcp_world,
    task,
)
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.policy.scope import ScopeLimits
from toolgate.surfaces.http.messages import HttpRequest

pytestmark = pytest.mark.anyio

ADA, BOB = "tg_ada" + "a" * 30, "tg_bob" + "b" * 30


def world() -> MemoryNet:
    git = MemoryServer(era="modern", tools=[definition("status"), definition("push"), definition("log")])
    notes = MemoryServer(era="legacy", tools=[definition("add"), definition("status")])
    return MemoryNet(git=git, notes=notes)


GIT = record("git", allowed_tools=("*",))
NOTES = record("notes", allowed_tools=("*",))


async def modern_tools(served: McpWorld, url: str) -> list[str]:
    response = await served.modern(url, "tools/list")
    return [tool["name"] for tool in response.json["result"]["tools"]]


@pytest.mark.requirement("004-06", "004-09", "004-10")
async def test_all_revisions_see_the_same_scope_on_every_path() -> None:
    review = task("review", default_server_ids=["git"], tool_denylist=["push"])
    async with open_mcp_world(world(), GIT, NOTES, tasks=(review,)) as served:
        expected = {
            "/api/mcp": ["git.log", "git.push", "git.status", "notes.add", "notes.status"],
            "/mcp": ["git.log", "git.push", "git.status", "notes.add", "notes.status"],
            "/api/mcp?servers=notes": ["notes.add", "notes.status"],
            "/api/mcp?tools=git.log,notes.add": ["git.log", "notes.add"],
            "/api/mcp?tools=": [],
            "/api/mcp?tools=no.such": [],
            "/api/mcp/s/git": ["log", "push", "status"],
            "/api/mcp/s/git?tools=git.log": ["log"],
            "/api/mcp/t/review": ["git.log", "git.status"],
            "/api/mcp?task=review&tools=status": ["git.status"],
        }

        for url, tools in expected.items():
            assert await modern_tools(served, url) == tools, url
            assert await (await served.session(url)).tools() == tools, url


async def test_a_call_reaches_the_tool_under_its_own_name_with_its_bytes() -> None:
    async with open_mcp_world(world(), GIT, NOTES) as served:
        modern = await served.modern("/api/mcp", "tools/call", {"name": "git.log", "arguments": {"n": 1}})
        legacy = await (await served.session("/api/mcp")).call("notes.add", text="é")

        assert json.loads(modern.json["result"]["content"][0]["text"]) == {"n": 1}
        assert modern.json["result"]["resultType"] == "complete"
        assert json.loads(legacy.json["result"]["content"][0]["text"]) == {"text": "é"}
        assert "resultType" not in legacy.json["result"]
        assert [call.params["name"] for call in served.net["git"].calls] == ["log"]
        assert [call.params["name"] for call in served.net["notes"].calls] == ["add"]


@pytest.mark.requirement("004-25")
async def test_sco_1_a_call_outside_the_scope_is_byte_for_byte_like_a_tool_that_does_not_exist() -> None:
    review = task("review", default_server_ids=["git"], tool_denylist=["push"])
    async with open_mcp_world(world(), GIT, NOTES, tasks=(review,)) as served:
        session = await served.session("/api/mcp/t/review")
        hidden, absent = [], []
        for name in ("git.push", "notes.add"):
            hidden.append(await session.call(name))
            hidden.append(await served.modern("/api/mcp/t/review", "tools/call", {"name": name}))
        served.net["git"].tools = [definition("status")]
        served.apply(servers={"git": GIT})
        for name in ("git.push", "notes.add"):
            absent.append(await session.call(name))
            absent.append(await served.modern("/api/mcp/t/review", "tools/call", {"name": name}))

        assert [(one.status, one.body) for one in hidden] == [(one.status, one.body) for one in absent]
        assert {one.code for one in hidden} == {-32602}
        assert served.net["git"].calls == served.net["notes"].calls == []
        assert {one.outcome for one in served.audited} == {"denied"}


@pytest.mark.parametrize(
    "name", ["GIT.log", "git.Log", "git.log ", "git.log\n", "git.log\u200b", " git.log", "log"]
)
async def test_sco_5_a_name_that_is_almost_right_is_unknown(name: str) -> None:
    async with open_mcp_world(world(), GIT) as served:
        response = await (await served.session("/api/mcp")).call(name)

        assert response.code == -32602
        assert served.net["git"].calls == []


@pytest.mark.parametrize("tools", ["*", "**", "[a-z]*", "{a,b}", ".*", "!x"])
async def test_sco_8_no_pattern_reaches_past_the_task(tools: str) -> None:
    review = task("review", default_server_ids=["git"], tool_allowlist=["status", "log"])
    async with open_mcp_world(world(), GIT, NOTES, tasks=(review,)) as served:
        response = await served.modern(f"/api/mcp/t/review?tools={tools}", "tools/list")

        found = {tool["name"] for tool in response.json.get("result", {"tools": []})["tools"]}
        assert found <= {"git.status", "git.log"}
        assert response.status in (200, 400)


@pytest.mark.requirement("004-25")
async def test_sco_12_a_session_keeps_the_scope_it_was_opened_with() -> None:
    async with open_mcp_world(world(), GIT, NOTES) as served:
        session = await served.session("/api/mcp?tools=git.log")
        session.url = "/api/mcp"

        assert await session.tools() == ["git.log"]
        assert (await session.call("git.status")).code == -32602


@pytest.mark.requirement("004-07")
async def test_initialize_may_carry_tools_which_narrow_the_url() -> None:
    async with open_mcp_world(world(), GIT, NOTES) as served:
        alone = await served.session("/api/mcp", tools=["git.log", "notes.add"])
        both = await served.session("/api/mcp?tools=git.log,git.push", tools=["git.log", "notes.add"])

        assert await alone.tools() == ["git.log", "notes.add"]
        assert await both.tools() == ["git.log"]


async def test_a_server_outside_the_task_is_refused_whole_and_on_record() -> None:
    review = task("review", default_server_ids=["git"])
    async with open_mcp_world(world(), GIT, NOTES, tasks=(review,)) as served:
        url = "/api/mcp/t/review?servers=git,notes"
        listed = await served.modern(url, "tools/list")
        called = await served.modern(url, "tools/call", {"name": "notes.add"})
        denied = (403, "mcp_policy_denied")

        assert [(one.status, one.json["error"]["data"]["code"]) for one in (listed, called)] == [denied] * 2
        assert [(one.door, one.outcome, one.code) for one in served.audited] == [
            ("mcp", "denied", "mcp_policy_denied")
        ] * 2


@pytest.mark.requirement("000-42")
async def test_a_session_of_a_task_that_requires_servers_is_refused_without_one() -> None:
    config = {"default_server_ids": ["ghost"], "require_servers": True}
    async with open_mcp_world(world(), GIT, tasks=(task("review", **config),)) as served:
        server_info = {"protocolVersion": "2025-11-25", "capabilities": {}}
        opened = await LegacyClient(served, "/api/mcp/t/review", {}).send("initialize", server_info)
        listed = await served.modern("/api/mcp/t/review", "tools/list")

    why = "task `review` requires at least one MCP server, and no server is left: `ghost` (unknown_server)"
    assert [(one.status, one.json["error"]["message"]) for one in (opened, listed)] == [(403, why)] * 2


async def test_try_12_a_list_that_is_refused_for_its_size_says_so_in_a_json_rpc_error() -> None:
    """No 401 or 403, which clients take for a credential that is missing; and the greeting says it, too."""
    limits = ScopeLimits(max_tools=3, on_too_many="refuse")
    message = (
        "the scope has 5 tools, 2 more than `max_tools` 3: narrow the scope with `?tools=`, `?servers=`, "
        "a task or a profile, or search it with `?mode=find`"
    )
    async with open_mcp_world(world(), GIT, NOTES, limits=limits) as served:
        responses = [await served.modern("/api/mcp", method) for method in ("tools/list", "server/discover")]
        session = await served.session("/api/mcp")
        listed = await session.send("tools/list")
        called = await session.call("git.log")
        prompts = await session.send("prompts/list")

        for refused in (responses[0], listed):
            assert (refused.status, refused.json["error"]["message"]) == (200, message)
            assert refused.json["error"]["data"]["code"] == "too_many_tools"
        assert responses[1].json["result"]["instructions"] == message
        assert "isError" not in called.json["result"]
        assert prompts.json["result"]["prompts"] == []
        assert await modern_tools(served, "/api/mcp?servers=notes") == ["notes.add", "notes.status"]


async def test_an_unknown_task_and_one_of_another_key_answer_alike() -> None:
    tasks = (task("mine", default_server_ids=["git"]), task("theirs", default_server_ids=["git"]))
    ada = key("ada", ADA, ceiling={"tasks": ("mine",)})
    async with open_mcp_world(world(), GIT, tasks=tasks, keys=(ada,)) as served:
        theirs = await served.modern("/api/mcp/t/theirs", "tools/list", key=ADA)
        absent = await served.modern("/api/mcp/t/absent", "tools/list", key=ADA)

        assert theirs.body.replace(b"theirs", b"absent") == absent.body
        assert theirs.status == absent.status == 404
        assert (await served.modern("/api/mcp/t/mine", "tools/list", key=ADA)).status == 200


async def test_a_key_sees_no_more_than_its_ceiling() -> None:
    ada = key("ada", ADA, ceiling={"servers": ("git",), "deny": ("push",)})
    async with open_mcp_world(world(), GIT, NOTES, keys=(ada,)) as served:
        response = await served.modern("/api/mcp", "tools/list", key=ADA)

        assert [tool["name"] for tool in response.json["result"]["tools"]] == ["git.log", "git.status"]


async def test_sco_13_and_15_a_session_is_of_its_principal_only() -> None:
    async with open_mcp_world(world(), GIT, keys=(key("ada", ADA), key("bob", BOB))) as served:
        ada = await served.session("/api/mcp", key=ADA)
        stream = ada.stream()
        assert await stream.status == 200
        bob = await served.session("/api/mcp", key=BOB)
        bob.headers["mcp-session-id"] = ada.headers["mcp-session-id"]

        responses = [await bob.send("tools/list"), await bob.delete()]
        foreign = bob.stream()
        await foreign.task

        assert [one.status for one in responses] == [404, 404]
        assert await foreign.status == 404
        denied = ("key:bob", "denied", "unknown_session")
        assert [(one.principal, one.outcome, one.code) for one in served.audited] == [denied] * 3
        assert await ada.tools() == ["git.log", "git.push", "git.status"]
        served.net["git"].announce_tools(definition("status"))
        assert (await stream.event())["method"] == "notifications/tools/list_changed"
        await stream.leave()


async def test_adm_7_a_wrong_key_is_401_in_both_eras() -> None:
    async with open_mcp_world(world(), GIT) as served:
        modern = await served.modern("/api/mcp", "tools/list", key="wrong")
        legacy = await served.post("/api/mcp", b"{}", authorization="Bearer wrong")

        assert [modern.status, legacy.status] == [401, 401]
        assert modern.headers["www-authenticate"] == 'Bearer realm="toolgate", error="invalid_token"'


async def test_a_revoked_key_ends_its_sessions_with_the_next_request() -> None:
    async with open_mcp_world(world(), GIT, keys=(key("ada", ADA),)) as served:
        session = await served.session("/api/mcp", key=ADA)
        served.apply(keys={})

        assert (await session.send("tools/list")).status == 401


@pytest.mark.requirement("002-077")
async def test_sco_21_a_revoked_tool_is_not_callable_on_an_open_session() -> None:
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp")
        assert (await session.call("git.push")).status == 200
        served.apply(servers={"git": record("git", allowed_tools=("log",))})

        assert await session.tools() == ["git.log"]
        assert (await session.call("git.push")).code == -32602


async def test_the_list_comes_in_pages_in_a_fixed_order() -> None:
    async with open_mcp_world(world(), GIT, NOTES, page_size=2) as served:
        names: list[list[str]] = []
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            result = (await served.modern("/api/mcp", "tools/list", params)).json["result"]
            names.append([tool["name"] for tool in result["tools"]])
            if (cursor := result.get("nextCursor")) is None:
                break

        assert names == [["git.log", "git.push"], ["git.status", "notes.add"], ["notes.status"]]
        assert (await served.modern("/api/mcp", "tools/list", {"cursor": "!"})).code == -32602


async def test_sco_24_no_page_shows_what_was_denied_between_pages() -> None:
    async with open_mcp_world(world(), GIT, NOTES, page_size=2) as served:
        first = (await served.modern("/api/mcp", "tools/list")).json["result"]
        served.apply(servers={"git": GIT, "notes": record("notes", allowed_tools=("status",))})
        second = (await served.modern("/api/mcp", "tools/list", {"cursor": first["nextCursor"]})).json[
            "result"
        ]

        assert [tool["name"] for tool in second["tools"]] == ["git.status", "notes.status"]


async def test_sco_23_a_modern_list_is_private_and_says_how_long_it_lasts() -> None:
    async with open_mcp_world(world(), GIT) as served:
        result = (await served.modern("/api/mcp", "tools/list")).json["result"]

        assert (result["cacheScope"], result["resultType"]) == ("private", "complete")
        assert result["ttlMs"] > 0
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toolgate"


async def test_discover_and_initialize_say_who_answers_and_in_which_versions() -> None:
    async with open_mcp_world(world(), GIT) as served:
        await modern_tools(served, "/api/mcp")  # from here on nothing is still to be listed
        found = (await served.modern("/api/mcp", "server/discover")).json["result"]
        session = await served.session("/api/mcp")
        newer = await served.post(
            "/api/mcp",
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2099-01-01"}},
        )

        assert found["supportedVersions"] == [MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]
        assert (
            found["capabilities"] == session.initialized["capabilities"] == {"tools": {"listChanged": True}}
        )
        assert session.initialized["serverInfo"]["name"] == "toolgate"
        assert newer.json["result"]["protocolVersion"] == "2025-11-25"


async def test_the_handshake_is_no_method_of_the_stateless_era() -> None:
    async with open_mcp_world(world(), GIT) as served:
        response = await served.modern("/api/mcp", "initialize", {"protocolVersion": MODERN})

        assert (response.status, response.code) == (404, -32601)
        assert "mcp-session-id" not in response.headers


async def test_an_empty_scope_says_so() -> None:
    async with open_mcp_world(world(), record("git")) as served:
        await served.modern("/api/mcp", "tools/list")  # from here on nothing is still to be listed
        session = await served.session("/api/mcp")

        listed = (await session.send("tools/list")).json["result"]
        assert listed["tools"] == []
        assert listed["_meta"]["toolgate/warnings"] == [session.initialized["instructions"]]
        assert b"toolgate_empty_scopes_total 1.0" in served.gateway.metrics.render()


async def test_fuz_10_ping_and_unknown_methods_and_notifications() -> None:
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp")

        assert (await session.send("ping")).json["result"] == {}
        legacy, modern = await session.send("no/such"), await served.modern("/api/mcp", "no/such")
        assert [(legacy.status, legacy.code), (modern.status, modern.code)] == [(200, -32601), (404, -32601)]
        assert (await session.notify("notifications/no_such")).status == 202
        assert (await session.notify("notifications/initialized")).status == 202
        posted = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": META}}
        assert (await served.post("/api/mcp", posted, mcp_protocol_version=MODERN)).status == 202


MODERN_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "git.log", "_meta": META},
}
GOOD = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "git.log"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        pytest.param({"mcp_method": "tools/list"}, -32020, id="fuz-15 another method"),
        pytest.param({"mcp_name": "git.push"}, -32020, id="fuz-15 another name"),
        pytest.param({"mcp_method": None}, -32020, id="fuz-15 no method"),
        pytest.param({"mcp_name": None}, -32020, id="fuz-15 no name"),
        pytest.param({"mcp_protocol_version": None}, -32020, id="fuz-15 no version"),
        pytest.param({"mcp_protocol_version": "2025-11-25"}, -32020, id="fuz-16 another version"),
        pytest.param({"mcp_name": "=?base64?!?="}, -32020, id="a broken encoding"),
        pytest.param({"mcp_name": "=?base64?Z2l0LmxvZw==?="}, None, id="an encoded name"),
        pytest.param({"mcp_name": " git.log\t"}, None, id="white space around a value"),
    ],
)
async def test_headers_and_body_of_a_modern_request_agree(
    headers: dict[str, str | None], code: int | None
) -> None:
    async with open_mcp_world(world(), GIT) as served:
        sent = {name: value for name, value in (GOOD | headers).items() if value is not None}
        # Once plain, once after the same envelope was seen to be good.
        for _ in range(2):
            response = await served.post("/api/mcp", MODERN_CALL, **sent)

            assert response.json.get("error", {}).get("code") == code
            assert response.status == (200 if code is None else 400)
            await served.post("/api/mcp", MODERN_CALL, **GOOD)


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        pytest.param({}, -32602, id="no envelope"),
        pytest.param({"io.modelcontextprotocol/protocolVersion": MODERN}, -32602, id="no capabilities"),
        pytest.param(
            {**META, "io.modelcontextprotocol/protocolVersion": 7}, -32602, id="version is a number"
        ),
        pytest.param(
            {**META, "io.modelcontextprotocol/clientCapabilities": []}, -32602, id="capabilities are a list"
        ),
    ],
)
async def test_a_modern_request_carries_its_envelope(meta: dict[str, object], code: int) -> None:
    async with open_mcp_world(world(), GIT) as served:
        message = MODERN_CALL | {"params": {"name": "git.log", "_meta": meta}}
        response = await served.post("/api/mcp", message, **GOOD)

        assert (response.status, response.code) == (400, code)
        assert served.net["git"].calls == []


async def test_fuz_16_an_unknown_version_gets_the_supported_list() -> None:
    async with open_mcp_world(world(), GIT) as served:
        meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        message = MODERN_CALL | {"params": {"name": "git.log", "_meta": meta}}
        response = await served.post("/api/mcp", message, **GOOD | {"mcp_protocol_version": "2099-01-01"})

        assert (response.status, response.code) == (400, -32022)
        assert response.json["error"]["data"]["requested"] == "2099-01-01"
        assert MODERN in response.json["error"]["data"]["supported"]


async def test_a_stateless_body_is_stateless_even_with_a_session_id() -> None:
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp?tools=")
        response = await served.post(
            "/api/mcp", MODERN_CALL, **GOOD, mcp_session_id=session.headers["mcp-session-id"]
        )

        assert response.json["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"content-type": "text/plain"}, 415, id="fuz-11 text"),
        pytest.param({"content-type": "application/x-www-form-urlencoded"}, 415, id="fuz-11 form"),
        pytest.param({"content-type": ""}, 415, id="fuz-11 none"),
        pytest.param({"content-type": "application/jsonx"}, 415, id="fuz-11 almost"),
        pytest.param({"content-type": "application/json; charset=utf-8"}, 400, id="with a parameter"),
        pytest.param({"content-encoding": "gzip"}, 415, id="fuz-12 encoded"),
        pytest.param({"host": "evil.example"}, 403, id="sco-18 host"),
        pytest.param({"origin": "http://evil.example"}, 403, id="sco-18 origin"),
        pytest.param({"origin": "null"}, 403, id="sco-18 null origin"),
        pytest.param({"origin": "http://127.0.0.1.evil.example"}, 403, id="sco-18 origin that begins well"),
        pytest.param({"origin": "http://localhost:3000"}, 400, id="own origin"),
        pytest.param({"x-forwarded-host": "evil.example", "x-user": "admin"}, 400, id="sco-19 ignored"),
    ],
)
async def test_what_does_not_belong_here_is_turned_away(headers: dict[str, str], status: int) -> None:
    async with open_mcp_world(world(), GIT) as served:
        response = await served.request("POST", "/api/mcp", b"{}", JSON_HEADERS | headers)

        assert response.status == status


@pytest.mark.parametrize(
    ("method", "url", "status", "allowed"),
    [
        ("PUT", "/api/mcp", 405, "POST, GET, DELETE"),
        ("OPTIONS", "/api/mcp", 405, "POST, GET, DELETE"),
        ("GET", "/api/mcp", 405, "POST, DELETE"),
        ("GET", "/api/mcp/no/such", 404, None),
        ("DELETE", "/api/mcp", 400, None),
    ],
)
async def test_other_methods_say_what_is_served(
    method: str, url: str, status: int, allowed: str | None
) -> None:
    async with open_mcp_world(world(), GIT) as served:
        response = await served.request(method, url, b"", JSON_HEADERS | {"accept": "*/*"})

        assert (response.status, response.headers.get("allow")) == (status, allowed)
        assert response.json["error"]["data"]["hint"]


async def test_a_duplicate_routing_header_is_rejected() -> None:
    async with open_mcp_world(world(), GIT) as served:
        headers = {name.encode(): value.encode() for name, value in JSON_HEADERS.items()}
        request = HttpRequest("POST", "/api/mcp", b"", headers=headers, body=b"{}")
        request.repeated = frozenset({b"mcp-method"})
        stream = Stream()
        await served.guard(request, stream)

        assert (await stream.status, json.loads(stream.chunks.get_nowait())["error"]["code"]) == (400, -32020)


async def test_legacy_requests_need_a_session_in_one_of_its_versions() -> None:
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp")
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        missing = await served.post("/api/mcp", listing)
        session.headers["mcp-protocol-version"] = "1999-01-01"
        other = await session.send("tools/list")

        assert (missing.status, other.status) == (400, 400)


async def test_a_deleted_session_is_gone() -> None:
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp")

        assert (await session.delete()).status == 200
        assert (await session.send("tools/list")).status == 404
