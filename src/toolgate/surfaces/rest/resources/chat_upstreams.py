"""Chat upstreams: their records, and trying whether one responds."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.errors import InvalidRecord, NotFound, PlanOutdated, PlanRequired
from toolgate.govern.changes.commit import audit_change
from toolgate.govern.control import Control
from toolgate.model.chat import ChatUpstream
from toolgate.model.names import matches_glob
from toolgate.redaction.text import redact_text
from toolgate.registry.records.fields import UpstreamId
from toolgate.registry.records.policy_bodies import ChatUpstreamBody
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, RestCall, accept_as
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import RestEndpoint, post
from toolgate.surfaces.rest.resources.collection import RecordCollection, build_shapes
from toolgate.surfaces.rest.resources.trials import resolve_trial_record

MAX_MODELS: Final = 1_000
"""Shown of those that an upstream lists."""


class ChatTrialAnswer(ResponseShape, frozen=True, kw_only=True):
    """What came of asking a chat upstream for its models once, next to the connections in use."""

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


CHAT_UPSTREAMS: Final = RecordCollection(
    kind="chat_upstream",
    path="/admin/api/chat-upstreams",
    shapes=build_shapes("chat_upstream", ChatUpstreamBody, UpstreamId),
)


@post(
    f"{CHAT_UPSTREAMS.one_path}/test",
    "admin",
    "Try a chat upstream",
    body=accept_as(CHAT_UPSTREAMS.shapes.sent, may_be_empty=True),
    headers=(PLAN_HEADER,),
    errors=(NotFound, InvalidRecord, PlanRequired, PlanOutdated),
)
async def try_upstream(control: Control, call: RestCall[Mapping[str, Any]]) -> ChatTrialAnswer:
    """Ask a chat upstream once for its models, next to the connections in use; no model is asked anything.

    It is the saved one; or, where a record is sent, that one, which must be fit to be saved and is not. The
    process that answers asks, which may see another network and other secrets than the nodes do.
    """
    upstream_id = call.ids["upstream_id"]
    record = await resolve_trial_record(control, call, "chat_upstream", upstream_id)
    assert isinstance(record, ChatUpstream)
    audit_change(control, call.caller, operation="test", kind="chat_upstream", record_id=upstream_id)
    trial = await control.try_models(record)
    names = sorted(set(trial.models))
    admitted = [name for name in names if any(matches_glob(one, name) for one in record.models)]
    return ChatTrialAnswer(
        ok=not trial.error,
        took_ms=trial.took_ms,
        found=len(names),
        admitted=admitted[:MAX_MODELS],
        others=sorted(set(names) - set(admitted))[:MAX_MODELS],
        error=redact_text(trial.error),
        hint=trial.hint,
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (*CHAT_UPSTREAMS.endpoints().values(), try_upstream)
