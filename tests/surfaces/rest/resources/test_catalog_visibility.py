"""What a key may not see is not in the catalog: no name, no count, no hint, whatever is asked."""

import asyncio
import json
from typing import Any, Final

import pytest

from tests.surfaces.rest_world import RestWorld, error_of, open_rest, stdio, task
from tests.upstream.memory_link import MemoryNet, definition
from toolgate.errors import StorageUnavailable
from toolgate.gateway.auth.identity import hash_key, principal_of
from toolgate.policy.rollouts import draw_bucket

pytestmark = pytest.mark.anyio

KEY: Final = "tg_narrow_" + "y" * 40
SHOWN: Final = definition("shown", annotations={"readOnlyHint": True}, description="A common tool")
HIDDEN: Final = definition("hidden", description="A common tool with a secretword")


def key(**ceiling: Any) -> dict[str, Any]:
    return {"key_id": "narrow", "sha256": hash_key(KEY), "role": "agent", "ceiling": ceiling}


def net_of(*server_ids: str) -> MemoryNet:
    net = MemoryNet()
    for server_id in server_ids:
        net.servers[server_id].tools = (SHOWN, HIDDEN)
    return net


async def everything(world: RestWorld, server_ids: tuple[str, ...] = ("open", "closed")) -> dict[str, Any]:
    """All that the narrow key can get out of the catalog."""
    paths = [
        "",
        "/search",
        "/search?q=common+tool",
        "/search?q=secretword",
        "/search?q=closed",
        "/search?server=closed",
        "/search?category=closed-category",
        "/search?tag=closed-tag",
        "/closed-category",
        "/closed-categori",
        "/open-category",
        *(f"/{one}/tools" for one in server_ids),
        "/close/tools",
        "/closed",
    ]
    responses = {path: await world.request("GET", f"/api/catalog{path}", key=KEY) for path in paths}
    return {path: (response.status_code, response.json()) for path, response in responses.items()}


def described(server_id: str, **fields: Any) -> dict[str, Any]:
    return stdio(
        server_id,
        category=f"{server_id}-category",
        tags=[f"{server_id}-tag"],
        display_name=f"The {server_id} one",
        **fields,
    )


async def seen_with(net: MemoryNet, **records: Any) -> dict[str, Any]:
    async with open_rest(net, trusts_local=False) as world:
        await world.seed(**records)
        await world.cataloged()
        return await everything(world)


async def never(_members: Any) -> Any:
    raise OSError("not today")


async def as_if_not_there(**ceiling: Any) -> dict[str, Any]:
    """What the catalog says where `closed` was never registered."""
    return await seen_with(net_of("open"), server=[described("open")], key=[key(**ceiling)])


