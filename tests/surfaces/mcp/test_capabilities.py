"""Which of a client's capabilities a server hears of."""

import json
from typing import Any

import pytest

from toolgate.surfaces.mcp.dispatch import MAX_BYTES, filter_client_capabilities
from toolgate.upstream.connection.contract import NO_CAPABILITIES

TASKS = "io.modelcontextprotocol/tasks"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}, id="with its settings"),
        pytest.param(
            {"sampling": {}, "roots": {}, "tasks": {}}, {"roots": {}, "sampling": {}}, id="no tasks"
        ),
        pytest.param({"experimental": {"x": {}}}, {}, id="what no one knows is not carried"),
        pytest.param({"extensions": {TASKS: {}}}, {}, id="a task would be lost"),
        pytest.param(
            {"extensions": {"x/ui": {"a": 1}, TASKS: {}}},
            {"extensions": {"x/ui": {"a": 1}}},
            id="other extensions pass",
        ),
        pytest.param({"sampling": True, "roots": None}, {}, id="not an object"),
        pytest.param([1], {}, id="no object at all"),
        pytest.param(
            {"sampling": {}, "extensions": {"x": {"y": "z" * MAX_BYTES}}}, {"sampling": {}}, id="too long"
        ),
    ],
)
def test_what_is_carried_of_a_clients_capabilities(sent: Any, expected: Any) -> None:
    assert json.loads(filter_client_capabilities(json.dumps(sent).encode())) == expected


def test_nothing_sent_is_nothing_carried() -> None:
    assert filter_client_capabilities(None) == NO_CAPABILITIES
