"""The answers these tests work with have the members that a gateway's answers have."""

from typing import Any

import pytest
from msgspec.structs import fields

from tests.cli.commands.test_governing import entry, on_node, tool
from tests.cli.responses import applied, change, node, plan, task_plan
from toolgate.surfaces.rest.resources.changes import ApplyResponse, ChangeShown, PlanResponse, TaskPlan
from toolgate.surfaces.rest.resources.collection import EntryShown
from toolgate.surfaces.rest.resources.registry import NodeShown
from toolgate.surfaces.rest.resources.servers import ServerOnNode
from toolgate.surfaces.rest.resources.trials import ToolPreview


@pytest.mark.parametrize(
    ("response", "shape"),
    [
        (applied(), ApplyResponse),
        (change("added", "task", "t"), ChangeShown),
        (entry(1, "put"), EntryShown),
        (plan(), PlanResponse),
        (task_plan("t"), TaskPlan),
        (node("a"), NodeShown),
        (on_node("a"), ServerOnNode),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_answer_has_the_members_of_its_shape(response: dict[str, Any], shape: Any) -> None:
    assert set(response) == {one.name for one in fields(shape)}


@pytest.mark.parametrize(("response", "shape"), [(tool("git_a"), ToolPreview)], ids=["ToolPreview"])
def test_what_is_read_of_an_answer_is_in_its_shape(response: dict[str, Any], shape: Any) -> None:
    assert set(response) <= {one.name for one in fields(shape)}
