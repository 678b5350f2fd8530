"""Chat upstreams: their records, and a look at whether one answers."""

from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord, NotFound, PlanOutdated, PlanRequired
from toolgate.govern.changes.commit import note
from toolgate.govern.control import Control
from toolgate.model.chat import ChatUpstream
from toolgate.policy.patterns import matches_text
from toolgate.redaction.records import redact_text
from toolgate.surfaces.rest.chat_shapes import (
    MAX_MODELS,
    ChatTrialAnswer,
    ChatUpstreamList,
    ChatUpstreamSent,
    ChatUpstreamShown,
    ChatUpstreamWritten,
)
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import PLAN, Call, Endpoint, unchecked
from toolgate.surfaces.rest.resources.collection import Collection, collection_endpoints
from toolgate.surfaces.rest.resources.trials import record_to_try

CHAT_UPSTREAMS: Final = Collection(
    kind="chat_upstream",
    path="/admin/api/chat-upstreams",
    sent=ChatUpstreamSent,
    shown=ChatUpstreamShown,
    listed=ChatUpstreamList,
    written=ChatUpstreamWritten,
)


async def try_upstream(control: Control, call: Call[Mapping[str, Any]]) -> Answer:
    """Ask a chat upstream once for its models, beside the connections in use; no model is asked anything.

    It is the saved one; or, where a record is sent, that one, which must be fit to be saved and is not. The
    process that answers asks, which may see another network and other secrets than the nodes do.
    """
    upstream_id = call.ids["upstream_id"]
    record = await record_to_try(control, call, "chat_upstream", upstream_id)
    assert isinstance(record, ChatUpstream)
    if control.try_models is None:
        raise NotFound("no chat upstream can be tried from this process", hint="try it from `toolgate up`")
    note(control, call.caller, operation="test", kind="chat_upstream", record_id=upstream_id)
    trial = await control.try_models(record)
    names = sorted(set(trial.models))
    admitted = [name for name in names if any(matches_text(one, name) for one in record.models)]
    return Answer(
        ChatTrialAnswer(
            ok=not trial.error,
            took_ms=trial.took_ms,
            found=len(names),
            admitted=admitted[:MAX_MODELS],
            others=sorted(set(names) - set(admitted))[:MAX_MODELS],
            error=redact_text(trial.error),
            hint=trial.hint,
        )
    )


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    *collection_endpoints(CHAT_UPSTREAMS),
    Endpoint(
        method="POST",
        path=f"{CHAT_UPSTREAMS.path}/{{upstream_id}}/test",
        role="admin",
        summary="Try a chat upstream",
        handler=try_upstream,
        body=unchecked(ChatUpstreamSent, may_be_empty=True),
        headers=(PLAN,),
        answer=ChatTrialAnswer,
        errors=(NotFound, InvalidRecord, PlanRequired, PlanOutdated),
    ),
)
