"""The answers these tests work with have the members that a gateway's answers have."""

from typing import Any

import pytest
from msgspec.structs import fields

from tests.cli.answers import applied, change, node, plan, task_plan
from tests.cli.commands.test_governing import entry, on_node, tool
from toolgate.surfaces.rest.resources.changes import ApplyAnswer, ChangeShown, PlanAnswer, TaskPlan
from toolgate.surfaces.rest.resources.collection import EntryShown
from toolgate.surfaces.rest.resources.registry import NodeShown
from toolgate.surfaces.rest.resources.servers import ServerOnNode
from toolgate.surfaces.rest.resources.trials import ToolPreview


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        (applied(), ApplyAnswer),
        (change("added", "task", "t"), ChangeShown),
        (entry(1, "put"), EntryShown),
        (plan(), PlanAnswer),
        (task_plan("t"), TaskPlan),
        (node("a"), NodeShown),
        (on_node("a"), ServerOnNode),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_answer_has_the_members_of_its_shape(answer: dict[str, Any], shape: Any) -> None:
    assert set(answer) == {one.name for one in fields(shape)}


@pytest.mark.parametrize(("answer", "shape"), [(tool("git_a"), ToolPreview)], ids=["ToolPreview"])
def test_what_is_read_of_an_answer_is_in_its_shape(answer: dict[str, Any], shape: Any) -> None:
    assert set(answer) <= {one.name for one in fields(shape)}
