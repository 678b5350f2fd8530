"""How well the catalog knows its tools, and what becomes of rows without a definition."""

from typing import Any, Final

import pytest

from tests.package_kit import pack, upload
from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import RestWorld, open_rest, secret_of, stdio
from tests.upstream.memory_link import MemoryNet, definition

pytestmark = pytest.mark.anyio

QUALITY: Final = "/api/v1/catalog/quality"
SUMMARY: Final = {"old_a": "Does the old thing.", "old_b": ""}
COUNTED: Final = ("manifest", "discovered", "summary", "legacy", "with_schema", "with_description")


async def never(_members: Any) -> Any:
    raise OSError("not today")


def net_of(*silent: str) -> MemoryNet:
    """A server with six tools; the `silent` ones never list theirs."""
    net = MemoryNet()
    tools = [definition(f"t{n}", description="A full one" if n else "") for n in range(6)]
    net.servers["full"].tools = tuple(tools)
    for server_id in silent:
        net.servers[server_id].on_list = never
    return net


async def furnish(world: RestWorld) -> None:
    """Six rows with definitions of `full`, two summaries of `old`: 75 % of the catalog is complete."""
    await world.seed(server=[stdio("full", category="new things")])
    await upload(
        world.request,
        pack({"id": "old", "command": "serve", "category": "old things", "toolsSummary": SUMMARY}),
    )
    await world.post("/api/packages/old/install", {})
    await world.cataloged()


async def everything(world: RestWorld) -> dict[str, Any]:
    """All that an agent gets out of the catalog."""
    paths = (
        "",
        "/search",
        "/search?q=old+thing",
        "/old%20things",
        "/old/tools",
        "/oldd/tools",
        "/search?server=old",
    )
    responses = {
        path: await world.request("GET", f"/api/catalog{path}", key=secret_of("agent")) for path in paths
    }
    seen = {path: (response.status_code, response.json()) for path, response in responses.items()}
    seen["quality"] = await world.get(QUALITY, key=secret_of("agent"))
    return seen


async def test_the_quality_counts_rows_by_source_of_each_package_and_of_all() -> None:
    async with open_rest(net_of("old", "bare")) as world:
        await furnish(world)
        await world.seed(server=[stdio("bare")])
        await world.cataloged()
        found = await world.get(QUALITY, key=secret_of("viewer"))
        dependent = await world.get(f"{QUALITY}?dependent=true&limit=1", key=secret_of("viewer"))

        counts = {one["id"]: tuple(one[name] for name in COUNTED) for one in found["packages"]}
        assert counts == {
            "bare": (0, 0, 0, 1, 0, 0),
            "full": (0, 6, 0, 0, 6, 5),
            "old": (0, 0, 2, 0, 0, 1),
        }
        assert tuple(found["total"][name] for name in ("rows", *COUNTED)) == (9, 0, 6, 2, 1, 6, 6)
        assert (found["full_percent"], found["dependent"]) == (66.6, 2)
        assert (found["summary_fallback"], found["fallback_ended"]) == (None, False)
        assert [one["id"] for one in dependent["packages"]] == ["bare"]
        assert dependent["next_cursor"] is not None


@pytest.mark.requirement("004-23")
@pytest.mark.parametrize(
    ("threshold", "is_hidden"),
    [
        pytest.param(None, False, id="without a threshold the fallback stays"),
        pytest.param(75.1, False, id="below it nothing changes"),
        pytest.param(75, True, id="from it on the fallback is off"),
        pytest.param(0, True, id="at 0 it is always off"),
    ],
)
async def test_the_fallback_ends_when_enough_of_the_catalog_is_complete(
    threshold: float | None, *, is_hidden: bool
) -> None:
    async with open_rest(net_of()) as world:
        await world.seed(server=[stdio("full", category="new things")])
        await world.cataloged()
        without = await everything(world)
    async with open_rest(net_of("old"), summary_fallback=threshold) as world:
        await furnish(world)
        seen = await everything(world)
        received = await world.get(f"{QUALITY}?dependent=true", key=secret_of("viewer"))

        assert (seen == without) == is_hidden
        assert (seen["/old/tools"][0], seen["quality"]["total"]["rows"]) == (
            (404, 6) if is_hidden else (200, 8)
        )
        assert (received["fallback_ended"], received["full_percent"]) == (is_hidden, 75)
        assert [(one["id"], one["summary"], one["hidden"]) for one in received["packages"]] == [
            ("old", 2, 2 if is_hidden else 0)
        ]


@pytest.mark.requirement("004-23")
async def test_the_fallback_is_back_while_less_of_the_catalog_is_complete() -> None:
    async with open_rest(net_of("old", "bare"), summary_fallback=75) as world:
        await furnish(world)
        before = (await everything(world))["/old/tools"][0]
        await world.seed(server=[stdio("bare")])
        await world.cataloged()
        meanwhile = (await everything(world))["/old/tools"][0]
        await world.request("DELETE", "/admin/api/mcp/servers/bare")
        await world.served()
        await world.control.catalog.make("bare")

        assert (before, meanwhile) == (404, 200)
        assert (await everything(world))["/old/tools"][0] == 404


async def test_replicas_with_the_same_rows_decide_the_same() -> None:
    store = MemoryStore(lambda: 0)
    async with (
        open_rest(net_of("old"), store=store, summary_fallback=75) as one,
        open_rest(net_of("old"), store=store, summary_fallback=75, artifacts=one.control.artifacts) as other,
    ):
        await furnish(one)
        await other.cataloged()

        assert await everything(one) == await everything(other)
        assert (await everything(other))["/old/tools"][0] == 404
        assert await one.get(QUALITY) == await other.get(QUALITY)


@pytest.mark.parametrize(
    ("threshold", "what"),
    [(None, None), (90, "will be hidden at 90 %"), (75, "are hidden (75 % of the catalog is complete)")],
)
async def test_lint_names_packages_that_lose_rows_when_the_fallback_ends(
    threshold: float | None, what: str | None
) -> None:
    async with open_rest(net_of("old"), summary_fallback=threshold) as world:
        await furnish(world)
        findings = (await world.get("/admin/api/lint"))["findings"]

        received = [one for one in findings if one["code"] == "summary_only"]
        assert [(one["where"], one["subject"]) for one in received] == (
            [] if what is None else [("server old", "2 of 2 rows")]
        )
        assert what is None or what in received[0]["message"]
