"""Definitions as servers send them, for the tests of this package."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from toolgate.catalog.checks import QuarantinedDefinition
from toolgate.catalog.definitions import check_definition
from toolgate.model.tools import Revision, ToolDefinition

REVISIONS: dict[Revision, str] = {"legacy": "2025-11-25", "modern": "2026-07-28"}
INPUT: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}


def tool(**members: Any) -> bytes:
    """A definition that passes, with `members` changed; one that is `...` is left out."""
    definition = {"name": "read_file", "description": "Reads a file.", "inputSchema": INPUT} | members
    return msgspec.json.encode({key: value for key, value in definition.items() if value is not ...})


def checked(**members: Any) -> ToolDefinition:
    """What the definition `tool(**members)` becomes; it must pass."""
    definition = check_definition("fs", tool(**members))
    assert isinstance(definition, ToolDefinition), definition
    return definition


def refusal(**members: Any) -> str:
    """Why the definition `tool(**members)` is quarantined; it must be."""
    verdict = check_definition("fs", tool(**members))
    assert isinstance(verdict, QuarantinedDefinition), verdict
    return verdict.reason


def members_of(definition: ToolDefinition) -> dict[str, Any]:
    """The checked JSON, decoded."""
    members: dict[str, Any] = msgspec.json.decode(definition.raw)
    return members


SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "array", "a", "#/a"])
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "$ref", "$schema", "src", "a"]), inner
        )
    ),
    max_leaves=8,
)
