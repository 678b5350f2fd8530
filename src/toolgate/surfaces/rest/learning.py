"""What tasks and keys use, held against what they may: the least policy of a task, and grants nobody uses."""

from collections.abc import Sequence
from typing import Any, Final

from toolgate.audit.tokens import DAY_MS
from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.govern.control import Control
from toolgate.govern.least_privilege import learn_task
from toolgate.govern.unused import find_holders, idle_servers, read_uses, weigh_holders
from toolgate.model.quotas import Holder
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.resources.change_shapes import show_plan
from toolgate.surfaces.rest.resources.learning import (
    MAX_NAMED,
    LearnAnswer,
    UnusedAnswer,
    show_holder,
    show_learned,
    show_server,
)

LEARN_DAYS: Final = 7
UNUSED_DAYS: Final = 30
MAX_SERVERS: Final = 1_000


async def learn_policy(control: Control, call: Call[None]) -> Answer:
    """The least policy that would have let through all that was used of the task, and what it would do.

    Nothing is changed: apply `record` with the id of the plan. Calls that were denied do not count, nor do
    those of other tasks, nor those of callers without one. Where the task is not enforced, what its rules
    would have denied counts. Refused where nothing was used, unless `deny_all` asks for that.
    """
    task_id = call.ids["task_id"]
    found = await learn_task(
        control,
        call.caller,
        task_id,
        since_ms=_since(control, call, LEARN_DAYS),
        may_be_empty=call.flag("deny_all"),
    )
    plan = await show_plan(found.plan, revision=found.revision, warnings=list(found.plan_warnings))
    return Answer(show_learned(task_id, found, plan))


async def list_unused(control: Control, call: Call[None]) -> Answer:
    """What each task grants, and each key lets through at most, that nobody used since.

    Sorted by kind and id, page by page. Servers that nobody used at all stand on the first page.
    """
    page, snapshot = parse_page(call.query), control.gateway.snapshot
    task_id, key_id = call.query.get("task"), call.query.get("key")
    holders = _of_kind(find_holders(snapshot, task_id=task_id, key_id=key_id), call.query.get("kind"))
    shown, next_cursor = page.cut(holders, str)
    uses = await read_uses(control, since_ms=_since(control, call, UNUSED_DAYS))
    is_one = task_id is not None or key_id is not None
    most = None if is_one else MAX_NAMED
    servers = [] if is_one or page.after else idle_servers(snapshot, uses)[:MAX_SERVERS]
    return Answer(
        UnusedAnswer(
            revision=snapshot.revision,
            since_ms=uses.since_ms,
            audit_begins_ms=uses.begins_ms,
            holders=[show_holder(one, most=most) for one in await weigh_holders(snapshot, shown, uses)],
            servers=[show_server(one) for one in servers],
            warnings=list(uses.warnings),
            next_cursor=next_cursor,
        )
    )


def _of_kind(holders: Sequence[Holder], kind: str | None) -> Sequence[Holder]:
    if kind not in (None, "task", "key"):
        raise InvalidRequest("`kind` is neither `task` nor `key`")
    return [one for one in holders if kind in (None, one.kind)]


def _since(control: Control, call: Call[None], days: int) -> int:
    now_ms, since_ms = control.clock_ms(), call.number("since")
    since_ms = now_ms - days * DAY_MS if since_ms is None else since_ms
    if since_ms >= now_ms:
        raise InvalidRequest("`since` is not before now", hint="it is a time in unix milliseconds")
    return since_ms


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/tasks/{task_id}/learn",
        role="viewer",
        summary="Work out the least policy of a task",
        handler=learn_policy,
        query=(
            Parameter(
                "since",
                f"What was used from this time on, in unix ms. Without it, of {LEARN_DAYS} days.",
                form="number",
            ),
            Parameter("deny_all", "Also where nothing was used, so that nothing would be left.", form="flag"),
        ),
        answer=LearnAnswer,
        errors=(InvalidRecord, NotFound),
    ),
    Endpoint(
        method="GET",
        path="/admin/api/unused",
        role="viewer",
        summary="Show grants nobody uses",
        handler=list_unused,
        query=(
            *PAGING,
            Parameter(
                "since",
                f"Not used from this time on, in unix ms. Without it, of {UNUSED_DAYS} days.",
                form="number",
            ),
            Parameter("kind", "Only those of `task`, or of `key`."),
            Parameter("task", "Only this task, with all its unused tools."),
            Parameter("key", "Only this key, with all its unused tools."),
        ),
        answer=UnusedAnswer,
        errors=(NotFound,),
    ),
)
