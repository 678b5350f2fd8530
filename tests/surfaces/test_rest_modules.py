"""Modules over REST, and the tasks that name them."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from wasmtime import wat2wasm

from tests.surfaces.rest_house import TASKS, RestHouse, open_rest, secret_of, stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.packages import modules as stored_modules

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


async def upload(house: RestHouse, content: bytes = GUEST, *, key: str | None = None) -> httpx2.Response:
    return await house.ask("POST", MODULES, content, key=key, content_type="application/wasm")


def refusal(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    return found


async def keep(house: RestHouse, content: bytes = GUEST) -> None:
    """Put a module into the store, past the check."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        await house.control.modules.put(Path(file.name), sha256=sha256(content))


async def test_a_module_is_uploaded_listed_named_by_a_task_and_then_not_removed() -> None:
    async with open_rest() as house:
        first, again = await upload(house), await upload(house)
        written = await house.ask("PUT", f"{TASKS}/job", body(args=["x"]))
        listed = await house.get(MODULES)
        one = await house.get(f"{MODULES}/{sha256(GUEST)}")
        used = await house.ask("DELETE", f"{MODULES}/{sha256(GUEST)}")
        await house.ask("DELETE", f"{TASKS}/job")
        removed = await house.ask("DELETE", f"{MODULES}/{sha256(GUEST)}")
        gone = await house.ask("GET", f"{MODULES}/{sha256(GUEST)}")

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
    assert [(one.operation, one.kind) for one in house.audited if one.kind == "module"] == [
        ("upload", "module"),
        ("remove", "module"),
    ]


async def test_a_module_in_parts_is_checked_against_its_hash_and_kept() -> None:
    path = f"/api/uploads/{sha256(GUEST)}"
    async with open_rest() as house:
        for number, part in enumerate((GUEST[:20], GUEST[20:]), 1):
            await house.ask("PUT", f"{path}/{number}", part, content_type="application/octet-stream")
        kept = await house.ask("POST", f"{MODULES}/{sha256(GUEST)}", {"parts": 2})
        other = f"/api/uploads/{'0' * 64}"
        await house.ask("PUT", f"{other}/1", GUEST, content_type="application/octet-stream")
        mixed_up = await house.ask("POST", f"{MODULES}/{'0' * 64}", {"parts": 1})
        listed = (await house.get(MODULES))["modules"]

    assert kept.json()["sha256"] == sha256(GUEST)
    assert refusal(mixed_up)["code"] == "invalid_request"
    assert [one["sha256"] for one in listed] == [sha256(GUEST)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(STRANGER, "env.system", id="calls what is not there"),
        pytest.param(b"#!/bin/sh\n", "", id="no module"),
        pytest.param(GUEST[:-4], "", id="cut off"),
    ],
)
async def test_a_module_that_cannot_be_run_is_not_kept(content: bytes, said: str) -> None:
    async with open_rest() as house:
        answer = await upload(house, content)
        listed = await house.get(MODULES)

    assert refusal(answer)["code"] == "invalid_module"
    assert said in refusal(answer)["message"]
    assert listed == {"modules": []}


