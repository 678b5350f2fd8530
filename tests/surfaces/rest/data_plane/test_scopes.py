"""What a caller sees over REST, and why; an agent learns of nothing that it may not call."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.surfaces.rest_world import BASE_URL, RestWorld, error_of, http, open_rest, secret_of, stdio, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.catalog.naming import make_alias
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.revisions import RecordWrite
from toolgate.policy.scope import ScopeLimits

pytestmark = pytest.mark.anyio

SEEN = "/api/v1/mcp/servers"
TOOLS = "/api/v1/mcp/tools"
EXPLAIN = "/api/v1/mcp/explain"
BOUND = "tg_bound" * 6
NARROW = "tg_narrow" * 6


def open_world() -> MemoryNet:
    git = MemoryServer(tools=[definition("log", description="What happened."), definition("push")])
    return MemoryNet(git=git, notes=MemoryServer(tools=[definition("add")]))


def key(key_id: str, secret: str, **fields: Any) -> dict[str, Any]:
    return {"key_id": key_id, "role": "agent", "sha256": hash_key(secret), **fields}


async def furnish(world: RestWorld) -> None:
    await world.seed(
        server=[stdio("git", display_name="Git", tags=["code"]), stdio("notes"), http("off")],
        task=[
            task("review", default_server_ids=["git"], tool_denylist=["push"]),
            task("write", default_server_ids=["notes"]),
        ],
        profile=[{"profile_id": "logs", "allow": ["log"]}],
        key=[
            key("bound", BOUND, ceiling={"tasks": ["review", "unwritten"]}, default_task="review"),
            key("narrow", NARROW, ceiling={"servers": ["notes"]}),
        ],
    )


def names(response: Any) -> list[str]:
    return [tool["name"] for tool in response["tools"]]


async def test_the_tools_of_a_url_are_those_of_the_door_with_what_they_cost_and_why() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(f"{TOOLS}?task=review")
        tokens = response["tools"][0].pop("tokens")

        assert 0 < tokens == response["tokens"] < response["registered_tokens"]
        assert response | {"tokens": 0, "registered_tokens": 0} == {
            "revision": 2,
            "tools": [
                {
                    "name": "git.log",
                    "server_id": "git",
                    "tool": "log",
                    "description": "What happened.",
                    "rule": "allowed_tools `*`",
                }
            ],
            "tokens": 0,
            "registered_tools": 3,
            "registered_tokens": 0,
            "warnings": [],
            "url": f"{BASE_URL}/api/mcp/t/review",
            "mode": "list",
        }


@pytest.mark.parametrize(
    ("query", "expected", "url"),
    [
        ("", ["git.log", "git.push", "notes.add"], "/api/mcp"),
        ("?servers=git", ["git.log", "git.push"], "/api/mcp?servers=git"),
        (
            "?servers=notes,git&tools=log,notes.*",
            ["git.log", "notes.add"],
            "/api/mcp?servers=notes,git&tools=log,notes.*",
        ),
        ("?tools=git%2Fpush", ["git.push"], "/api/mcp?tools=git/push"),
        ("?tools=", [], "/api/mcp?tools="),
        ("?servers=", [], "/api/mcp?servers="),
        ("?profile=logs", ["git.log"], "/api/mcp?profile=logs"),
        ("?task=write&tools=add", ["notes.add"], "/api/mcp/t/write?tools=add"),
        ("?tools=no.such", [], "/api/mcp?tools=no.such"),
    ],
)
async def test_a_query_is_read_as_the_door_reads_it(query: str, expected: list[str], url: str) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(TOOLS + query)

        assert names(response) == expected
        assert response["url"] == BASE_URL + url


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("task=none", 404, "not_found"),
        ("task=review&servers=notes", 403, "mcp_policy_denied"),
        ("task=a%20b", 400, "invalid_request"),
        ("servers=Git", 400, "invalid_request"),
        ("servers=git,", 400, "invalid_request"),
        ("tools=log,,push", 400, "invalid_request"),
        ("profile=%2E", 400, "invalid_request"),
    ],
)
async def test_a_scope_that_cannot_be_had_is_refused_with_its_code(
    query: str, status: int, code: str
) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.request("GET", f"{TOOLS}?{query}")

        assert error_of(response) == (status, code)


async def test_a_scope_past_the_limit_is_refused_and_still_explained() -> None:
    net = MemoryNet(big=MemoryServer(tools=[definition(f"t{n}") for n in range(9)]))
    async with open_rest(net) as world:
        world.control.gateway.limits = ScopeLimits(max_tools=8, on_too_many="refuse")
        await world.seed(server=[stdio("big")])
        refused = await world.request("GET", TOOLS)
        explained = await world.get(EXPLAIN)
        seen = await world.get(SEEN)

        assert error_of(refused) == (422, "too_many_tools")
        assert explained["refusal"]["code"] == "too_many_tools"
        assert [one["allowed"] for one in explained["tools"]] == [True] * 9
        assert [(one["server_id"], one["tools"]) for one in seen["servers"]] == [("big", 9)]


async def test_an_explanation_shows_the_alias_and_the_native_name_and_is_found_by_both() -> None:
    net = MemoryNet(odd=MemoryServer(tools=[definition("list files"), definition("plain")]))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("odd")])
        whole = await world.get(EXPLAIN)
        alone = [
            await world.get(f"{EXPLAIN}?server=odd&tool={name}")
            for name in (make_alias("list files"), "list%20files")
        ]

        shown = [(one["tool"], one["native_name"]) for one in whole["tools"]]
        assert shown == [(make_alias("list files"), "list files"), ("plain", None)]
        assert [[one["native_name"] for one in response["tools"]] for response in alone] == [
            ["list files"]
        ] * 2


async def test_an_explanation_names_layer_and_rule_for_every_tool_in_or_out() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(f"{EXPLAIN}?task=review", key=secret_of("viewer"))

        assert [
            (one["server_id"], one["tool"], one["layer"], one["reason"]) for one in response["tools"]
        ] == [
            ("git", "log", "platform", None),
            ("git", "push", "task", "denied_by_task"),
            ("notes", "add", "task", "not_allowed_by_task"),
        ]
        assert [one["rule"] != "" for one in response["tools"]] == [True] * 3
        assert [(one["server_id"], one["reason"]) for one in response["servers"]] == [
            ("notes", "not_allowed_by_task"),
            ("off", "server_disabled"),
        ]
        assert (response["refusal"], response["pending"], response["warnings"]) == (None, [], [])


async def test_others_are_served_while_a_scope_is_explained() -> None:
    """Of ten thousand tools that takes a tenth of a second."""
    async with open_rest(open_world()) as world:
        await furnish(world)
        asking = asyncio.create_task(world.get(EXPLAIN))
        turns = 0
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)

        assert (await asking)["tools"] != []
        assert turns > 1  # of the one that asks, all that is done on the loop is one turn


async def test_an_explanation_says_what_each_definition_costs_in_or_out() -> None:
    git = MemoryServer(
        tools=[definition("log"), definition("broken", description=7)],
        prompts=[b'{"name":"ask"}'],
        capabilities={"tools": {}, "prompts": {}},
    )
    async with open_rest(MemoryNet(git=git)) as world:
        await world.seed(
            server=[stdio("git", allowed_tools=["l*", "prompt:*"]), stdio("notes", enabled=False)]
        )
        response = await world.get(EXPLAIN)
        scope = await world.get("/api/v1/mcp/scope")

        assert {one["tool"]: one["tokens"] for one in response["tools"]} == {
            "log": scope["prices"]["git.log"],
            "broken": None,
            "prompt:ask": None,
        }
        assert [one["tokens"] for one in response["servers"]] == [None]


@pytest.mark.parametrize(
    ("query", "tools", "servers"),
    [
        ("tool=push", ["git/push"], ["notes", "off"]),
        ("server=git", ["git/log", "git/push"], []),
        ("server=notes&tool=add", ["notes/add"], ["notes"]),
        ("server=nowhere", [], []),
    ],
)
async def test_an_explanation_can_be_narrowed_to_what_is_asked(
    query: str, tools: list[str], servers: list[str]
) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(f"{EXPLAIN}?task=review&{query}")

        assert [f"{one['server_id']}/{one['tool']}" for one in response["tools"]] == tools
        assert [one["server_id"] for one in response["servers"]] == servers


@pytest.mark.parametrize(
    ("uri", "role", "expected"),
    [
        ("note://open/7", "admin", [(True, "allowed_tools `resource:note://open/*`")]),
        ("note://open/7", "agent", [(True, "allowed_tools `resource:note://open/*`")]),
        ("note://shut/7", "admin", [(False, "allowed_tools")]),
        ("note://shut/7", "agent", []),
        ("NOTE://open/%2e%2e/shut/7", "admin", []),
    ],
)
async def test_a_resource_that_no_server_lists_is_explained_by_the_server_that_is_named(
    uri: str, role: str, expected: list[tuple[bool, str]]
) -> None:
    notes = MemoryServer(capabilities={"tools": {}, "resources": {}})
    async with open_rest(MemoryNet(notes=notes), trusts_local=False) as world:
        await world.seed(server=[stdio("notes", allowed_tools=["resource:note://open/*"])])
        query = urlencode({"server": "notes", "tool": f"resource:{uri}"})
        response = await world.get(f"{EXPLAIN}?{query}", key=secret_of(role))

    assert [(one["allowed"], one["rule"]) for one in response["tools"]] == expected


@pytest.mark.parametrize("name", ["git.log", "git/log", "log"])
async def test_a_tool_is_explained_by_its_name_with_or_without_its_server(name: str) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(f"{EXPLAIN}?task=review&{urlencode({'tool': name})}")

    assert [(one["server_id"], one["tool"]) for one in response["tools"]] == [("git", "log")]


async def test_a_dot_of_a_tools_own_name_does_not_hide_its_explanation() -> None:
    net = MemoryNet(
        git=MemoryServer(tools=[definition("log")]), notes=MemoryServer(tools=[definition("git.add")])
    )
    async with open_rest(net) as world:
        await world.seed(server=[stdio("git"), stdio("notes")])
        response = await world.get(f"{EXPLAIN}?tool=git.add")

    assert [(one["server_id"], one["tool"]) for one in response["tools"]] == [("notes", "git.add")]


async def test_an_administrator_explains_for_any_key_and_no_one_else_does() -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await furnish(world)
        query = f"{EXPLAIN}?key=narrow"
        explained = await world.get(query, key=secret_of("admin"))
        refused = [
            await world.request("GET", query, key=secret_of(role))
            for role in ("agent", "viewer", "publisher")
        ]
        own = await world.request("GET", query, key=NARROW)
        missing = await world.request("GET", f"{EXPLAIN}?key=none", key=secret_of("admin"))
        bound = await world.get(f"{EXPLAIN}?key=bound", key=secret_of("admin"))

        assert {(one["server_id"], one["reason"]) for one in explained["tools"]} == {
            ("git", "not_allowed_by_key"),
            ("notes", None),
        }
        assert [error_of(one) for one in (*refused, own)] == [(403, "forbidden")] * 4
        assert error_of(missing) == (404, "not_found")
        assert [one["tool"] for one in bound["tools"] if one["allowed"]] == ["log"]


async def test_an_agent_is_shown_of_its_own_tools_alone() -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await furnish(world)
        texts = []
        for query in ("", "?server=git", "?tool=log", "?servers=git,notes", "?tools=git.log,notes.add"):
            response = await world.request("GET", EXPLAIN + query, key=NARROW)
            texts.append(response.text)
        tools = await world.get(TOOLS, key=NARROW)
        seen = await world.get(SEEN, key=NARROW)

        assert [text for text in texts if '"git"' in text or "log" in text or "push" in text] == []
        assert names(tools) == ["notes.add"]
        assert (tools["registered_tools"], tools["registered_tokens"]) == (1, tools["tokens"])
        assert [one["server_id"] for one in seen["servers"]] == ["notes"]


async def test_what_an_agent_may_not_see_answers_like_what_does_not_exist() -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await furnish(world)

        async def same(url: str, hidden: str, missing: str) -> bool:
            responses = [await world.request("GET", url + name, key=BOUND) for name in (hidden, missing)]
            texts = [
                one.text.replace(name, "X") for one, name in zip(responses, (hidden, missing), strict=True)
            ]
            return texts[0] == texts[1] and responses[0].status_code == responses[1].status_code

        assert await same(f"{TOOLS}?task=", "write", "none")
        assert await same(f"{EXPLAIN}?task=", "write", "none")
        assert await same(f"{TOOLS}?servers=", "notes", "none")
        assert await same(f"{EXPLAIN}?servers=", "notes", "none")
        assert await same(f"{EXPLAIN}?server=", "notes", "none")
        assert await same(f"{TOOLS}?tools=", "git.push", "git.none")
        assert await same(f"{TOOLS}?tools=", "notes.add", "none.add")


async def test_the_servers_of_a_key_bound_to_tasks_are_those_of_its_tasks() -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await furnish(world)
        bound = await world.get(SEEN, key=BOUND)
        everyone = await world.get(SEEN, key=secret_of("viewer"))

        assert bound["servers"] == [
            {"server_id": "git", "display_name": "Git", "state": "connected", "tools": 1, "tags": ["code"]}
        ]
        assert [(one["server_id"], one["tools"]) for one in everyone["servers"]] == [("git", 2), ("notes", 1)]


async def test_sco_1_a_server_with_no_tool_for_an_agent_is_not_named_to_it() -> None:
    net = open_world()
    net["slow"].on_start = hang
    secrets = {allow: f"tg_{allow}".ljust(40, "x") for allow in ("git/log", "slow/any", "a*")}
    async with open_rest(net, trusts_local=False) as world:
        await furnish(world)
        await world.seed(
            key=[
                key(f"key-{number}", secret, ceiling={"allow": [allow]})
                for number, (allow, secret) in enumerate(secrets.items())
            ]
        )
        slow = RecordWrite(kind="server", id="slow", body=stdio("slow"))
        revision = await world.store.write([slow], actor="seed")
        async with asyncio.timeout(60):
            while world.control.gateway.snapshot.revision < revision:
                await asyncio.sleep(0)
        seen = {
            allow: [one["server_id"] for one in (await world.get(SEEN, key=secret))["servers"]]
            for allow, secret in secrets.items()
        }
        pending = {
            allow: (await world.get(EXPLAIN, key=secret))["pending"] for allow, secret in secrets.items()
        }

        warned = {
            allow: [one.split("`")[1] for one in (await world.get(TOOLS, key=secret))["warnings"]]
            for allow, secret in secrets.items()
        }

        assert seen == {"git/log": ["git"], "slow/any": ["slow"], "a*": ["notes", "slow"]}
        assert pending == warned == {"git/log": [], "slow/any": ["slow"], "a*": ["slow"]}


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_key_bound_to_no_task_at_all_sees_nothing() -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await furnish(world)
        await world.seed(key=[key("none", "tg_none" * 6, ceiling={"tasks": []})])
        seen = await world.get(SEEN, key="tg_none" * 6)
        tools = await world.request("GET", TOOLS, key="tg_none" * 6)

        assert seen["servers"] == []
        assert error_of(tools) == (404, "not_found")


@pytest.mark.requirement("000-47")
async def test_a_scope_has_its_price_by_tool_and_alongside_that_of_everything() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        whole = await world.get("/api/v1/mcp/scope")
        narrow = await world.get("/api/v1/mcp/scope?tools=git.log,notes.add")

        assert list(whole["prices"]) == whole["tools"] == ["git.log", "git.push", "notes.add"]
        assert sum(whole["prices"].values()) == whole["tokens"] == whole["registered_tokens"]
        assert narrow["prices"] == {name: whole["prices"][name] for name in ("git.log", "notes.add")}
        assert narrow["tokens"] == sum(narrow["prices"].values()) < narrow["registered_tokens"]
        assert narrow["registered_tools"] == 3


async def test_to_an_agent_everything_is_what_its_key_could_have() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        whole = await world.get(TOOLS, key=NARROW)
        nothing = await world.get(f"{TOOLS}?tools=", key=NARROW)
        of_task = await world.get("/api/v1/mcp/scope?task=review", key=BOUND)

        assert (whole["registered_tools"], whole["registered_tokens"]) == (1, whole["tokens"])
        assert (nothing["registered_tools"], nothing["registered_tokens"]) == (1, whole["tokens"])
        assert (of_task["registered_tools"], of_task["registered_tokens"]) == (1, of_task["tokens"])


async def test_a_scope_says_how_its_tools_are_shown() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        urls = ("/api/v1/mcp/scope", TOOLS, EXPLAIN)
        usual = [(await world.get(url))["mode"] for url in urls]
        asked = [(await world.get(f"{url}?mode=find"))["mode"] for url in urls]
        world.control.gateway.limits = ScopeLimits(max_tools=2, on_too_many="find")
        await world.seed(task=[task("more")])  # a new snapshot
        large = [await world.get(url) for url in urls]
        small = await world.get(f"{TOOLS}?tools=git.log")

        assert (usual, asked) == (["list"] * 3, ["find"] * 3)
        assert [one["mode"] for one in large] == ["find"] * 3
        assert names(large[1]) == ["git.log", "git.push", "notes.add"]
        assert small["mode"] == "list"


async def test_a_url_to_find_tools_at_has_no_limit() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        world.control.gateway.limits = ScopeLimits(max_tools=1, on_too_many="refuse")
        await world.seed(task=[task("more")])  # a new snapshot
        refused = await world.get("/api/v1/mcp/scope")
        found = await world.get("/api/v1/mcp/scope?mode=find")
        wrong = await world.request("GET", f"{TOOLS}?mode=all")

        assert refused["refusal"]["code"] == "too_many_tools"
        assert (found["refusal"], found["url"]) == (None, f"{BASE_URL}/api/mcp?mode=find")
        assert error_of(wrong) == (400, "invalid_request")


async def test_an_explanation_shows_either_version_of_a_rollout_to_viewers_and_no_other_to_agents() -> None:
    profile = {
        "profile_id": "staged",
        "version": 4,
        "servers": ["git"],
        "rollout": {"version": 5, "share": 100, "servers": ["git", "notes"]},
    }
    async with open_rest(open_world(), trusts_local=False) as world:
        await world.seed(
            server=[stdio("git"), stdio("notes")],
            profile=[profile],
            task=[task("t", profile="staged")],
            key=[key("bound", BOUND, ceiling={"tasks": ["t"]})],
        )
        viewer = secret_of("viewer")
        own = await world.get(f"{EXPLAIN}?task=t", key=BOUND)
        stable = await world.get(f"{EXPLAIN}?task=t&side=stable", key=viewer)
        candidate = await world.get(f"{EXPLAIN}?task=t&side=candidate", key=viewer)
        refused = await world.request("GET", f"{EXPLAIN}?task=t&side=stable", key=BOUND)
        wrong = await world.request("GET", f"{EXPLAIN}?task=t&side=left", key=viewer)
        await world.cataloged()
        cataloged = (await world.get("/api/catalog/search", key=BOUND))["tools"]

    def servers_in(response: Any) -> list[str]:
        return sorted({one["server_id"] for one in response["tools"] if one["allowed"]})

    drawn = {"profile_id": "staged", "version": 5, "side": "candidate", "share": 100, "by": "caller"}
    assert (servers_in(own), own["profiles"]) == (["git", "notes"], [drawn])
    assert (servers_in(stable), [one["version"] for one in stable["profiles"]]) == (["git"], [4])
    assert servers_in(candidate) == ["git", "notes"]
    assert (error_of(refused), error_of(wrong)) == ((403, "forbidden"), (400, "invalid_request"))
    assert {one["serverId"] for one in cataloged} == {"git", "notes"}