@pytest.mark.parametrize(
    ("ceiling", "closed"),
    [
        pytest.param({"servers": ["open"]}, {}, id="not among the key's servers"),
        pytest.param({"allow": ["open/*"]}, {}, id="not allowed by the key"),
        pytest.param({"deny": ["closed/*"]}, {}, id="denied by the key"),
        pytest.param({}, {"enabled": False}, id="disabled"),
        pytest.param({}, {"allowed_tools": []}, id="of which nothing is allowed"),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_server_out_of_reach_answers_like_one_that_does_not_exist(
    ceiling: dict[str, Any], closed: dict[str, Any], is_listed: bool
) -> None:
    net = net_of("open", "closed")
    if not is_listed:
        net.servers["closed"].on_list = never
    seen = await seen_with(
        net, server=[described("open"), described("closed", **closed)], key=[key(**ceiling)]
    )

    assert seen == await as_if_not_there(**ceiling)
    assert (seen["/open/tools"][0], seen["/closed/tools"][0], seen["/closed-category"][0]) == (200, 404, 404)


@pytest.mark.parametrize(
    ("server", "extra"),
    [
        pytest.param({"allowed_tools": ["shown"]}, {}, id="not allowed by the platform"),
        pytest.param({}, {"key": [key(deny=["hidden"])]}, id="denied by the key"),
        pytest.param({}, {"key": [key(allow=["open/shown"])]}, id="not allowed by the key"),
    ],
)
async def test_a_hidden_tool_is_in_no_answer(server: dict[str, Any], extra: dict[str, Any]) -> None:
    records = {"key": [key()], **extra}
    seen = await seen_with(net_of("open"), server=[described("open", **server)], **records)

    assert "hidden" not in json.dumps(seen)
    assert seen[""][1]["categories"][0]["toolCount"] == 1
    assert seen["/search?q=common+tool"][1]["total"] == 1
    assert seen["/search?q=secretword"][1]["total"] == 0


async def test_a_quarantined_tool_is_in_no_answer() -> None:
    async with open_rest(net_of("open"), trusts_local=False) as world:
        await world.seed(server=[described("open")], key=[key()])
        shown = world.control.gateway.snapshot.servers["open"].tools["shown"].digest
        await world.seed(pin=[{"server_id": "open", "tools": {"shown": shown, "hidden": "0" * 64}}])
        await world.cataloged()
        seen = await everything(world)

    assert "hidden" not in json.dumps(seen)
    assert seen["/search"][1]["total"] == 1


async def test_a_key_that_is_bound_to_tasks_sees_what_they_allow_together() -> None:
    bound = key(tasks=["review", "gone"])
    review = task(
        "review", default_server_ids=["open"], allowed_server_ids=["open", "more"], tool_denylist=["hidden"]
    )
    async with open_rest(net_of("open", "more", "closed"), trusts_local=False) as world:
        await world.seed(
            server=[described("open"), described("more"), described("closed")],
            task=[review, task("other", default_server_ids=["closed"])],
            key=[bound],
        )
        await world.cataloged()
        seen = await everything(world)

    assert [tool["fullName"] for tool in seen["/search"][1]["tools"]] == ["more.shown", "open.shown"]
    assert error_code(seen["/closed/tools"]) == "not_found"
    assert "did you mean" not in json.dumps(seen["/close/tools"])


async def test_a_task_that_is_not_enabled_lets_nothing_through() -> None:
    seen = await seen_with(
        net_of("open"),
        server=[described("open")],
        task=[task("review", enabled=False, default_server_ids=["open"])],
        key=[key(tasks=["review"])],
    )

    assert seen[""][1]["categories"] == []


async def test_a_server_of_which_nothing_is_known_is_not_named_where_a_task_denies_all_of_it() -> None:
    async def fails(_members: Any) -> Any:
        raise OSError("not today")

    net = net_of("open", "closed")
    net.servers["open"].on_list = net.servers["closed"].on_list = fails
    both = ["open", "closed"]
    seen = await seen_with(
        net,
        server=[described("open"), described("closed")],
        task=[task("review", default_server_ids=both, tool_denylist=["closed/*", "open/hid*"])],
        key=[key(tasks=["review"])],
    )

    assert [one["fullName"] for one in seen["/search"][1]["tools"]] == ["open.*"]


async def test_two_keys_do_not_share_what_they_see() -> None:
    other = {"key_id": "other", "sha256": hash_key("tg_other_" + "z" * 40), "role": "agent"}
    async with open_rest(net_of("open", "closed"), trusts_local=False) as world:
        await world.seed(
            server=[described("open"), described("closed")],
            key=[key(servers=["open"]), {**other, "ceiling": {"servers": ["closed"]}}],
        )
        await world.cataloged()
        for _ in range(2):
            mine = await world.get("/api/catalog/search", key=KEY)
            theirs = await world.get("/api/catalog/search", key="tg_other_" + "z" * 40)
            assert {tool["serverId"] for tool in mine["tools"]} == {"open"}
            assert {tool["serverId"] for tool in theirs["tools"]} == {"closed"}


async def test_what_a_change_takes_away_is_gone_from_the_next_answer() -> None:
    async with open_rest(net_of("open"), trusts_local=False) as world:
        await world.seed(server=[described("open")], key=[key()])
        await world.cataloged()
        assert (await world.get("/api/catalog/search", key=KEY))["total"] == 2
        await world.seed(key=[key(allow=["open/shown"])])
        assert (await world.get("/api/catalog/search", key=KEY))["total"] == 1
        await world.seed(server=[described("open", enabled=False)])
        assert (await world.get("/api/catalog/search", key=KEY))["total"] == 0


@pytest.mark.parametrize("allowed", ["shown", "@read_only"])
async def test_a_server_that_cannot_be_listed_is_shown_as_it_was_known(allowed: str) -> None:
    """As after a restart: the rows are there before any server was listed."""
    async with open_rest(net_of("open"), trusts_local=False) as world:
        await world.seed(server=[described("open", allowed_tools=[allowed])], key=[key()])
        await world.cataloged()
        listed = await everything(world)
        store, keeper = world.store, world.control.catalog
        assert keeper is not None
        rows = await store.catalog.rows("open")
    net = net_of("open")
    net.servers["open"].on_list = never
    async with open_rest(net, trusts_local=False) as world:
        await world.seed(server=[described("open", allowed_tools=[allowed])], key=[key()])
        await world.cataloged()
        (made_from,) = (await world.store.catalog.made_from()).values()
        await world.store.catalog.replace("open", rows, made_from=f"{made_from.rpartition(':')[0]}:earlier")
        async with asyncio.timeout(60):
            while len(world.control.catalog.rows["open"]) < 2:
                await asyncio.sleep(0)
        unlisted = await everything(world)

    assert unlisted == listed
    assert unlisted["/search"][1]["total"] == 1


async def test_callers_of_two_versions_do_not_share_what_they_see_while_a_rollout_changes() -> None:
    """One waits for its turn as the share falls: what it sees is not kept for those still in the share."""
    drawn = {f"k{number}": draw_bucket("p", 2, f"caller:key:k{number}") for number in range(20)}
    inside, outside = min(drawn, key=drawn.__getitem__), max(drawn, key=drawn.__getitem__)

    def profile(share: int) -> dict[str, Any]:
        return {
            "profile_id": "p",
            "allow": ["shown"],
            "rollout": {"version": 2, "share": share, "allow": ["*"]},
        }

    async with open_rest(net_of("open"), trusts_local=False) as world:
        keys = [key(tasks=["t"]) | {"key_id": one, "sha256": hash_key(one * 20)} for one in (inside, outside)]
        await world.seed(
            server=[described("open")],
            profile=[profile(100)],
            task=[task("t", default_server_ids=["open"], profile="p")],
            key=keys,
        )
        await world.cataloged()
        control = world.control
        callers = {one: principal_of(control.gateway.snapshot.keys[one]) for one in (inside, outside)}
        async with control.visibility.lock:
            waiting = asyncio.create_task(
                control.visibility.of(control.gateway, control.catalog, callers[outside])
            )
            await asyncio.sleep(0)
            await world.seed(profile=[profile(50)])
            await world.cataloged()

        assert set((await waiting).rows) == {"open.shown"}
        seen = await control.visibility.of(control.gateway, control.catalog, callers[inside])
        assert set(seen.rows) == {"open.shown", "open.hidden"}


def error_code(response: tuple[int, Any]) -> str:
    code: str = response[1]["error"]["code"]
    return code


async def test_a_gateway_that_is_suspended_shows_nothing() -> None:
    async with open_rest(net_of("open"), trusts_local=False) as world:
        await world.seed(server=[described("open")], key=[key()])
        await world.cataloged()
        world.control.gateway.suspend(lambda: StorageUnavailable("gone"))
        assert error_of(await world.request("GET", "/api/catalog", key=KEY)) == (503, "storage_unavailable")


async def test_what_is_taken_away_is_gone_for_every_key_a_caller_that_looks_first() -> None:
    async with open_rest(net_of("open")) as world:
        await world.seed(server=[described("open")], key=[key(servers=["open"])])
        await world.cataloged()
        before = await world.request("GET", "/api/catalog/open/tools", key=KEY)
        await world.seed(server=[described("open", allowed_tools=["shown"])])
        await world.cataloged()
        by_another = await world.get("/api/catalog/open/tools")
        after = await world.request("GET", "/api/catalog/open/tools", key=KEY)

    assert [one["name"] for one in before.json()["tools"]] == ["hidden", "shown"]
    assert [one["name"] for one in by_another["tools"]] == ["shown"]
    assert [one["name"] for one in after.json()["tools"]] == ["shown"]
