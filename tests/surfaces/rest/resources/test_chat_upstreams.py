"""Chat upstreams over REST: written whole or not at all, and never with a secret in an answer."""

import logging
from typing import Any

import pytest

from tests.surfaces.rest_events import open_events
from tests.surfaces.rest_world import (
    CHAT_UPSTREAMS,
    KEYS,
    TASKS,
    WATCH,
    chat_upstream,
    error_of,
    open_rest,
    secret_of,
    task,
)
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.model.chat import ChatBudgets, ChatUpstream
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import ModelTrial

pytestmark = pytest.mark.anyio

LOCAL = f"{CHAT_UPSTREAMS}/local"
CANARY = "canary-7f3a9"


async def test_a_chat_upstream_is_created_read_replaced_and_deleted() -> None:
    async with open_rest() as world:
        created = await world.request("POST", CHAT_UPSTREAMS, chat_upstream("local"))
        read = await world.request("GET", LOCAL)
        listed = await world.get(CHAT_UPSTREAMS)
        replaced = await world.request("PUT", LOCAL, read.json() | {"mode": "passthrough"})
        await world.served()
        served = dict(world.control.gateway.snapshot.chat_upstreams)
        deleted = await world.request("DELETE", LOCAL)
        gone = await world.request("GET", LOCAL)
        await world.served()

        responses = (created, read, replaced, deleted, gone)
        assert [one.status_code for one in responses] == [201, 200, 200, 200, 404]
        assert gone.json()["error"]["message"] == "there is no chat upstream `local`"
        assert gone.json()["error"]["hint"] == "run `toolgate chat-upstreams list` for all that you can see"
        assert read.json() == {
            "upstream_id": "local",
            "base_url": "https://models.example/v1",
            "models": ["*"],
            "display_name": "",
            "headers": {},
            "mode": "inject",
            "name_profile": "default",
            "other_tools": "pass",
            "filter_undeclared_calls": False,
            "budgets": {
                "max_iterations": 8,
                "max_total_tool_calls": 32,
                "max_tool_output_bytes": 65_536,
                "tool_timeout_ms": 30_000,
                "wall_clock_ms": 300_000,
            },
            "answer_timeout_ms": 60_000,
            "max_concurrency": 64,
            "enabled": True,
            "revision": 2,
        }
        assert created.json() == {"revision": 2, "chat_upstream": read.json(), "warnings": []}
        assert listed.pop("digest")
        assert listed == {"revision": 2, "chat_upstreams": [read.json()], "next_cursor": None}
        assert served == {
            "local": ChatUpstream(
                upstream_id="local", base_url="https://models.example/v1", models=("*",), mode="passthrough"
            )
        }
        assert dict(world.control.gateway.snapshot.chat_upstreams) == {}


