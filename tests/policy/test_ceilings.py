"""Whether a ceiling contains one tool, as an approver's must."""

import pytest

from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling
from toolgate.model.tools import UNSTATED
from toolgate.policy.rules import is_in_ceiling


@pytest.mark.parametrize(
    ("ceiling", "contained"),
    [
        (Ceiling(), True),
        (Ceiling(tasks=("review",)), True),
        (Ceiling(tasks=("other",)), False),
        (Ceiling(servers=("git",)), True),
        (Ceiling(servers=()), False),
        (Ceiling(allow=("git/*",)), True),
        (Ceiling(allow=("log",)), False),
        (Ceiling(deny=("push",)), False),
        (Ceiling(deny=("fs/*",)), True),
    ],
)
def test_try_9_a_ceiling_contains_what_each_of_its_parts_does(ceiling: Ceiling, contained: bool) -> None:
    assert is_in_ceiling(ceiling, ToolRef("git", "push"), task_id="review", effects=UNSTATED) == contained


@pytest.mark.parametrize(
    ("ceiling", "contained"), [(Ceiling(deny=("push?all",)), False), (Ceiling(allow=("push?all",)), True)]
)
def test_a_ceiling_speaks_of_the_native_name_of_a_tool_with_an_alias(
    ceiling: Ceiling, contained: bool
) -> None:
    alias = ToolRef("git", "push_all_0a1b2c3d")

    assert is_in_ceiling(ceiling, alias, task_id=None, native_name="push all", effects=UNSTATED) == contained


def test_a_ceiling_of_tasks_contains_nothing_without_a_task() -> None:
    assert not is_in_ceiling(
        Ceiling(tasks=("review",)), ToolRef("git", "push"), task_id=None, effects=UNSTATED
    )