async def test_a_module_that_is_too_large_is_refused_before_anybody_looks_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WAS-2"""
    monkeypatch.setattr(stored_modules, "MAX_MODULE_BYTES", 100)
    async with open_rest() as house:
        answer = await upload(house, os.urandom(101))

    assert (answer.status_code, refusal(answer)["code"]) == (413, "too_large")


async def test_a_task_is_not_given_a_module_that_is_not_there() -> None:
    """Neither by itself nor with others; a plan says that it is to come."""
    async with open_rest() as house:
        changes = {"changes": [{"kind": "task", "id": "job", "body": body()}]}
        alone = await house.ask("PUT", f"{TASKS}/job", body())
        together = await house.ask("POST", "/admin/api/apply", changes)
        plan = await house.post("/admin/api/plan", changes)
        await keep(house)
        applied = await house.ask("POST", "/admin/api/apply", changes)
        then = await house.post("/admin/api/plan", changes)

    for refused in (alone, together):
        assert refusal(refused)["code"] == "invalid_record"
        assert f"there is no module `{sha256(GUEST)}`" in refusal(refused)["message"]
        assert "toolgate modules upload" in refusal(refused)["hint"]
    assert "task `job`" in refusal(together)["message"]
    assert plan["warnings"] == [f"task `job`, `workload.module`: `{sha256(GUEST)}` is not uploaded yet"]
    assert plan["tasks"] == []
    assert applied.status_code == 200
    assert (then["changes"], then["warnings"]) == ([], [])


async def test_a_workload_changes_nothing_of_what_callers_of_its_task_see() -> None:
    async with open_rest() as house:
        await house.seed(server=[stdio("git")], task=[task("job", default_server_ids=["git"])])
        await keep(house)
        seen = await house.get("/api/v1/mcp/tools?task=job")
        changed = {**task("job", default_server_ids=["git"]), **body()}
        plan = await house.post("/admin/api/plan", {"kind": "task", "id": "job", "body": changed})
        await house.put(f"{TASKS}/job", changed)
        await house.served()

        assert plan["tasks"] == []
        assert [one["operation"] for one in plan["changes"]] == ["changed"]
        assert (await house.get("/api/v1/mcp/tools?task=job"))["tools"] == seen["tools"] != []


async def test_a_task_whose_module_was_lost_can_still_be_changed_and_rolled_back_only_with_it() -> None:
    async with open_rest() as house:
        await keep(house)
        first = (await house.put(f"{TASKS}/job", body()))["revision"]
        await house.control.modules.remove(sha256(GUEST))
        changed = await house.ask("PUT", f"{TASKS}/job", body(retries=1))
        await house.put(f"{TASKS}/job", {"task_id": "job"})
        back = await house.ask("POST", f"{TASKS}/job/rollback", {"revision": first})

    assert changed.status_code == 200
    assert refusal(back)["code"] == "invalid_record"


async def test_secrets_of_a_workload_are_hidden_and_come_back_unchanged() -> None:
    """SEC-1"""
    secret = {"API_TOKEN": CANARY, "MODE": "fast"}
    async with open_rest() as house:
        await keep(house)
        written = await house.put(f"{TASKS}/job", body(env=secret, args=["--token", CANARY]))
        shown = await house.get(f"{TASKS}/job")
        sent_back = {**shown, "display_name": "Job"}
        await house.put(f"{TASKS}/job", sent_back)
        stored = await house.store.get("task", "job")
        moved = await house.ask("PUT", f"{TASKS}/job", body(env={"MODE": "***"}))
        texts = [
            (await house.ask("GET", f"{TASKS}/job/{view}")).text
            for view in ("history", f"diff?since={written['revision'] - 1}")
        ]

    assert shown["workload"]["env"] == {"API_TOKEN": "***", "MODE": "fast"}
    assert shown["workload"]["limits"]["max_fds"] == 64
    assert stored is not None
    assert stored.body["workload"]["env"] == secret
    assert stored.body["workload"]["args"] == ["--token", CANARY]
    assert refusal(moved)["code"] == "invalid_record"
    assert any("give it to a server" in one for one in written["warnings"])
    assert not any(CANARY in text for text in (*texts, str(written), str(shown), refusal(moved)["message"]))


async def test_a_bound_key_uploads_modules_and_removes_none() -> None:
    bound = "tg_bound_" + "y" * 40
    async with open_rest(trusts_local=False) as house:
        ceiling = {"tasks": ["job"]}
        await house.seed(
            key=[{"key_id": "bound", "sha256": hash_key(bound), "role": "admin", "ceiling": ceiling}]
        )
        uploaded = await upload(house, key=bound)
        own = await house.ask("PUT", f"{TASKS}/job", body(), key=bound)
        others = await house.ask("PUT", f"{TASKS}/other", body("other"), key=bound)
        removed = await house.ask("DELETE", f"{MODULES}/{sha256(GUEST)}", key=bound)
        by_viewer = await upload(house, key=secret_of("viewer"))

    assert (uploaded.status_code, own.status_code) == (201, 201)
    assert [one.status_code for one in (others, removed, by_viewer)] == [403, 403, 403]
