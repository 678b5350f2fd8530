"""The queue in memory and in SQLite side by side: whatever happens, they agree and keep what they promise."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.contract.invocation_samples import STOPPED, SUCCESS, invocation, line
from tests.contract.stores import Clock, open_memory, open_sqlite
from tests.scenarios.soak import rounds
from toolgate.errors import ToolgateError
from toolgate.model.invocations import ENDED, Invocation, InvocationResult
from toolgate.registry.invocations import LEASE_MS
from toolgate.registry.invocations.sql import Invocations

IDS = st.sampled_from([f"i{n}" for n in range(4)])
ATTEMPTS = st.integers(0, 3)
ENDINGS = st.sampled_from([None, None, SUCCESS, STOPPED, InvocationResult(state="failed", ended_by="trap")])


class QueueMachine(RuleBasedStateMachine):
    """Two queues that are told the same."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.directory = tempfile.TemporaryDirectory()
        self.queues: list[Invocations] = self.runner.run(self.open())
        self.made = 0
        self.nodes: dict[tuple[str, int], str] = {}
        self.begun: dict[str, set[int]] = {}
        self.ended: dict[str, Invocation] = {}
        # From now on both listen.
        self.claim("n1", 1)

    async def open(self) -> list[Invocations]:
        opened = (open_memory, open_sqlite)
        stores = [
            await self.stack.enter_async_context(one(Path(self.directory.name), self.clock)) for one in opened
        ]
        return [store.invocations for store in stores]

    def both(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What both of them answer."""
        one, other = (
            self.runner.run(attempt(getattr(queue, method)(*args, **kwargs))) for queue in self.queues
        )
        one, other = (list(each) if isinstance(each, list | tuple) else each for each in (one, other))
        assert one == other
        return one

    @rule(
        task_id=st.sampled_from("ab"),
        key=st.none() | st.sampled_from("kl"),
        content=st.sampled_from([b"x", b"y"]),
        retries=st.integers(0, 2),
    )
    def create(self, task_id: str, key: str | None, content: bytes, retries: int) -> None:
        new = invocation(f"i{self.made}", task_id, input=content, retries=retries, idempotency_key=key)
        self.made += 1
        self.both("create", new)

    @rule(node_id=st.sampled_from(["n1", "n2"]), limit=st.integers(1, 3))
    def claim(self, node_id: str, limit: int) -> None:
        for one in self.both("claim", node_id, limit=limit):
            attempt_of = (one.invocation_id, one.attempt)
            assert attempt_of not in self.nodes, "an attempt has one node"
            self.nodes[attempt_of] = node_id

    @rule(invocation_id=IDS, attempt=ATTEMPTS, count=st.integers(0, 2), ending=ENDINGS)
    def report(self, invocation_id: str, attempt: int, count: int, ending: InvocationResult | None) -> None:
        before = self.both("get", invocation_id)
        lines = self.both("lines", invocation_id)
        verdict = self.both(
            "report", invocation_id, attempt, lines=[line(n) for n in range(count)], ending=ending
        )
        is_current = before is not None and (before.state, before.attempt) == ("running", attempt)
        assert (verdict != "lost") == is_current
        if is_current:
            self.begun.setdefault(invocation_id, set()).add(attempt)
        else:
            assert self.both("get", invocation_id) == before, "what is not heard changes nothing"
            assert self.both("lines", invocation_id) == lines

    @rule(invocation_id=IDS)
    def cancel(self, invocation_id: str) -> None:
        self.both("cancel", invocation_id)

    @rule(part=st.sampled_from([0.4, 1.1]))
    def pass_time(self, part: float) -> None:
        self.clock.now_ms += int(part * LEASE_MS)

    @invariant()
    def what_ended_stays_as_it_is_and_is_begun_as_often_as_it_may_be(self) -> None:
        for one in self.both("list"):
            if one.invocation_id in self.ended:
                assert one == self.ended[one.invocation_id]
            elif one.state in ENDED:
                self.ended[one.invocation_id] = one
            assert len(self.begun.get(one.invocation_id, ())) <= one.retries + 1

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.directory.cleanup()


async def attempt(asked: Any) -> Any:
    """The answer, or the kind of refusal."""
    try:
        return await asked
    except ToolgateError as exc:
        return type(exc)


def test_whatever_happens_the_queues_agree_and_keep_what_they_promise() -> None:
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=rounds(suite=30, soak=300), stateful_step_count=30, deadline=None, database=None
        ),
    )
