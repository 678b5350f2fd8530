"""What patterns match, over REST, before they stand in a rule."""

import pytest

from tests.surfaces.rest_world import error_of, open_rest, secret_of, stdio
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.upstream.connection.contract import StartFailed

pytestmark = pytest.mark.anyio

MATCH = "/admin/api/match"
PROFILES = "/admin/api/mcp/profiles-overview"


def open_world() -> MemoryNet:
    git = MemoryServer(
        tools=[definition("log"), definition("push"), definition("broken", description=7)],
        prompts=[b'{"name":"review"}'],
        resources=[b'{"uri":"file:///a","name":"a"}'],
        capabilities={"tools": {}, "prompts": {}, "resources": {}},
    )
    return MemoryNet(git=git, notes=MemoryServer(tools=[definition("log"), definition("add")]))


async def test_each_pattern_has_what_it_would_match_in_a_rule() -> None:
    """Also of what its server's own record does not allow; other kinds than tools as rules name them."""
    patterns = ["log", "git/*", "*/?o*", "prompt:*", "resource:file:///*", "nothing*"]
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("git", allowed_tools=["log"]), stdio("notes")])
        response = await world.post(MATCH, {"patterns": patterns}, key=secret_of("viewer"))

        assert [
            (one["pattern"], one["count"], one["tools"], one["error"]) for one in response["matches"]
        ] == [
            ("log", 2, ["git.log", "notes.log"], None),
            ("git/*", 3, ["git.broken", "git.log", "git.push"], None),
            ("*/?o*", 2, ["git.log", "notes.log"], None),
            ("prompt:*", 1, ["prompt:git/review"], None),
            ("resource:file:///*", 1, ["resource:git/file:///a"], None),
            ("nothing*", 0, [], None),
        ]


async def test_a_selection_is_matched_on_its_servers_as_lint_judges_it() -> None:
    """And servers that have not listed their tools are named, because they may have any."""

    async def fail() -> None:
        raise StartFailed("it does not start")

    net = open_world()
    net.servers["down"] = MemoryServer(on_start=fail)
    profile = {"profile_id": "coding", "tags": ["code"], "allow": ["log", "add", "down/x"]}
    async with open_rest(net) as world:
        servers = [stdio("git", tags=["code"]), stdio("notes"), stdio("down", tags=["code"])]
        await world.seed(server=servers, profile=[profile])
        patterns = {"patterns": ["log", "add", "down/x", "notes/add"]}
        by_tag = (await world.post(MATCH, {**patterns, "tags": ["code"]}))["matches"]
        by_id = (await world.post(MATCH, {**patterns, "servers": ["notes", "gone"]}))["matches"]
        (overview,) = (await world.get(PROFILES, key=secret_of("viewer")))["profiles"]
        tokens = overview.pop("tokens")

        assert [(one["tools"], one["unlisted"]) for one in by_tag] == [
            (["git.log"], ["down"]),
            ([], ["down"]),
            ([], ["down"]),
            ([], []),
        ]
        assert [(one["tools"], one["unlisted"]) for one in by_id] == [
            (["notes.log"], []),
            (["notes.add"], []),
            ([], []),
            (["notes.add"], []),
        ]
        assert overview == {"profile_id": "coding", "tools": 1, "unlisted": ["down"]}
        assert tokens > 0


async def test_an_effect_matches_more_as_a_denylist_reads_it() -> None:
    reads = definition("read", annotations={"readOnlyHint": True})
    net = MemoryNet(fs=MemoryServer(tools=[reads, definition("mute")]))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("fs")])
        asked = {"patterns": ["@read_only", "@destructive", "@readonly"]}
        allow = (await world.post(MATCH, asked))["matches"]
        deny = (await world.post(MATCH, {**asked, "deny": True}))["matches"]

        assert [one["tools"] for one in allow] == [["fs.read"], [], []]
        assert [one["tools"] for one in deny] == [["fs.mute", "fs.read"], ["fs.mute"], []]
        assert allow[2]["error"].startswith("unknown effect `@readonly`; did you mean `@read_only`?")


async def test_what_is_no_pattern_is_stated_of_that_one_alone() -> None:
    patterns = ["", "a b", "x" * 200, "prompt:", "log"]
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("notes")])
        response = await world.post(MATCH, {"patterns": patterns})

        assert [one["error"] is None for one in response["matches"]] == [False] * 4 + [True]
        assert response["matches"][0]["error"] == "empty pattern; name a tool, or use `*` for all"
        assert response["matches"][4]["tools"] == ["notes.log"]


async def test_a_pattern_that_matches_much_shows_the_first_and_counts_all() -> None:
    net = MemoryNet(big=MemoryServer(tools=[definition(f"t{number:03}") for number in range(250)]))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("big")])
        (found,) = (await world.post(MATCH, {"patterns": ["*"]}))["matches"]

        assert (found["count"], len(found["tools"]), found["tools"][-1]) == (250, 200, "big.t199")


@pytest.mark.parametrize(
    "body", [{"patterns": ["x"] * 101}, {"patterns": ["x" * 1_025]}, {"patterns": "x"}, {}]
)
async def test_what_is_too_much_is_refused(body: object) -> None:
    async with open_rest() as world:
        assert error_of(await world.request("POST", MATCH, body)) == (400, "invalid_request")
