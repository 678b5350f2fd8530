"""Keys over REST: shown once, stored as a hash, and never wider than a caller that makes them."""

import re
from typing import Any

import pytest

from tests.surfaces.rest_world import (
    KEYS,
    NOW_MS,
    SERVERS,
    TASKS,
    error_of,
    open_rest,
    secret_of,
    stdio,
    task,
)
from toolgate.audit.events import AdminRecorded
from toolgate.errors import Forbidden
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.changes.permissions import check_grant
from toolgate.model.principals import Key, Principal, Role

pytestmark = pytest.mark.anyio


async def test_a_key_is_shown_once_works_at_once_and_is_stored_as_a_hash() -> None:
    async with open_rest(trusts_local=False) as world:
        sent = {
            "key_id": "ci",
            "role": "agent",
            "ceiling": {"servers": ["git"]},
            "expires_at_s": 2_000_000_000,
        }
        made = await world.post(KEYS, sent, key=secret_of("admin"))
        await world.served()
        used = await world.request("GET", "/api/v1/mcp/tools", key=made["secret"])
        read = await world.get(f"{KEYS}/ci", key=secret_of("viewer"))
        listed = await world.get(KEYS, key=secret_of("viewer"))
        stored = await world.store.get("key", "ci")

        assert re.fullmatch(r"tg_[A-Za-z0-9_-]{43}", made["secret"])
        assert used.status_code == 200
        assert read == {
            **sent,
            "ceiling": {"servers": ["git"], "deny": []},
            "integrations": "on",
            "revision": 2,
        }
        assert made == {**read, "secret": made["secret"], "warnings": made["warnings"]}
        assert [one["key_id"] for one in listed["keys"]] == [
            "admin",
            "agent",
            "ci",
            "node",
            "publisher",
            "viewer",
        ]
        assert not any("sha256" in one or "secret" in one for one in listed["keys"])
        assert stored is not None
        assert stored.body["sha256"] == hash_key(made["secret"])
        assert made["secret"] not in str(await world.store.list())
        assert world.audited == [AdminRecorded(NOW_MS, "key:admin", "put", "key", "ci", revision=2)]


async def test_keys_are_all_different() -> None:
    async with open_rest() as world:
        secrets = {
            (await world.post(KEYS, {"key_id": f"k{n}", "role": "agent"}))["secret"] for n in range(50)
        }

        assert len(secrets) == 50


async def test_a_revoked_key_proves_nothing_any_more() -> None:
    async with open_rest(trusts_local=False) as world:
        before = await world.request("GET", TASKS, key=secret_of("viewer"))
        revoked = await world.request("DELETE", f"{KEYS}/viewer", key=secret_of("admin"))
        await world.served()
        after = await world.request("GET", TASKS, key=secret_of("viewer"))

        assert (before.status_code, revoked.status_code) == (200, 200)
        assert error_of(after) == (401, "unauthenticated")


async def test_an_existing_key_is_never_replaced() -> None:
    async with open_rest() as world:
        responses = [
            await world.request("POST", KEYS, {"key_id": "viewer", "role": "admin"}),
            await world.request("PUT", f"{KEYS}/viewer", {"role": "admin"}),
        ]

        assert [error_of(one) for one in responses] == [(409, "conflict"), (405, "method_not_allowed")]


@pytest.mark.parametrize(
    "change",
    [
        {"role": "root"},
        {"role": None},
        {"key_id": "a b"},
        {"key_id": "../a"},
        {"sha256": "0" * 64},
        {"secret": "mine"},
        {"owner": "me"},
        {"expires_at_s": -1},
        {"expires_at_s": "soon"},
        {"ceiling": {"servers": "git"}},
        {"ceiling": {"roles": ["admin"]}},
        {"default_task": ""},
    ],
    ids=str,
)
async def test_a_key_that_is_wrong_is_refused(change: dict[str, Any]) -> None:
    async with open_rest() as world:
        response = await world.request("POST", KEYS, {"key_id": "ci", "role": "agent"} | change)

        assert error_of(response) == (400, "invalid_request")
        assert world.store.revision == 1


async def test_adm_8_an_administrator_with_a_ceiling_grants_nothing_beyond_it() -> None:
    secret = "tg_bounded" * 5
    ceiling = {"tasks": ["a"], "servers": ["git"], "allow": ["git/*"], "deny": ["push"]}
    bounded = {"key_id": "bounded", "role": "admin", "sha256": hash_key(secret), "ceiling": ceiling}
    wider: list[dict[str, Any]] = [
        {},
        {**ceiling, "tasks": ["a", "b"]},
        {**ceiling, "servers": None},
        {**ceiling, "allow": ["*"]},
        {**ceiling, "deny": []},
    ]
    async with open_rest(trusts_local=False) as world:
        await world.seed(key=[bounded])
        refused = [
            await world.request("POST", KEYS, {"key_id": "k", "role": "agent", "ceiling": one}, key=secret)
            for one in wider
        ]
        narrower = {**ceiling, "tasks": [], "deny": ["push", "tag"]}
        made = await world.request(
            "POST", KEYS, {"key_id": "k", "role": "admin", "ceiling": narrower}, key=secret
        )

        assert [error_of(one) for one in refused] == [(403, "forbidden")] * 5
        assert made.status_code == 201


@pytest.mark.parametrize("grantor", ["agent", "viewer", "publisher", "admin"])
def test_adm_8_no_role_grants_a_higher_one(grantor: Role) -> None:
    ranks: tuple[Role, ...] = ("agent", "viewer", "publisher", "admin")
    granted = []
    for role in ranks:
        try:
            check_grant(Principal(id="p", role=grantor), Key(key_id="k", sha256="0" * 64, role=role))
        except Forbidden:
            continue
        granted.append(role)

    assert granted == list(ranks[: ranks.index(grantor) + 1])


async def test_adm_8_fields_of_a_request_give_no_rights() -> None:
    async with open_rest(trusts_local=False) as world:
        viewer = secret_of("viewer")
        refused = [
            await world.request("POST", KEYS, {"key_id": "k", "role": "admin"}, key=viewer),
            await world.request("POST", SERVERS, stdio("git", role="admin"), key=viewer),
            await world.request("PUT", f"{TASKS}/t", {**task("t"), "owner": "viewer"}, key=viewer),
        ]
        unknown = await world.request("PUT", f"{TASKS}/t", {"role": "admin"}, key=secret_of("publisher"))

        assert [error_of(one) for one in refused] == [(403, "forbidden")] * 3
        assert error_of(unknown) == (400, "invalid_record")


async def test_a_key_that_names_what_is_not_there_is_made_and_shown_of() -> None:
    async with open_rest() as world:
        made = await world.post(KEYS, {"key_id": "ci", "role": "agent", "default_task": "none"})

        assert [one.partition(": ")[0] for one in made["warnings"]] == ["key `ci`, `default_task`"]
