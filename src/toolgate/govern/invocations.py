"""Invocations of tasks: who may start, see, await and cancel them.

A caller sees its own invocations; a viewer sees all; an administrator may cancel all. An invocation that a
caller may not see looks exactly like one that does not exist. Nothing runs here: nodes take invocations from
the queue.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

from toolgate.errors import Forbidden, NotFound, NoWorkload
from toolgate.gateway.auth.identity import reaches
from toolgate.gateway.scope.caller import Caller
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.control import Control
from toolgate.model.invocations import ENDED, Invocation
from toolgate.model.principals import Principal
from toolgate.policy.resolve import NO_CEILING
from toolgate.registry.invocations import InvocationCreation


async def enqueue_invocation(
    control: Control, principal: Principal, task_id: str, *, input_bytes: bytes, idempotency_key: str | None
) -> InvocationCreation:
    """Put a run of the task into the queue. Raises NotFound, NoWorkload, QueueFull, Conflict."""
    control.gateway.task_policy(Caller(principal, task_id))
    workload = control.gateway.snapshot.tasks[task_id].workload
    if workload is None:
        raise NoWorkload(f"task `{task_id}` has no workload to run")
    now_ms = control.clock_ms()
    return await control.store.invocations.create(
        Invocation(
            invocation_id=f"{now_ms:012x}{secrets.token_hex(8)}",  # cannot be guessed, and sorts by time
            task_id=task_id,
            principal=principal,
            revision=control.gateway.snapshot.revision,
            input=input_bytes,
            created_ms=now_ms,
            retries=workload.retries,
            idempotency_key=idempotency_key,
        )
    )


async def find_invocation(
    control: Control, principal: Principal, task_id: str, invocation_id: str
) -> Invocation:
    """An invocation that the caller may see, even if its task was deleted. Raises NotFound."""
    found = await control.store.invocations.get(invocation_id)
    may_see = (
        found is not None
        and found.task_id == task_id
        and _reaches_task(principal, task_id)
        and (found.principal.id == principal.id or reaches(principal.role, "viewer"))
    )
    if found is None or not may_see:
        raise NotFound(
            f"no invocation `{invocation_id[:40]}` of task `{task_id}`",
            hint=f"run `toolgate invocations list {task_id}` for all that you can see",
        )
    return found


async def list_invocations(
    control: Control, principal: Principal, task_id: str, *, before: str | None, limit: int
) -> Sequence[Invocation]:
    """The invocations of a task that the caller may see, newest first. Raises NotFound."""
    owner = None if reaches(principal.role, "viewer") else principal.id
    found: Sequence[Invocation] = ()
    if _reaches_task(principal, task_id):
        queue = control.store.invocations
        found = await queue.list(task_id=task_id, principal_id=owner, before=before, limit=limit)
    if not found:
        control.gateway.task_policy(Caller(principal, task_id))
    return found


async def cancel_invocation(
    control: Control, principal: Principal, task_id: str, invocation_id: str
) -> Invocation:
    """Cancel an invocation. Raises NotFound; Forbidden for a caller that may only see it."""
    found = await find_invocation(control, principal, task_id, invocation_id)
    if found.principal.id != principal.id:
        if not reaches(principal.role, "admin"):
            raise Forbidden("only the role `admin` may cancel the runs of others")
        if principal.ceiling != NO_CEILING:
            await find_record_within(control, principal, "task", task_id)
    return await control.store.invocations.cancel(invocation_id)


async def wait_for_end(control: Control, invocation_id: str, *, within_s: float) -> Invocation | None:
    """Wait up to `within_s` for the end of an invocation, and return it. None: it was deleted."""
    invocations, mark = control.store.invocations, None
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while mark is None or mark.state not in ENDED:
                mark = await control.invocation_poller.wait_for_change(invocations, invocation_id, mark)
                if mark is None:
                    break
    return await invocations.get(invocation_id)


def _reaches_task(principal: Principal, task_id: str) -> bool:
    tasks = principal.ceiling.tasks
    return tasks is None or task_id in tasks
