"""What a caller switches on and off for itself over REST: within its key, stored, audited, and its own."""

from typing import Any, Final

import pytest

from tests.surfaces.rest_world import KEYS, NOW_MS, RestWorld, error_of, open_rest, secret_of, stdio, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.audit.events import AdminRecorded
from toolgate.errors import TooManyAttempts
from toolgate.gateway.auth.identity import hash_key, principal_of
from toolgate.gateway.scope.caller import Caller
from toolgate.govern.operator_policy import MAX_CHANGES, WINDOW_S, IntegrationRateLimit
from toolgate.model.principals import make_choice_id
from toolgate.registry.records.policy_bodies import MAX_CHOICES

pytestmark = pytest.mark.anyio

MINE: Final = "/api/v1/me/integrations"
ALL: Final = "/admin/api/integrations"
SECRET: Final = "tg_ada" * 8
READS: Final = {"annotations": {"readOnlyHint": True}}
CEILING: Final = {"servers": ["files", "git"], "deny": ["push"]}


def net() -> MemoryNet:
    files = MemoryServer(tools=[definition("read", **READS), definition("write")])
    git = MemoryServer(tools=[definition("log", **READS), definition("commit"), definition("push")])
    return MemoryNet(files=files, git=git, mail=MemoryServer(tools=[definition("send")]))


async def furnish(world: RestWorld, **key: Any) -> None:
    ada = {"key_id": "ada", "role": "agent", "sha256": hash_key(SECRET), "ceiling": CEILING, **key}
    await world.seed(
        server=[stdio("files", display_name="Files"), stdio("git"), stdio("mail")],
        task=[task("review", default_server_ids=["git", "mail"])],
        key=[ada],
    )


async def test_a_server_that_only_another_version_of_a_profile_has_is_not_there_for_the_caller() -> None:
    """All callers have the next version of the profile here, and `mail` is in the one before it."""
    profile = {
        "profile_id": "p",
        "servers": ["mail"],
        "rollout": {"version": 2, "share": 100, "servers": ["git"]},
    }
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world, ceiling={"tasks": ["desk"]})
        await world.seed(profile=[profile], task=[task("desk", profile="p")])

        assert await states(world) == {"git": "on"}
        response = await world.request("PUT", f"{MINE}/mail", {"state": "off"}, key=SECRET)
        assert error_of(response) == (404, "not_found")


async def states(world: RestWorld) -> dict[str, str]:
    await world.served()
    listed = await world.get(MINE, key=SECRET)
    return {one["server_id"]: one["state"] for one in listed["integrations"]}


async def tools(world: RestWorld, query: str = "") -> list[str]:
    await world.served()
    return [one["name"] for one in (await world.get(f"/api/v1/mcp/tools{query}", key=SECRET))["tools"]]


@pytest.mark.requirement("002-020")
async def test_a_caller_sees_every_server_within_its_key_with_how_much_of_it_is_on() -> None:
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world)
        listed = await world.get(MINE, key=SECRET)

    assert (listed["default"], listed["integrations"]) == (
        "on",
        [
            {
                "server_id": "files",
                "display_name": "Files",
                "state": "on",
                "chosen": False,
                "tools": 2,
                "read_only_tools": 1,
                "writing_tools": 1,
                "needs_login": False,
                "login": None,
            },
            {
                "server_id": "git",
                "display_name": "",
                "state": "on",
                "chosen": False,
                "tools": 2,
                "read_only_tools": 1,
                "writing_tools": 1,
                "needs_login": False,
                "login": None,
            },
        ],
    )


@pytest.mark.requirement("002-020")
async def test_what_a_caller_switches_holds_for_it_alone_at_once_and_is_audited() -> None:
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world)
        begin = world.store.revision
        off = await world.put(f"{MINE}/files", {"state": "off"}, key=SECRET)
        after_off = await tools(world)
        await world.put(f"{MINE}/git", {"state": "read_only"}, key=SECRET)
        after_reading = await tools(world)
        explained = await world.get("/api/v1/mcp/explain?key=ada", key=secret_of("admin"))
        others = await world.get("/api/v1/mcp/tools", key=secret_of("agent"))
        await world.request("DELETE", f"{MINE}/files", key=SECRET)
        after_reset = await tools(world)

        assert (off["state"], off["chosen"], off["revision"]) == ("off", True, begin + 1)
        assert after_off == ["git.commit", "git.log"]
        assert after_reading == ["git.log"]
        assert {
            (one["server_id"], one["tool"], one["layer"], one["reason"])
            for one in explained["tools"]
            if one["layer"] == "caller"
        } == {
            ("files", "read", "caller", "integration_off"),
            ("files", "write", "caller", "integration_off"),
            ("git", "commit", "caller", "integration_read_only"),
        }
        assert len(others["tools"]) == 6
        assert after_reset == ["files.read", "files.write", "git.log"]
        assert world.audited == [
            AdminRecorded(NOW_MS, "key:ada", "off", "integration", "files", revision=begin + 1),
            AdminRecorded(NOW_MS, "key:ada", "read_only", "integration", "git", revision=begin + 2),
            AdminRecorded(NOW_MS, "key:ada", "reset", "integration", "files", revision=begin + 3),
        ]


