"""What the audit has of a use is enough for the least policy to let it through again."""

from functools import partial

import pytest

from tests.policy.worlds import offer, snapshot
from toolgate.audit.index.statements import ToolUse
from toolgate.gateway.scope.routes import decide_unlisted
from toolgate.govern.least_privilege import ToolUsage, group_by_tool, with_plain_uris
from toolgate.model.names import MAX_AUDITED_NAME, ToolRef
from toolgate.policy.compose import decide_one
from toolgate.policy.layers import TaskPolicy
from toolgate.policy.learn import learn
from toolgate.policy.resolve import ScopeInputs

PLATFORM = snapshot(offer("fs", "read", allowed=("*", "resource:*")))
TASK = TaskPolicy(task_id="t", enabled=True, default=("fs",))


def audited(name: str, calls: int = 1, last_ms: int = 5, holder: str = "t") -> ToolUse:
    return ToolUse(holder, "fs", name[:MAX_AUDITED_NAME], calls, last_ms)


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param("file:///docs/a", id="plain"),
        pytest.param("FILE://localhost/docs//a%20b", id="written otherwise than it is meant"),
        pytest.param("file:///docs/a?b=c", id="with a sign that is a wildcard"),
        pytest.param(f"file:///{'long/' * 100}", id="longer than the audit keeps"),
    ],
)
def test_a_resource_that_was_read_once_can_be_read_again_however_its_uri_was_written(uri: str) -> None:
    used = group_by_tool([audited(f"resource:{uri}")])
    lesson = learn(PLATFORM, TASK, set(with_plain_uris(used)))
    decide = partial(decide_one, ScopeInputs(PLATFORM, task=lesson.policy))

    def allows(read: str) -> bool:
        decision = decide_unlisted(decide, "fs", read)
        return decision is not None and decision.allowed

    assert allows(uri)
    assert not allows("file:///docs/other")


def test_uses_of_several_holders_are_added_up() -> None:
    uses = [audited("read", 2, 5), audited("read", 1, 9, holder="u"), audited("write", 0, 3)]

    assert group_by_tool(uses) == {
        ToolRef("fs", "read"): ToolUsage(3, 9),
        ToolRef("fs", "write"): ToolUsage(0, 3),
    }
