"""What servers say of themselves reaches clients whose scope has them: as it is, or merged and bounded."""

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.catalog.encoding import MAX_MERGED, MAX_MERGED_EACH

pytestmark = pytest.mark.anyio

GIT = record("git", allowed_tools=("*",), display_name="Git of the team")
NOTES = record("notes", allowed_tools=("*",))
HIDDEN = record("hidden", allowed_tools=("prompt:*",))
LOG_FIRST = "Call `log` first.\n\n- then `push`"


def net(**instructions: str) -> MemoryNet:
    return MemoryNet(
        **{
            name: MemoryServer(tools=(definition("log"),), instructions=text)
            for name, text in instructions.items()
        }
    )


async def outcome(opened: McpWorld, path: str) -> set[str | None]:
    """What clients of both revisions are told."""
    await opened.modern(path, "tools/list")  # from here on nothing is still to be listed
    session = await opened.session(path)
    discovered = (await opened.modern(path, "server/discover")).json["result"]
    return {session.initialized.get("instructions"), discovered.get("instructions")}


async def test_the_path_of_one_server_carries_its_instructions_as_they_are() -> None:
    async with open_mcp_world(net(git=LOG_FIRST, notes="Be brief."), GIT, NOTES) as opened:
        assert await outcome(opened, "/api/mcp/s/git") == {LOG_FIRST}


async def test_elsewhere_instructions_are_merged_under_the_names_of_their_servers() -> None:
    async with open_mcp_world(net(git=LOG_FIRST, notes="Be brief."), GIT, NOTES) as opened:
        merged = f"Server `git` (Git of the team):\n{LOG_FIRST}\n\nServer `notes`:\nBe brief."

        assert await outcome(opened, "/api/mcp") == {merged}
        assert await outcome(opened, "/api/mcp?servers=notes") == {"Server `notes`:\nBe brief."}


async def test_a_server_without_anything_in_the_scope_says_nothing() -> None:
    async with open_mcp_world(net(git="", hidden="You cannot see me."), GIT, HIDDEN) as opened:
        assert await outcome(opened, "/api/mcp") == {None}


async def test_notes_of_the_gateway_come_first() -> None:
    async with open_mcp_world(net(git=LOG_FIRST), GIT) as opened:
        await outcome(opened, "/api/mcp")
        (instructions,) = await outcome(opened, "/api/mcp/find")

        assert instructions is not None
        assert instructions.startswith("The tools of this endpoint are not listed")
        assert instructions.endswith(f"\n\nServer `git` (Git of the team):\n{LOG_FIRST}")


async def test_merged_instructions_are_bounded_each_and_together() -> None:
    names = [f"s{number:02}" for number in range(20)]
    servers = [record(name, allowed_tools=("*",)) for name in names]
    async with open_mcp_world(net(**dict.fromkeys(names, "x" * 1_000_000)), *servers) as opened:
        (merged,) = await outcome(opened, "/api/mcp")
        (whole,) = await outcome(opened, "/api/mcp/s/s00")

        assert merged is not None
        assert whole is not None
        assert len(merged) <= MAX_MERGED + 100
        assert f"Server `s00`:\n{'x' * (MAX_MERGED_EACH - 1)}…\n\nServer `s01`:\n" in merged
        assert merged.endswith("Instructions of 17 more servers are omitted.")
        assert len(whole) == 16_384


async def test_characters_that_people_do_not_see_are_taken_out() -> None:
    text = "Use \u202ethis\u202c.\u200b\x07\U000e0041 Then\tthat.\r\n"
    async with open_mcp_world(net(git=text), GIT) as opened:
        assert await outcome(opened, "/api/mcp/s/git") == {"Use this. Then\tthat."}


async def test_new_instructions_of_a_server_reach_clients_that_come_after_it_was_connected_again() -> None:
    world = net(git="Old.")
    async with open_mcp_world(world, GIT) as opened:
        before = await outcome(opened, "/api/mcp/s/git")
        world["git"].instructions = "New."
        world["git"].crash()
        await opened.gateway.servers.refresh("git")

        assert (before, await outcome(opened, "/api/mcp/s/git")) == ({"Old."}, {"New."})