async def test_a_budget_that_is_named_alone_leaves_the_others_as_they_are() -> None:
    async with open_rest() as world:
        await world.put(LOCAL, chat_upstream("local", budgets={"max_iterations": 0}))
        stored = await world.store.get("chat_upstream", "local")
        await world.served()
        served = world.control.gateway.snapshot.chat_upstreams["local"]

    assert stored is not None
    assert stored.body == chat_upstream("local", budgets={"max_iterations": 0})
    assert served.budgets == ChatBudgets(max_iterations=0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"upstream_id": "Local"}, "Local`", id="an id of other letters"),
        pytest.param({"base_url": "models.example"}, "base_url", id="no URL"),
        pytest.param({"base_url": "ftp://models.example/v1"}, "base_url", id="not by HTTP"),
        pytest.param({"base_url": "https://ada:pw@models.example/"}, "base_url", id="a password in the URL"),
        pytest.param({"base_url": "https://models.example/${ENV:}"}, "base_url", id="half a reference"),
        pytest.param({"models": []}, "models", id="no model"),
        pytest.param({"models": "*"}, "models", id="no list of models"),
        pytest.param({"models": [""]}, "models[0]", id="a model without a name"),
        pytest.param({"models": ["a" * 257]}, "models[0]", id="a model with too long a name"),
        pytest.param({"auth_ref": "sk-live secret"}, "auth_ref", id="a secret in place of its name"),
        pytest.param({"headers": {"Host": "a"}}, "headers.Host", id="a header that Toolgate sets"),
        pytest.param({"headers": {"api-key": "a\nb"}}, "headers.api-key", id="a header of two lines"),
        pytest.param({"headers": {"a": "1", "A": "2"}}, "headers", id="a header twice"),
        pytest.param({"auth_ref": "k", "headers": {"Authorization": "x"}}, "auth_ref", id="two credentials"),
        pytest.param({"mode": "off"}, "mode", id="an unknown mode"),
        pytest.param({"name_profile": "short"}, "name_profile", id="an unknown profile of names"),
        pytest.param({"other_tools": "run"}, "other_tools", id="tools that no one may run"),
        pytest.param({"budgets": {"max_iterations": 101}}, "budgets.max_iterations", id="too many rounds"),
        pytest.param({"budgets": {"rounds": 1}}, "budgets.rounds", id="an unknown budget"),
        pytest.param({"budgets": None}, "budgets", id="null budgets"),
        pytest.param({"answer_timeout_ms": 0}, "answer_timeout_ms", id="no time to answer"),
        pytest.param({"max_concurrency": 0}, "max_concurrency", id="no one at once"),
        pytest.param({"enabled": "yes"}, "enabled", id="a word for a flag"),
        pytest.param({"model": "x"}, "model", id="an unknown field"),
    ],
)
async def test_what_is_wrong_with_a_chat_upstream_is_refused_by_its_field(
    fields: dict[str, Any], named: str
) -> None:
    async with open_rest() as world:
        response = await world.request("POST", CHAT_UPSTREAMS, {**chat_upstream("local"), **fields})

        assert error_of(response) == (400, "invalid_record")
        assert f"`{named}" in response.json()["error"]["message"]
        assert (await world.store.list("chat_upstream")).records == ()


@pytest.mark.parametrize(
    ("egress", "base_url"),
    [
        pytest.param(Egress(allow_private=True), "http://169.254.169.254/v1", id="cloud metadata"),
        pytest.param(Egress(allow_private=False), "http://10.0.0.1/v1", id="a private address"),
        pytest.param(
            Egress(allow_private=False, allowed_hosts=("api.example",)),
            "https://evil.example/v1",
            id="another host",
        ),
    ],
)
async def test_a_chat_upstream_is_only_where_the_operator_lets_the_gateway_connect(
    egress: Egress, base_url: str
) -> None:
    async with open_rest(operator_policy=OperatorPolicy(egress=egress)) as world:
        response = await world.request("PUT", LOCAL, chat_upstream("local", base_url=base_url))
        tried = await world.request("POST", f"{LOCAL}/test", chat_upstream("local", base_url=base_url))

    assert [error_of(one) for one in (response, tried)] == [(400, "invalid_record")] * 2
    assert "`base_url`" in response.json()["error"]["message"]


