"""Decisions that the receiver of the webhook sends later on: by its signature, without a key."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest

from tests.contract.approval_samples import ASKED, question
from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import NOW_MS, RestWorld, error_of, open_rest, secret_of, webhook_of
from toolgate.govern.approvals import SIGNATURE, BodySigner

pytestmark = pytest.mark.anyio

A, B = "a" * 16, "b" * 16
SIGNER: Final = BodySigner("s3cret" * 8, lambda: NOW_MS)
STALE: Final = BodySigner("s3cret" * 8, lambda: NOW_MS - 301_000)
APPROVED: Final = {"approval_id": A, "decision": "approved", "by": "bob", "reason": "fine"}


@asynccontextmanager
async def notified(*, is_set: bool = True) -> AsyncIterator[RestWorld]:
    """A world with two questions, and a receiver that was told of them."""
    store = MemoryStore(lambda: NOW_MS)
    services = [webhook_of(store, SIGNER)] if is_set else []
    async with open_rest(store=store, services=services, trusts_local=False) as world:
        await store.approvals.request(ASKED, new_id=A)
        await store.approvals.request(question(tool="other"), new_id=B)
        yield world


async def send(
    world: RestWorld, approval_id: str, body: Any, signature: str | None = "", **headers: str
) -> httpx2.Response:
    """`signature`: empty for the right one, None for none."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    if signature is not None:
        headers[SIGNATURE] = signature or SIGNER.sign(raw)
    return await world.request("POST", f"/admin/api/approvals/{approval_id}/decision", raw, **headers)


async def test_what_is_signed_decides_once() -> None:
    async with notified() as world:
        first = await send(world, A, APPROVED)
        again = await send(world, A, APPROVED)
        denied = await send(world, B, {"approval_id": B, "decision": "denied", "reason": "no"})

        assert (first.json()["state"], first.json()["decided_by"]) == ("approved", "webhook:bob")
        assert error_of(again) == (409, "conflict")
        assert (denied.json()["state"], denied.json()["decided_by"]) == ("denied", "webhook")


async def test_what_is_not_signed_is_answered_like_everything_without_a_key() -> None:
    async with notified() as world, notified(is_set=False) as unset:
        raw = json.dumps(APPROVED).encode()
        wrong = BodySigner("other" * 8, lambda: NOW_MS).sign(raw)
        responses = [
            await send(world, A, APPROVED, None),
            await send(world, A, APPROVED, wrong),
            await send(world, A, APPROVED, STALE.sign(raw)),
            await send(world, A, APPROVED, SIGNER.sign(raw + b" ")),
            await send(world, "f" * 16, APPROVED, wrong),
            await send(world, A, b"{", wrong),
            await send(world, A, APPROVED, None, authorization=f"Bearer {secret_of('admin')}"),
            await send(unset, A, APPROVED),
        ]

        assert {one.content for one in responses} == {responses[0].content}
        assert [error_of(one) for one in responses] == [(401, "unauthenticated")] * len(responses)
        assert [one.state for one in await world.store.approvals.list()] == ["pending", "pending"]


@pytest.mark.parametrize(
    ("approval_id", "body", "expected"),
    [
        pytest.param(B, APPROVED, (400, "invalid_request"), id="the decision on another call"),
        pytest.param(A, {"decision": "approved"}, (400, "invalid_request"), id="on no call"),
        pytest.param(A, {**APPROVED, "decision": "maybe"}, (400, "invalid_request"), id="no decision"),
        pytest.param(A, {**APPROVED, "by": "a\nb"}, (400, "invalid_request"), id="no name"),
        pytest.param(A, b"{", (400, "parse_error"), id="no JSON"),
        pytest.param(
            "f" * 16, {**APPROVED, "approval_id": "f" * 16}, (404, "not_found"), id="no such question"
        ),
    ],
)
async def test_what_is_signed_and_no_decision_is_refused(
    approval_id: str, body: Any, expected: tuple[int, str]
) -> None:
    async with notified() as world:
        response = await send(world, approval_id, body)

        assert error_of(response) == expected
        assert [one.state for one in await world.store.approvals.list()] == ["pending", "pending"]
