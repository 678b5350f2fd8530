"""What every store does with approvals: who is asked what, once, and what may be done with the answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.approval_samples import ASKED, question
from tests.contract.stores import DEADLINE_S, DURABLE_STORES, Clock
from toolgate.errors import Conflict, NotFound
from toolgate.model.approvals import CallApproval
from toolgate.registry.approvals import (
    AGREED,
    DECLINED,
    EXPIRES_MS,
    KEEP_CLOSED_MS,
    NOTICE_MS,
    NOTICE_MS_MOST,
    ROUND_MS,
    ApprovalLimits,
    ApprovalVerdict,
    ElicitedDecision,
)
from toolgate.registry.approvals.sql import Approvals
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def approvals(queue_store: Store) -> Approvals:
    return queue_store.approvals


async def approved(approvals: Approvals, approval_id: str = "a") -> CallApproval:
    """A question of that id, which someone has agreed to."""
    assert (await approvals.request(ASKED, new_id=approval_id)).approval_id == approval_id
    return await approvals.decide(approval_id, is_approved=True, by="key:bob", reason="fine")


def ids(found: Sequence[CallApproval]) -> list[str]:
    return [one.approval_id for one in found]


async def test_a_question_is_kept_whole_and_waits(approvals: Approvals, lease_clock: Clock) -> None:
    now_ms = lease_clock.now_ms
    verdict = await approvals.request(ASKED, new_id="a")

    assert verdict == ApprovalVerdict("asked", "a", now_ms + EXPIRES_MS)
    assert await approvals.get("a") == CallApproval(
        approval_id="a", question=ASKED, created_ms=now_ms, expires_ms=now_ms + EXPIRES_MS
    )
    assert await approvals.get("b") is None
    assert await approvals.pending() == 1


async def test_the_same_question_while_it_waits_is_the_same(approvals: Approvals, lease_clock: Clock) -> None:
    first = await approvals.request(ASKED, new_id="a")
    lease_clock.now_ms += 1
    again = await approvals.request(question(session="s2", door="chat", why="other"), new_id="b")

    assert again == first._replace(outcome="waiting")
    assert ids(await approvals.list()) == ["a"]


async def test_an_approval_lets_one_call_pass(approvals: Approvals, lease_clock: Clock) -> None:
    await approvals.request(ASKED, new_id="a")
    lease_clock.now_ms += 1_000
    decided = await approvals.decide("a", is_approved=True, by="key:bob", reason="fine")
    lease_clock.now_ms += 1_000
    first = await approvals.request(ASKED, new_id="b")
    again = await approvals.request(ASKED, new_id="c")
    used = await approvals.get("a")

    assert (decided.state, decided.decided_by, decided.reason) == ("approved", "key:bob", "fine")
    assert decided.expires_ms == lease_clock.now_ms - 1_000 + EXPIRES_MS
    assert (first.outcome, first.approval_id) == ("granted", "a")
    assert used is not None
    assert (used.state, used.used_ms, used.decided_ms) == (
        "used",
        lease_clock.now_ms,
        lease_clock.now_ms - 1_000,
    )
    assert (again.outcome, again.approval_id) == ("asked", "c")


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments_digest": "b" * 64},
        {"principal": "key:eve"},
        {"task_id": ""},
        {"server_id": "other"},
        {"tool": "delete_all"},
        {"definition": "e" * 64},
        {"principal": "key:adasupport", "task_id": ""},
    ],
    ids=", ".join,
)
async def test_nothing_else_passes_by_it(approvals: Approvals, changes: dict[str, str]) -> None:
    await approved(approvals)
    other = await approvals.request(question(**changes), new_id="b")

    assert (other.outcome, other.approval_id) == ("asked", "b")
    assert (await approvals.request(ASKED, new_id="c")).outcome == "granted"


async def test_a_hundred_at_once_use_it_once(approvals: Approvals) -> None:
    await approved(approvals)
    async with asyncio.timeout(DEADLINE_S):
        verdicts = await asyncio.gather(*(approvals.request(ASKED, new_id=f"n{n}") for n in range(100)))

    assert Counter(one.outcome for one in verdicts) == {"granted": 1, "asked": 1, "waiting": 98}
    assert len({one.approval_id for one in verdicts if one.outcome != "granted"}) == 1


async def test_a_denial_is_returned_once_and_then_asked_again(approvals: Approvals) -> None:
    await approvals.request(ASKED, new_id="a")
    await approvals.decide("a", is_approved=False, by="key:bob", reason="not\0on fridays")
    notified = [await approvals.request(ASKED, new_id=new_id) for new_id in ("b", "c")]
    denied = await approvals.get("a")

    assert [(one.outcome, one.approval_id, one.reason) for one in notified] == [
        ("denied", "a", "not\ufffdon fridays"),
        ("asked", "c", ""),
    ]
    assert denied is not None
    assert (denied.state, denied.decided_by, denied.used_ms) == ("denied", "key:bob", None)


async def test_an_old_denial_is_forgotten(approvals: Approvals, lease_clock: Clock) -> None:
    await approvals.request(ASKED, new_id="a")
    await approvals.decide("a", is_approved=False, by="key:bob", reason="no")
    lease_clock.now_ms += EXPIRES_MS

    assert (await approvals.request(ASKED, new_id="b")).outcome == "asked"


async def test_a_question_that_no_one_answers_in_time_is_over(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approvals.request(ASKED, new_id="a")
    lease_clock.now_ms += EXPIRES_MS
    shown = await approvals.get("a")

    assert shown is not None
    assert shown.state == "expired"
    assert await approvals.pending() == 0
    with pytest.raises(Conflict):
        await approvals.decide("a", is_approved=True, by="key:bob", reason="")
    assert (await approvals.request(ASKED, new_id="b")).outcome == "asked"
    assert ids(await approvals.list(state="expired")) == ["a"]


async def test_an_approval_that_is_not_used_in_time_is_over(approvals: Approvals, lease_clock: Clock) -> None:
    await approved(approvals)
    lease_clock.now_ms += EXPIRES_MS
    verdict = await approvals.request(ASKED, new_id="b")

    assert (verdict.outcome, verdict.approval_id) == ("asked", "b")
    assert ids(await approvals.list(state="approved")) == []


async def test_expired_approvals_are_notified_once(approvals: Approvals, lease_clock: Clock) -> None:
    await approvals.request(ASKED, new_id="a")
    await approvals.request(question(tool="other"), new_id="b")
    await approvals.decide("b", is_approved=False, by="key:bob", reason="no")
    early = await approvals.expire()
    lease_clock.now_ms += EXPIRES_MS
    over = [await approvals.expire() for _ in range(2)]

    assert list(early) == []
    assert [[(one.approval_id, one.state) for one in part] for part in over] == [[("a", "expired")], []]


async def test_a_decision_is_made_once(approvals: Approvals) -> None:
    await approved(approvals)

    for is_approved in (True, False):
        with pytest.raises(Conflict):
            await approvals.decide("a", is_approved=is_approved, by="key:eve", reason="")
    with pytest.raises(NotFound):
        await approvals.decide("b", is_approved=True, by="key:bob", reason="")
    kept = await approvals.get("a")
    assert kept is not None
    assert (kept.state, kept.decided_by) == ("approved", "key:bob")


async def test_an_id_is_given_once(approvals: Approvals) -> None:
    await approvals.request(ASKED, new_id="a")

    with pytest.raises(Conflict):
        await approvals.request(question(tool="other"), new_id="a")
    assert ids(await approvals.list()) == ["a"]


@pytest.mark.parametrize(
    "store_limits", [StoreLimits(approvals=ApprovalLimits(max_pending_each=2, max_pending=3))]
)
async def test_pending_approvals_are_limited_for_each_principal_and_in_all(
    approvals: Approvals, lease_clock: Clock
) -> None:
    outcomes = [
        (
            await approvals.request(question(principal=principal, tool=tool), new_id=f"{principal}{tool}")
        ).outcome
        for principal, tool in ("ax", "ay", "az", "ax", "bx", "by", "cx")
    ]
    lease_clock.now_ms += EXPIRES_MS

    assert outcomes == ["asked", "asked", "full", "waiting", "asked", "full", "full"]
    assert (await approvals.request(question(principal="c"), new_id="later")).outcome == "asked"


async def test_a_call_that_was_made_goes_on_round_by_round(approvals: Approvals, lease_clock: Clock) -> None:
    await approved(approvals)
    await approvals.request(ASKED, new_id="b")
    outcomes = [
        (await approvals.request(question(round=number), new_id=f"r{at}")).outcome
        for at, number in enumerate([1, 1, 3, 2])
    ]

    assert outcomes == ["granted", "asked", "waiting", "granted"]
    lease_clock.now_ms += ROUND_MS
    assert (await approvals.request(question(round=3), new_id="late")).outcome == "waiting"


async def test_a_round_without_an_approval_asks_for_one(approvals: Approvals) -> None:
    assert (await approvals.request(question(round=1), new_id="a")).outcome == "asked"
    await approvals.decide("a", is_approved=True, by="key:bob", reason="")
    assert (await approvals.request(question(round=1), new_id="b")).outcome == "granted"


async def test_they_are_listed_by_state_the_newest_first_in_pages(approvals: Approvals) -> None:
    for n in range(4):
        await approvals.request(question(tool=f"t{n}"), new_id=f"a{n}")
    await approvals.decide("a1", is_approved=True, by="key:bob", reason="")
    await approvals.decide("a2", is_approved=False, by="key:bob", reason="no")

    assert ids(await approvals.list()) == ["a3", "a2", "a1", "a0"]
    assert ids(await approvals.list(limit=2)) == ["a3", "a2"]
    assert ids(await approvals.list(limit=2, before="a2")) == ["a1", "a0"]
    assert ids(await approvals.list(before="gone")) == []
    assert {
        state: ids(await approvals.list(state=state)) for state in ("pending", "approved", "denied", "used")
    } == {"pending": ["a3", "a0"], "approved": ["a1"], "denied": ["a2"], "used": []}


@pytest.mark.parametrize("store_limits", [StoreLimits(approvals=ApprovalLimits(keep_closed=2))])
async def test_old_closed_approvals_and_the_oldest_of_too_many_are_deleted(
    approvals: Approvals, lease_clock: Clock
) -> None:
    for n in range(4):
        await approvals.request(question(tool=f"t{n}"), new_id=f"a{n}")
        await approvals.decide(f"a{n}", is_approved=False, by="key:bob", reason="no")
    await approvals.request(ASKED, new_id="open")
    await approvals.forget()

    assert ids(await approvals.list()) == ["open", "a3", "a2"]
    lease_clock.now_ms += KEEP_CLOSED_MS + 1
    await approvals.forget()
    assert ids(await approvals.list()) == ["open"]
    await approvals.expire()
    await approvals.forget()
    assert ids(await approvals.list()) == []


@pytest.mark.parametrize("store", DURABLE_STORES)
async def test_an_approval_outlives_the_process(store: str, tmp_path: Path, lease_clock: Clock) -> None:
    async with DURABLE_STORES[store](tmp_path, lease_clock) as opened:
        await approved(opened.approvals)
    async with DURABLE_STORES[store](tmp_path, lease_clock) as again:
        outcomes = [(await again.approvals.request(ASKED, new_id=f"n{n}")).outcome for n in range(2)]

    assert outcomes == ["granted", "asked"]


async def test_two_replicas_let_one_call_pass(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    await approved(one.approvals)
    async with asyncio.timeout(DEADLINE_S):
        verdicts = await asyncio.gather(
            *(replicas[n % 2].approvals.request(ASKED, new_id=f"n{n}") for n in range(100))
        )
    again = await other.approvals.list(state="pending")

    assert Counter(verdict.outcome for verdict in verdicts)["granted"] == 1
    assert len({verdict.approval_id for verdict in verdicts}) == 2
    assert len(again) == 1


async def test_two_replicas_ask_the_same_once(replicas: tuple[Store, Store]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        verdicts = await asyncio.gather(
            *(replicas[n % 2].approvals.request(ASKED, new_id=f"n{n}") for n in range(40))
        )

    assert Counter(verdict.outcome for verdict in verdicts) == {"asked": 1, "waiting": 39}
    assert len({verdict.approval_id for verdict in verdicts}) == 1


# Answers in place


async def test_what_is_agreed_to_in_place_is_decided_and_used_in_one_step(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approvals.request(ASKED, new_id="a")
    lease_clock.now_ms += 1_000
    settled = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id="b")
    used = await approvals.get("a")
    replayed = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id="c")

    assert (settled.outcome, settled.approval_id, settled.in_place) == ("granted", "a", True)
    assert used is not None
    assert (used.state, used.decided_by, used.reason) == ("used", "key:ada", AGREED)
    assert (used.decided_ms, used.used_ms) == (lease_clock.now_ms, lease_clock.now_ms)
    assert (replayed.outcome, replayed.approval_id, replayed.in_place) == ("asked", "c", False)


async def test_a_declined_elicitation_is_returned_and_asked_again_after_that(approvals: Approvals) -> None:
    await approvals.request(ASKED, new_id="a")
    settled = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=False), new_id="b")
    denied = await approvals.get("a")
    after = await approvals.request(ASKED, new_id="c")

    assert (settled.outcome, settled.approval_id, settled.reason) == ("denied", "a", DECLINED)
    assert settled.in_place
    assert denied is not None
    assert (denied.state, denied.decided_by) == ("denied", "key:ada")
    assert (after.outcome, after.approval_id) == ("asked", "c")


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "key:eve"},
        {"task_id": "other"},
        {"tool": "write"},
        {"arguments_digest": "b" * 64},
        {"definition": "e" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_no_one_answers_the_question_of_another_call(
    approvals: Approvals, change: dict[str, str]
) -> None:
    await approvals.request(ASKED, new_id="a")
    agreed = await approvals.settle(question(**change), ElicitedDecision("a", is_approved=True), new_id="b")
    declined = await approvals.settle(
        question(**change), ElicitedDecision("a", is_approved=False), new_id="c"
    )
    kept = await approvals.get("a")

    assert (agreed.outcome, agreed.approval_id) == ("asked", "b")
    assert (declined.outcome, declined.in_place) == ("denied", False)
    assert kept is not None
    assert kept.state == "pending"


async def test_who_agrees_in_place_uses_what_others_approved_before(approvals: Approvals) -> None:
    await approved(approvals)
    settled = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id="b")
    used = await approvals.get("a")

    assert (settled.outcome, settled.in_place) == ("granted", False)
    assert used is not None
    assert (used.state, used.decided_by) == ("used", "key:bob")


async def test_who_declines_in_place_makes_no_call_whatever_others_decided(approvals: Approvals) -> None:
    await approved(approvals)
    settled = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=False), new_id="b")
    after = await approvals.get("a")
    again = await approvals.request(ASKED, new_id="c")

    assert (settled.outcome, settled.in_place) == ("denied", True)
    assert after is not None
    assert (after.state, after.decided_by) == ("denied", "key:ada")
    assert again.outcome == "asked"


async def test_an_answer_in_place_that_comes_too_late_decides_nothing(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approvals.request(ASKED, new_id="a")
    lease_clock.now_ms += EXPIRES_MS
    declined = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=False), new_id="b")
    agreed = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id="c")

    assert (declined.outcome, declined.in_place) == ("denied", False)
    assert (agreed.outcome, agreed.approval_id) == ("asked", "c")


async def test_who_agrees_in_place_hears_of_a_denial(approvals: Approvals) -> None:
    await approvals.request(ASKED, new_id="a")
    await approvals.decide("a", is_approved=False, by="key:bob", reason="no")
    settled = await approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id="b")

    assert (settled.outcome, settled.reason, settled.in_place) == ("denied", "no", False)


async def test_of_many_who_agree_in_place_at_once_one_makes_the_call(approvals: Approvals) -> None:
    await approvals.request(ASKED, new_id="a")
    async with asyncio.timeout(DEADLINE_S):
        verdicts = await asyncio.gather(
            *(
                approvals.settle(ASKED, ElicitedDecision("a", is_approved=True), new_id=f"b{n}")
                for n in range(20)
            )
        )

    assert Counter(one.outcome for one in verdicts) == {"granted": 1, "asked": 1, "waiting": 18}


# Telling others


async def test_a_question_is_given_to_one_who_tells_others_and_never_after_it_was_noticed(
    approvals: Approvals, lease_clock: Clock
) -> None:
    for number in range(3):
        await approvals.request(question(tool=f"t{number}"), new_id=f"a{number}")
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(*(approvals.claim_notices(limit=2) for _ in range(4)))
    given = sorted(one for each in found for one in ids(each))
    for approval_id in given:
        await approvals.mark_notified(approval_id)
    lease_clock.now_ms += NOTICE_MS_MOST

    assert given == ["a0", "a1", "a2"]
    assert ids(await approvals.claim_notices(limit=5)) == []
    assert ids(await approvals.list(state="pending")) == ["a2", "a1", "a0"]


async def test_what_was_not_noticed_is_given_again_after_a_while_longer_each_time(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approvals.request(ASKED, new_id="a")
    began_ms = lease_clock.now_ms
    gaps: list[int] = []
    for _ in range(4):
        assert ids(await approvals.claim_notices(limit=5)) == ["a"]
        wait_ms = NOTICE_MS << len(gaps)
        lease_clock.now_ms += wait_ms - 1
        assert ids(await approvals.claim_notices(limit=5)) == []
        lease_clock.now_ms += 1
        gaps.append(wait_ms)

    assert lease_clock.now_ms - began_ms == 15 * NOTICE_MS
    assert max(gaps) <= NOTICE_MS_MOST


async def test_decided_used_and_expired_approvals_notify_no_one(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approved(approvals)
    first = ids(await approvals.claim_notices(limit=5))
    await approvals.request(ASKED, new_id="b")
    await approvals.request(question(tool="other"), new_id="c")
    lease_clock.now_ms += EXPIRES_MS

    assert first == []
    assert ids(await approvals.claim_notices(limit=5)) == []
    await approvals.mark_notified("unknown")


async def test_what_is_asked_again_and_decided_stays_noticed(
    approvals: Approvals, lease_clock: Clock
) -> None:
    await approvals.request(ASKED, new_id="a")
    await approvals.claim_notices(limit=1)
    await approvals.mark_notified("a")
    await approvals.request(ASKED, new_id="b")
    lease_clock.now_ms += NOTICE_MS_MOST

    assert ids(await approvals.claim_notices(limit=5)) == []
