"""The shapes around chat upstreams. What one is, the registry alone decides; here stands what REST adds."""

from typing import Annotated, Final

from pydantic import Field, create_model

from toolgate.registry.records.chat_bodies import ChatUpstreamBody
from toolgate.registry.records.fields import UpstreamId
from toolgate.surfaces.rest.resources.record_shapes import ID, Digest, Ignored, NextCursor
from toolgate.surfaces.rest.shapes import Revision, Shown

MAX_MODELS: Final = 1_000
"""Shown of those that an upstream lists."""


class ChatUpstreamShown(ChatUpstreamBody):
    """A chat upstream, with secrets masked."""

    revision: Revision


ChatUpstreamSent = create_model(
    "ChatUpstreamSent",
    __base__=ChatUpstreamBody,
    __doc__="A chat upstream to be stored.",
    upstream_id=(Annotated[UpstreamId | None, ID], None),
    revision=(Ignored, None),
)


class ChatUpstreamList(Shown, frozen=True, kw_only=True):
    """A page of the chat upstreams, at one revision."""

    revision: Revision
    digest: Digest = ""
    chat_upstreams: list[ChatUpstreamShown]
    next_cursor: NextCursor


class ChatUpstreamWritten(Shown, frozen=True, kw_only=True):
    """A chat upstream as it is stored now."""

    revision: Revision
    chat_upstream: ChatUpstreamShown
    warnings: list[str]
    """What is amiss with it."""


class ChatTrialAnswer(Shown, frozen=True, kw_only=True):
    """What came of asking a chat upstream for its models once, beside the connections in use."""

    ok: bool
    took_ms: Annotated[int, Field(ge=0)]
    found: Annotated[int, Field(ge=0)]
    """How many models it lists."""
    admitted: list[str]
    """Those of them that callers get: its patterns admit them."""
    others: list[str]
    """Those that callers do not get."""
    error: str
    """What went wrong; empty: nothing did."""
    hint: str
    """What to do about it."""
