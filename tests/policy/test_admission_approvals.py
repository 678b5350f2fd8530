"""Which tools are called only after a person has agreed, and by which rule."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from tests.policy.worlds import offer, refs, snapshot
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.tasks import Task
from toolgate.model.tools import Snapshot, read_effects
from toolgate.policy.admission import find_requirements
from toolgate.policy.compose import compose
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import ApprovalRequirement

NOT_READ_ONLY = "policy, and the tool is not marked as read-only"
TOOLS = refs("fs/delete", "fs/read", "fs/write", "git/log")


def platform(default: Approval = "never", **per_tool: Approval) -> Snapshot:
    """A server `fs` with this policy, whose `read` only reads; and a server `git` with none."""
    fs = offer("fs", "delete", "read", "write")
    names = {name.replace("_any", "*").replace("_one", "?"): asked for name, asked in per_tool.items()}
    policy = ApprovalPolicy(default=default, per_tool=MappingProxyType(names))
    tools = {
        name: replace(tool, effects=read_effects({"readOnlyHint": name == "read"}))
        for name, tool in fs.tools.items()
    }
    record = replace(fs.record, approval_policy=policy)
    return snapshot(replace(fs, record=record, tools=MappingProxyType(tools)), offer("git", "log"))


def found(world: Snapshot, by_task: Approval = "never") -> Mapping[str, ApprovalRequirement]:
    return {
        str(ref): demand
        for ref, demand in find_requirements(world, TOOLS, TaskPolicy(task_id="t", approval=by_task)).items()
    }


@pytest.mark.requirement("002-011", "002-026")
@pytest.mark.parametrize(
    ("world", "expected"),
    [
        pytest.param(platform(), [], id="no approval by default"),
        pytest.param(platform("always"), ["delete", "read", "write"], id="always"),
        pytest.param(platform("policy"), ["delete", "write"], id="policy asks for all that may write"),
        pytest.param(platform(delete="always"), ["delete"], id="one tool"),
        pytest.param(platform("always", read="never"), ["delete", "write"], id="one tool less"),
        pytest.param(
            platform("always", write="policy", read="policy"), ["delete", "write"], id="one by policy"
        ),
        pytest.param(platform(_any="always", read="never"), ["delete", "write"], id="a name beats a pattern"),
        pytest.param(platform("always", _any="never", w_any="policy"), ["write"], id="the strictest pattern"),
        pytest.param(
            platform("always", rea_one="never"), ["delete", "write"], id="a pattern beats the default"
        ),
    ],
)
def test_a_server_says_which_of_its_tools_wait(world: Snapshot, expected: list[str]) -> None:
    assert list(found(world)) == [f"fs/{name}" for name in expected]


@pytest.mark.parametrize(
    ("world", "by_task", "expected"),
    [
        pytest.param(platform(), "policy", ["fs/delete", "fs/write", "git/log"], id="policy over never"),
        pytest.param(platform(), "always", [str(ref) for ref in TOOLS], id="always over never"),
        pytest.param(platform("policy"), "always", [str(ref) for ref in TOOLS], id="always over policy"),
        pytest.param(platform("always"), "never", ["fs/delete", "fs/read", "fs/write"], id="not less"),
        pytest.param(
            platform(read="always", delete="never"),
            "policy",
            ["fs/delete", "fs/read", "fs/write", "git/log"],
            id="both",
        ),
    ],
)
def test_a_task_asks_for_more_and_never_for_less(
    world: Snapshot, by_task: Approval, expected: list[str]
) -> None:
    assert list(found(world, by_task)) == expected


def test_each_says_by_which_layer_and_rule() -> None:
    assert found(platform("policy", delete="always", r_any="always")) == {
        "fs/delete": ApprovalRequirement("platform", "approval_policy per_tool `delete`: always"),
        "fs/read": ApprovalRequirement("platform", "approval_policy per_tool `r*`: always"),
        "fs/write": ApprovalRequirement("platform", f"approval_policy default: {NOT_READ_ONLY}"),
    }
    assert found(platform(), "policy")["git/log"] == ApprovalRequirement(
        "task", f"mcp.approval_policy: {NOT_READ_ONLY}"
    )
    assert found(platform("policy"), "always")["fs/write"] == ApprovalRequirement(
        "task", "mcp.approval_policy: always"
    )


def test_a_scope_has_them_and_lists_what_it_lists_anyway() -> None:
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",), deny=("write",), approval="always")
    scope = compose(ScopeInputs(platform(), task=task))

    assert scope.tools == refs("fs/delete", "fs/read")
    assert scope.approvals == dict.fromkeys(
        scope.tools, ApprovalRequirement("task", "mcp.approval_policy: always")
    )
    plain = compose(ScopeInputs(platform(delete="always")))
    assert list(plain.approvals) == [ToolRef("fs", "delete")]


@pytest.mark.parametrize("asked", ["never", "policy", "always"])
def test_a_task_says_it_in_its_config(asked: str) -> None:
    task = Task(task_id="t", config={"mcp.approval_policy": f'"{asked}"'})

    assert parse_task_policy(task).approval == asked
    assert parse_task_policy(Task(task_id="t")).approval == "never"


@pytest.mark.parametrize(
    "text", ["always", '"sometimes"', "null", "true", '["always"]', '{"default":"always"}']
)
def test_a_task_that_says_it_otherwise_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"mcp\.approval_policy"):
        parse_task_policy(Task(task_id="t", config={"mcp.approval_policy": text}))


@pytest.mark.parametrize(
    ("by_server", "by_task", "expected"),
    [
        pytest.param(True, None, True, id="the calling client may approve by default"),
        pytest.param(False, None, False, id="the server says otherwise"),
        pytest.param(True, "false", False, id="the task does"),
        pytest.param(False, "true", False, id="a task cannot take it back"),
    ],
)
def test_a_server_and_a_task_may_leave_the_answer_to_others(
    by_server: bool, by_task: str | None, expected: bool
) -> None:
    world = snapshot(offer("git", "log"))
    policy = ApprovalPolicy(default="always", in_place=by_server)
    git = replace(world.servers["git"], record=replace(world.servers["git"].record, approval_policy=policy))
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["git"]'}
    if by_task is not None:
        config["mcp.approval_in_place"] = by_task
    task = parse_task_policy(Task(task_id="t", config=config))
    scope = compose(ScopeInputs(snapshot(git), task=task))

    assert [demand.in_place for demand in scope.approvals.values()] == [expected]


def test_whether_the_calling_client_may_approve_is_true_or_false() -> None:
    with pytest.raises(InvalidRecord, match="approval_in_place"):
        parse_task_policy(Task(task_id="t", config={"mcp.approval_in_place": '"no"'}))
