"""Guards in front of calls that a change weakens are warnings of, each in a sentence; others are not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.policy.worlds import offer, snapshot
from toolgate.model.servers import ApprovalPolicy
from toolgate.model.tasks import Task
from toolgate.model.tools import ServerTools
from toolgate.policy.admission import find_weakened_guards


def task(**config: Any) -> Task:
    texts = {f"mcp.{key}": json.dumps(value) for key, value in config.items()}
    return Task(task_id="t", config=texts)


def server(policy: ApprovalPolicy) -> ServerTools:
    found = offer("s", "a", "b", "c", "d", "e")
    return replace(found, record=replace(found.record, approval_policy=policy))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            task(budgets={"calls_per_day": 5}),
            task(),
            ["task `t`, `mcp.budgets`: the quotas are larger than before"],
            id="a budget that goes",
        ),
        pytest.param(
            task(budgets={"calls_per_day": 5}),
            task(budgets={"calls_per_day": 6, "calls_per_minute": 1}),
            ["task `t`, `mcp.budgets`: the quotas are larger than before"],
            id="a budget that grows",
        ),
        pytest.param(task(), task(budgets={"calls_per_day": 5}), [], id="a budget that is set"),
        pytest.param(
            task(approval_policy="always"),
            task(approval_policy="policy"),
            ["task `t`, `mcp.approval_policy`: `policy` instead of `always`: fewer calls need an approval"],
            id="fewer approvals",
        ),
        pytest.param(
            task(approval_policy="policy", approval_in_place=False),
            task(approval_policy="always"),
            ["task `t`, `mcp.approval_in_place`: the user of the calling client may approve"],
            id="approvals in place",
        ),
        pytest.param(task(enabled=7), task(), [], id="one that cannot be read"),
    ],
)
def test_what_a_change_of_a_task_lifts(before: Task, after: Task, expected: list[str]) -> None:
    assert [*find_weakened_guards(snapshot(tasks=(before,)), snapshot(tasks=(after,)))] == expected
    same = snapshot(server(ApprovalPolicy()), tasks=(before,))
    assert [*find_weakened_guards(same, same)] == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            ApprovalPolicy(default="always"),
            ApprovalPolicy(per_tool={"a": "always"}),
            ["calls of `b`, `c`, `d` and 1 more no longer need an approval"],
            id="most are free",
        ),
        pytest.param(
            ApprovalPolicy(per_tool={"a": "always"}),
            ApprovalPolicy(),
            ["calls of `a` no longer need an approval"],
            id="one is free",
        ),
        pytest.param(
            ApprovalPolicy(default="always", in_place=False),
            ApprovalPolicy(default="always"),
            ["the user of the calling client may approve"],
            id="approvals in place",
        ),
        pytest.param(ApprovalPolicy(), ApprovalPolicy(default="always"), [], id="more wait"),
    ],
)
def test_what_a_change_of_a_server_lifts(
    before: ApprovalPolicy, after: ApprovalPolicy, expected: list[str]
) -> None:
    warnings = [*find_weakened_guards(snapshot(server(before)), snapshot(server(after)))]

    assert warnings == [f"server `s`, `approval_policy`: {what}" for what in expected]
