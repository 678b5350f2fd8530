"""Modules over REST, and the tasks that name them."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from wasmtime import wat2wasm

from tests.surfaces.rest_world import TASKS, RestWorld, open_rest, secret_of, stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.model.tasks import MAX_MODULE_BYTES

pytestmark = pytest.mark.anyio

MODULES: Final = "/admin/api/modules"
GUEST: Final = bytes(
    wat2wasm(
        '(module (import "spear" "time_now_ms" (func (result i64))) (memory (export "memory") 1)'
        ' (func (export "_start")))'
    )
)
STRANGER: Final = bytes(wat2wasm('(module (import "env" "system" (func)) (func (export "_start")))'))
CANARY: Final = "canary-51c0de"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def body(task_id: str = "job", **workload: Any) -> dict[str, Any]:
    return {"task_id": task_id, "workload": {"module": sha256(GUEST), **workload}}


async def upload(world: RestWorld, content: bytes = GUEST, *, key: str | None = None) -> httpx2.Response:
    return await world.request("POST", MODULES, content, key=key, content_type="application/wasm")


def refusal(response: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    return found


async def keep(world: RestWorld, content: bytes = GUEST) -> None:
    """Put a module into the store, past the check."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        await world.control.modules.put(Path(file.name), sha256=sha256(content))


async def test_a_module_is_uploaded_listed_named_by_a_task_and_then_not_removed() -> None:
    async with open_rest() as world:
        first, again = await upload(world), await upload(world)
        written = await world.request("PUT", f"{TASKS}/job", body(args=["x"]))
        listed = await world.get(MODULES)
        one = await world.get(f"{MODULES}/{sha256(GUEST)}")
        used = await world.request("DELETE", f"{MODULES}/{sha256(GUEST)}")
        await world.request("DELETE", f"{TASKS}/job")
        removed = await world.request("DELETE", f"{MODULES}/{sha256(GUEST)}")
        gone = await world.request("GET", f"{MODULES}/{sha256(GUEST)}")

    expected = {
        "sha256": sha256(GUEST),
        "size": len(GUEST),
        "imports": ["spear.time_now_ms"],
        "exports": ["memory", "_start"],
        "warnings": [],
    }
    assert (first.status_code, first.json()) == (201, {**expected, "is_new": True})
    assert (again.status_code, again.json()) == (200, {**expected, "is_new": False})
    assert written.status_code == 201
    assert listed == {"modules": [one]}
    assert (one["sha256"], one["size"], one["tasks"]) == (sha256(GUEST), len(GUEST), ["job"])
    assert refusal(used)["code"] == "conflict"
    assert "`job`" in refusal(used)["message"]
    assert (removed.status_code, gone.status_code) == (200, 404)
    assert [(one.operation, one.kind) for one in world.audited if one.kind == "module"] == [
        ("upload", "module"),
        ("remove", "module"),
    ]


async def test_a_module_in_parts_is_checked_against_its_hash_and_kept() -> None:
    path = f"/api/uploads/{sha256(GUEST)}"
    async with open_rest() as world:
        for number, part in enumerate((GUEST[:20], GUEST[20:]), 1):
            await world.request("PUT", f"{path}/{number}", part, content_type="application/octet-stream")
        kept = await world.request("POST", f"{MODULES}/{sha256(GUEST)}", {"parts": 2})
        other = f"/api/uploads/{'0' * 64}"
        await world.request("PUT", f"{other}/1", GUEST, content_type="application/octet-stream")
        mixed_up = await world.request("POST", f"{MODULES}/{'0' * 64}", {"parts": 1})
        listed = (await world.get(MODULES))["modules"]

    assert kept.json()["sha256"] == sha256(GUEST)
    assert refusal(mixed_up)["code"] == "invalid_request"
    assert [one["sha256"] for one in listed] == [sha256(GUEST)]


@pytest.mark.parametrize(
    ("content", "rpc"),
    [
        pytest.param(STRANGER, "env.system", id="calls what is not there"),
        pytest.param(b"#!/bin/sh\n", "", id="no module"),
        pytest.param(GUEST[:-4], "", id="cut off"),
    ],
)
async def test_a_module_that_cannot_be_run_is_not_kept(content: bytes, rpc: str) -> None:
    async with open_rest() as world:
        response = await upload(world, content)
        listed = await world.get(MODULES)

    assert refusal(response)["code"] == "invalid_module"
    assert rpc in refusal(response)["message"]
    assert listed == {"modules": []}


async def test_a_module_that_is_too_large_is_refused_before_anyone_looks_at_it() -> None:
    """WAS-2"""
    content = bytes(MAX_MODULE_BYTES + 1)
    parts = [content[at : at + MAX_PART_BYTES] for at in range(0, len(content), MAX_PART_BYTES)]
    path = f"/api/uploads/{sha256(content)}"
    async with open_rest() as world:
        for number, part in enumerate(parts, 1):
            await world.request("PUT", f"{path}/{number}", part, content_type="application/octet-stream")
        response = await world.request("POST", f"{MODULES}/{sha256(content)}", {"parts": len(parts)})

    assert (response.status_code, refusal(response)["code"]) == (413, "too_large")