async def test_cht_12_no_answer_log_or_audit_record_shows_what_a_chat_upstream_is_called_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CHT-12, SEC-1"""
    caplog.set_level(logging.DEBUG)
    body = chat_upstream(
        "local",
        headers={"api-key": CANARY, "X-Team": "tools", "X-Token": f"${{ENV:TOKEN:-{CANARY}}}"},
        base_url=f"https://models.example/v1/{CANARY.replace('canary', 'sk-live-canary-canary')}",
    )
    async with open_rest() as world:
        written = await world.request("PUT", LOCAL, body)
        shown = (await world.request("GET", LOCAL)).json()
        kept = await world.request("PUT", LOCAL, shown | {"display_name": "Local"})
        plan = {"kind": "chat_upstream", "id": "local", "body": {**body, "models": ["a"]}}
        texts = [
            written.text,
            kept.text,
            (await world.request("GET", CHAT_UPSTREAMS)).text,
            (await world.request("GET", f"{LOCAL}/history")).text,
            (await world.request("GET", f"{LOCAL}/diff?since=1")).text,
            (await world.request("POST", "/admin/api/plan", plan)).text,
            (await world.request("PUT", LOCAL, {**body, "models": 7})).text,
            caplog.text,
            str(world.audited),
        ]
        stored = await world.store.get("chat_upstream", "local")

    assert shown["headers"] == {"api-key": "***", "X-Team": "tools", "X-Token": "${ENV:TOKEN:-***}"}
    assert [text for text in texts if CANARY in text] == []
    assert stored is not None
    assert stored.body == {**body, "display_name": "Local"}
    assert written.json()["warnings"] == [
        f"chat upstream `local`, `{field}`: the record contains a secret as plain text; use `${{ENV:NAME}}`"
        for field in ("base_url", "headers.api-key", "headers.X-Token")
    ]


async def test_a_mask_that_hides_nothing_is_not_stored_as_if_it_were_the_value() -> None:
    async with open_rest() as world:
        response = await world.request("PUT", LOCAL, chat_upstream("local", headers={"api-key": "***"}))

    assert error_of(response) == (400, "invalid_record")
    assert "`headers.api-key`: `***` is the mask of a secret" in response.json()["error"]["message"]


async def test_a_key_that_is_bound_to_anything_writes_no_chat_upstream() -> None:
    async with open_rest() as world:
        made = await world.post(KEYS, {"key_id": "some", "role": "admin", "ceiling": {"servers": ["git"]}})
        await world.seed(chat_upstream=[chat_upstream("local")])
        responses = [
            await world.request("PUT", LOCAL, chat_upstream("local", mode="passthrough"), key=made["secret"]),
            await world.request("DELETE", LOCAL, key=made["secret"]),
        ]

    assert [error_of(one) for one in responses] == [(403, "forbidden")] * 2
    assert "a chat upstream is for all callers" in responses[0].json()["error"]["message"]


async def test_what_a_chat_upstream_was_is_in_its_history_and_comes_back() -> None:
    async with open_rest() as world:
        await world.put(LOCAL, chat_upstream("local"))
        await world.put(LOCAL, chat_upstream("local", models=["gpt-*"], budgets={"max_iterations": 2}))
        history = await world.get(f"{LOCAL}/history")
        diff = await world.get(f"{LOCAL}/diff?since=2")
        back = await world.post(f"{LOCAL}/rollback", {"revision": 2})

    changed = [
        {"field": "models", "before": ["*"], "after": ["gpt-*"]},
        {"field": "budgets.max_iterations", "before": "(default)", "after": 2},
    ]
    assert [entry["revision"] for entry in history["entries"]] == [3, 2]
    assert history["entries"][0]["fields"] == diff["fields"] == changed
    assert back["chat_upstream"]["models"] == ["*"]


async def test_a_plan_of_a_chat_upstream_changes_no_task_and_holds_the_change_to_what_it_showed() -> None:
    async with open_rest(operator_policy=OperatorPolicy(requires_plan=True)) as world:
        await world.seed(task=[task("review")], chat_upstream=[chat_upstream("old")])
        change = {"kind": "chat_upstream", "id": "local", "body": chat_upstream("local")}
        plan = await world.post("/admin/api/plan", {"changes": [change], "prune": False})
        unplanned = await world.request("PUT", LOCAL, chat_upstream("local"))
        applied = await world.post("/admin/api/apply", {"changes": [change], "plan": plan["id"]})
        other = await world.request(
            "PUT", LOCAL, chat_upstream("local", models=["a"]), toolgate_plan=plan["id"]
        )

    assert (plan["tasks"], plan["unchanged"]) == ([], 1)
    assert [(one["operation"], one["id"]) for one in applied["changes"]] == [("added", "local")]
    assert error_of(unplanned)[1] == "plan_required"
    assert error_of(other)[1] == "plan_outdated"


async def test_pruning_removes_the_chat_upstreams_that_are_not_among_the_changes() -> None:
    async with open_rest() as world:
        await world.seed(chat_upstream=[chat_upstream("old"), chat_upstream("local")])
        changes = [{"kind": "chat_upstream", "id": "local", "body": chat_upstream("local")}]
        applied = await world.post("/admin/api/apply", {"changes": changes, "prune": True})

        assert [(one["operation"], one["id"]) for one in applied["changes"]] == [("removed", "old")]
        assert [one.id for one in (await world.store.list("chat_upstream")).records] == ["local"]


async def test_who_may_look_at_chat_upstreams_is_shown_of_their_changes() -> None:
    async with (
        open_rest() as world,
        open_events(world.api, f"{WATCH}?since=1&kinds=chat_upstream", key=secret_of("viewer")) as stream,
    ):
        await world.put(LOCAL, chat_upstream("local", headers={"api-key": CANARY}))
        await world.seed(task=[task("review")])
        await world.request("DELETE", LOCAL)
        received = [event.data for event in await stream.read(5)][2:]

    assert all(data.pop("digest") for data in received)
    assert received == [
        {"revision": 2, "upserts": [{"kind": "chat_upstream", "id": "local"}], "deletes": []},
        {"revision": 3},
        {"revision": 4, "upserts": [], "deletes": [{"kind": "chat_upstream", "id": "local"}]},
    ]


async def test_a_publisher_applies_tasks_and_no_chat_upstream() -> None:
    async with open_rest() as world:
        changes = [
            {"kind": "task", "id": "review", "body": task("review")},
            {"kind": "chat_upstream", "id": "local", "body": chat_upstream("local")},
        ]
        response = await world.request(
            "POST", "/admin/api/apply", {"changes": changes}, key=secret_of("publisher")
        )

        assert error_of(response) == (403, "forbidden")
        assert response.json()["error"]["message"] == "writing a chat upstream requires the role `admin`"
        assert await world.store.get("task", "review") is None


async def test_what_a_task_says_of_chats_is_checked_when_it_is_written() -> None:
    async with open_rest() as world:
        good = {"chat.mode": "passthrough", "chat.budgets": {"max_iterations": 1}}
        wrong = await world.request("PUT", f"{TASKS}/a", {"config": {**good, "chat.mode": '"off"'}})
        unknown = await world.request("PUT", f"{TASKS}/a", {"config": {**good, "chat.model": '"gpt"'}})
        good["chat.mode"] = '"passthrough"'
        written = await world.put(f"{TASKS}/a", {"config": good})

    assert [error_of(one) for one in (wrong, unknown)] == [(400, "invalid_record")] * 2
    assert "`chat.mode`" in wrong.json()["error"]["message"]
    assert "unknown key `chat.model`" in unknown.json()["error"]["message"]
    assert written["task"]["config"] == {
        "chat.mode": '"passthrough"',
        "chat.budgets": '{"max_iterations":1}',
    }


async def test_a_trial_says_which_models_callers_would_get() -> None:
    asked: list[ChatUpstream] = []

    async def try_models(upstream: ChatUpstream) -> ModelTrial:
        asked.append(upstream)
        return ModelTrial(took_ms=12, models=("gpt-5", "whisper", "gpt-4"))

    async with open_rest(try_models=try_models) as world:
        await world.seed(chat_upstream=[chat_upstream("local", models=["gpt-*"])])
        saved = await world.post(f"{LOCAL}/test")
        sent = await world.post(f"{LOCAL}/test", chat_upstream("local", models=["*"]))
        audited = [(one.operation, one.kind, one.record_id) for one in world.audited]
        missing = await world.request("POST", f"{CHAT_UPSTREAMS}/none/test")

        stored = await world.store.get("chat_upstream", "local")

    assert saved == {
        "ok": True,
        "took_ms": 12,
        "found": 3,
        "admitted": ["gpt-4", "gpt-5"],
        "others": ["whisper"],
        "error": "",
        "hint": "",
    }
    assert (sent["admitted"], sent["others"]) == (["gpt-4", "gpt-5", "whisper"], [])
    assert [one.models for one in asked] == [("gpt-*",), ("*",)]
    assert audited == [("test", "chat_upstream", "local")] * 2
    assert error_of(missing) == (404, "not_found")
    assert stored is not None
    assert stored.body["models"] == ["gpt-*"]


async def test_a_trial_that_fails_says_why_and_what_to_do() -> None:
    async def try_models(_upstream: ChatUpstream) -> ModelTrial:
        return ModelTrial(took_ms=3, error=f"no: Bearer {CANARY}", hint="check the key")

    async with open_rest(try_models=try_models) as world:
        report = await world.post(f"{LOCAL}/test", chat_upstream("local"))

    assert (report["ok"], report["found"], report["hint"]) == (False, 0, "check the key")
    assert report["error"] == "no: Bearer ***"