@pytest.mark.requirement("002-020")
async def test_a_key_may_begin_with_nothing_and_its_caller_switches_on_read_only_tools_first() -> None:
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world, integrations="off")
        before = await tools(world), await states(world)
        await world.put(f"{MINE}/git", {"state": "read_only"}, key=SECRET)
        reading = await tools(world), await tools(world, "?task=review")
        await world.put(f"{MINE}/git", {"state": "on"}, key=SECRET)

        assert before == ([], {"files": "off", "git": "off"})
        assert reading == (["git.log"], ["git.log"])
        assert await tools(world) == ["git.commit", "git.log"]


async def test_what_one_caller_switches_leaves_the_compiled_views_of_others_as_they_are() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        gateway = world.control.gateway
        ada, other = (Caller(principal_of(gateway.snapshot.keys[one])) for one in ("ada", "agent"))
        before = gateway.view(ada), gateway.view(other)
        await world.put(f"{MINE}/files", {"state": "off"}, key=SECRET)
        await world.served()
        after = gateway.view(ada), gateway.view(other)
        await world.seed(server=[stdio("mail", enabled=False)])

        assert (after[0] is before[0], after[1] is before[1]) == (False, True)
        assert sorted(after[0].tools) == ["git.commit", "git.log"]
        assert gateway.view(other) is not after[1]


async def test_a_server_beyond_the_key_answers_like_one_that_does_not_exist() -> None:
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world)
        before = world.store.revision
        responses = {
            server_id: [
                (response.status_code, response.text.replace(server_id, "@"))
                for response in (
                    await world.request("PUT", f"{MINE}/{server_id}", {"state": "on"}, key=SECRET),
                    await world.request("DELETE", f"{MINE}/{server_id}", key=SECRET),
                )
            ]
            for server_id in ("mail", "absent")
        }

        assert responses["mail"] == responses["absent"]
        assert [status for status, _ in responses["mail"]] == [404, 404]
        assert world.store.revision == before


async def test_a_choice_goes_with_its_key_in_one_transaction() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        await world.put(f"{MINE}/files", {"state": "off"}, key=SECRET)
        before = world.store.revision
        await world.request("DELETE", f"{KEYS}/ada")
        left = await world.store.list("choice")

        assert (left.records, left.revision) == ((), before + 1)


async def test_the_last_reset_leaves_no_record_and_what_is_gone_can_still_be_reset() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        await world.put(f"{MINE}/files", {"state": "off"}, key=SECRET)
        await world.request("DELETE", "/admin/api/mcp/servers/files")
        await world.served()
        reset = await world.request("DELETE", f"{MINE}/files", key=SECRET)
        again = await world.request("DELETE", f"{MINE}/git", key=SECRET)

        assert (reset.status_code, again.status_code) == (200, 200)
        assert (await world.store.list("choice")).records == ()


async def test_administrators_see_and_reset_what_callers_chose_unless_they_are_bound() -> None:
    bound = "tg_bound" * 8
    async with open_rest(net(), trusts_local=False) as world:
        await furnish(world)
        sha = {"sha256": hash_key(bound)}
        await world.seed(key=[{"key_id": "b", "role": "admin", "ceiling": {"servers": ["git"]}, **sha}])
        await world.put(f"{MINE}/files", {"state": "off"}, key=SECRET)
        listed = await world.get(ALL, key=secret_of("admin"))
        one = f"{ALL}/{listed['choices'][0]['choice_id']}"
        refused = [
            await world.request("GET", ALL, key=bound),
            await world.request("DELETE", one, key=bound),
            await world.request("GET", ALL, key=secret_of("publisher")),
        ]
        done = await world.request("DELETE", one, key=secret_of("admin"))
        gone = await world.request("DELETE", one, key=secret_of("admin"))

        assert [(one["principal"], one["servers"]) for one in listed["choices"]] == [
            ("key:ada", {"files": "off"})
        ]
        assert [error_of(response) for response in refused] == [(403, "forbidden")] * 3
        assert done.status_code == 200
        assert error_of(gone) == (404, "not_found")
        assert world.audited[-1] == AdminRecorded(
            NOW_MS, "key:admin", "reset", "integration", "key:ada", revision=done.json()["revision"]
        )


async def test_what_callers_choose_is_bounded() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        full = dict.fromkeys([f"s{number}" for number in range(MAX_CHOICES - 1)], "on")
        body = {"choice_id": make_choice_id("key:ada"), "principal": "key:ada", "servers": full}
        await world.seed(choice=[body])
        fits = await world.request("PUT", f"{MINE}/files", {"state": "off"}, key=SECRET)
        makes_room = await world.request("PUT", f"{MINE}/git", {"state": "off"}, key=SECRET)
        stored = await world.store.get("choice", make_choice_id("key:ada"))
        wrong = await world.request("PUT", f"{MINE}/git", {"state": "some"}, key=SECRET)

        assert (fits.status_code, makes_room.status_code) == (200, 200)
        assert stored is not None
        assert stored.body["servers"] == {"files": "off", "git": "off"}
        assert error_of(wrong) == (400, "invalid_request")


def test_one_caller_cannot_change_its_integrations_without_end() -> None:
    now = 0.0
    rate = IntegrationRateLimit(clock_s=lambda: now)
    for _ in range(MAX_CHANGES):
        rate.count("key:ada")
    with pytest.raises(TooManyAttempts, match="too often"):
        rate.count("key:ada")
    rate.count("key:bob")
    now = WINDOW_S
    rate.count("key:ada")


async def test_nothing_is_stored_for_a_key_that_only_follows_the_registry() -> None:
    async with open_rest(net(), trusts_local=False) as world:
        response = await world.request("PUT", f"{MINE}/git", {"state": "on"}, key=secret_of("node"))

        assert error_of(response) == (403, "forbidden")