async def test_a_task_is_not_given_a_module_that_is_not_there() -> None:
    """Neither by itself nor with others; a plan says that it is to come."""
    async with open_rest() as world:
        changes = {"changes": [{"kind": "task", "id": "job", "body": body()}]}
        alone = await world.request("PUT", f"{TASKS}/job", body())
        together = await world.request("POST", "/admin/api/apply", changes)
        plan = await world.post("/admin/api/plan", changes)
        await keep(world)
        applied = await world.request("POST", "/admin/api/apply", changes)
        then = await world.post("/admin/api/plan", changes)

    for refused in (alone, together):
        assert refusal(refused)["code"] == "invalid_record"
        assert f"there is no module `{sha256(GUEST)}`" in refusal(refused)["message"]
        assert "toolgate modules upload" in refusal(refused)["hint"]
    assert "task `job`" in refusal(together)["message"]
    assert plan["warnings"] == [f"task `job`, `workload.module`: module `{sha256(GUEST)}` is not uploaded"]
    assert plan["tasks"] == []
    assert applied.status_code == 200
    assert (then["changes"], then["warnings"]) == ([], [])


async def test_a_workload_changes_nothing_of_what_callers_of_its_task_see() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git")], task=[task("job", default_server_ids=["git"])])
        await keep(world)
        seen = await world.get("/api/v1/mcp/tools?task=job")
        changed = {**task("job", default_server_ids=["git"]), **body()}
        plan = await world.post("/admin/api/plan", {"kind": "task", "id": "job", "body": changed})
        await world.put(f"{TASKS}/job", changed)
        await world.served()

        assert plan["tasks"] == []
        assert [one["operation"] for one in plan["changes"]] == ["changed"]
        assert (await world.get("/api/v1/mcp/tools?task=job"))["tools"] == seen["tools"] != []


async def test_a_task_that_lost_its_module_can_still_be_changed_and_rolled_back_only_with_it() -> None:
    async with open_rest() as world:
        await keep(world)
        first = (await world.put(f"{TASKS}/job", body()))["revision"]
        await world.control.modules.remove(sha256(GUEST))
        changed = await world.request("PUT", f"{TASKS}/job", body(retries=1))
        await world.put(f"{TASKS}/job", {"task_id": "job"})
        back = await world.request("POST", f"{TASKS}/job/rollback", {"revision": first})

    assert changed.status_code == 200
    assert refusal(back)["code"] == "invalid_record"


async def test_secrets_of_a_workload_are_hidden_and_come_back_unchanged() -> None:
    """SEC-1"""
    secret = {"API_TOKEN": CANARY, "MODE": "fast"}
    async with open_rest() as world:
        await keep(world)
        written = await world.put(f"{TASKS}/job", body(env=secret, args=["--token", CANARY]))
        shown = await world.get(f"{TASKS}/job")
        sent_back = {**shown, "display_name": "Job"}
        await world.put(f"{TASKS}/job", sent_back)
        stored = await world.store.get("task", "job")
        moved = await world.request("PUT", f"{TASKS}/job", body(env={"MODE": "***"}))
        texts = [
            (await world.request("GET", f"{TASKS}/job/{view}")).text
            for view in ("history", f"diff?since={written['revision'] - 1}")
        ]

    assert shown["workload"]["env"] == {"API_TOKEN": "***", "MODE": "fast"}
    assert shown["workload"]["limits"]["max_fds"] == 64
    assert stored is not None
    assert stored.body["workload"]["env"] == secret
    assert stored.body["workload"]["args"] == ["--token", CANARY]
    assert refusal(moved)["code"] == "invalid_record"
    assert any("give the secret to a server" in one for one in written["warnings"])
    assert not any(CANARY in text for text in (*texts, str(written), str(shown), refusal(moved)["message"]))


async def test_a_bound_key_uploads_modules_and_removes_none() -> None:
    bound = "tg_bound_" + "y" * 40
    async with open_rest(trusts_local=False) as world:
        ceiling = {"tasks": ["job"]}
        await world.seed(
            key=[{"key_id": "bound", "sha256": hash_key(bound), "role": "admin", "ceiling": ceiling}]
        )
        uploaded = await upload(world, key=bound)
        own = await world.request("PUT", f"{TASKS}/job", body(), key=bound)
        others = await world.request("PUT", f"{TASKS}/other", body("other"), key=bound)
        removed = await world.request("DELETE", f"{MODULES}/{sha256(GUEST)}", key=bound)
        by_viewer = await upload(world, key=secret_of("viewer"))

    assert (uploaded.status_code, own.status_code) == (201, 201)
    assert [one.status_code for one in (others, removed, by_viewer)] == [403, 403, 403]
