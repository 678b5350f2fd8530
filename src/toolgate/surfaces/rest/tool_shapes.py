"""The shapes of tools as an administrator looks at them, in and out."""

from toolgate.model.tools import ListState
from toolgate.policy.scope import Layer, Reason
from toolgate.surfaces.rest.data_plane.policy_shapes import DecisionShown
from toolgate.surfaces.rest.shapes import Revision, Shown


class ToolPreview(Shown, frozen=True, kw_only=True):
    """One tool a server lists, and what becomes of it."""

    tool: str
    """As the server calls it."""
    name: str
    """On the MCP door."""
    chat_name: str
    """In chat."""
    description: str
    digest: str | None
    """SHA-256 of its definition, as a pin names it. Null: the definition was refused."""
    tokens: int
    """About what the definition costs a model."""
    allowed: bool
    layer: Layer
    """The layer that decided."""
    reason: Reason | None
    """Null exactly when allowed."""
    rule: str


class PreviewAnswer(Shown, frozen=True, kw_only=True):
    """All that a server lists, after filtering."""

    revision: Revision
    server_id: str
    state: ListState
    """Of the newest list."""
    is_stale: bool
    """The tools are known from an earlier time."""
    tools: list[ToolPreview]
    tokens: int
    """Of those that are allowed."""
    others: list[DecisionShown]
    """Its prompts and resources, as rules name them: `prompt:<name>` and `resource:<uri>`."""
