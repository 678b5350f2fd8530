"""Listeners are told when their list changes, and the loop does not stand still for it."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from toolgate.gateway.caller import Caller
from toolgate.gateway.identity import LOCAL_ADMIN
from toolgate.gateway.subscriptions import Subscriptions
from toolgate.gateway.view import View
from toolgate.gateway.views import Views
from toolgate.model.snapshot import Snapshot
from toolgate.policy.layers import SessionRequest
from toolgate.policy.scope import Scope

pytestmark = pytest.mark.anyio

LISTENERS = 100
COMPILATION_S = 0.003


async def test_lod_1_the_loop_has_its_turn_while_thousands_of_views_are_compiled() -> None:
    compiled = 0

    def view(caller: Caller) -> View:
        nonlocal compiled
        compiled += 1
        time.sleep(COMPILATION_S)
        return View(caller, Scope(), Snapshot(), page_size=10, on_growth=Views().on_growth)

    subscriptions = Subscriptions(view)
    with ExitStack() as stack:
        for number in range(LISTENERS):
            request = SessionRequest(tools=(str(number),))
            stack.enter_context(subscriptions.open(Caller(LOCAL_ADMIN, request=request)))
        compiled, longest_s = 0, 0.0
        subscriptions.announce()
        async with asyncio.timeout(10):
            while compiled < LISTENERS:
                began = time.perf_counter()
                await asyncio.sleep(0)
                longest_s = max(longest_s, time.perf_counter() - began)

    assert longest_s < LISTENERS * COMPILATION_S / 2


async def test_nobody_is_looked_at_where_nobody_listens() -> None:
    def view(caller: Caller) -> View:
        raise AssertionError

    Subscriptions(view).announce()
    await asyncio.sleep(0)
