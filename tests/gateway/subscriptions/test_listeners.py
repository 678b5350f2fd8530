"""Listeners are updates when their list changes, and the loop does not stand still for it."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from toolgate.errors import NotFound, SessionLimit
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View, ViewCache, ViewSettings
from toolgate.gateway.subscriptions import ListenerUpdate, Subscriptions
from toolgate.gateway.subscriptions.resources import MAX_NOTIFIED, ResourceWatch, ResourceWatches
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest
from toolgate.policy.scope import Decision, Scope

pytestmark = pytest.mark.anyio

LISTENERS = 100
COMPILATION_S = 0.003
NO_WATCHES = ResourceWatches(lambda _server_id, _uris: None)


def empty_view(caller: Caller) -> View:
    def decide(_ref: ToolRef) -> Decision:
        raise AssertionError

    return View(
        caller,
        Scope(),
        Snapshot(),
        ViewSettings(page_size=10, decide=decide, on_growth=ViewCache().on_growth),
    )


async def test_lod_1_the_loop_has_its_turn_while_thousands_of_views_are_compiled() -> None:
    compiled = 0

    def view(caller: Caller) -> View:
        nonlocal compiled
        compiled += 1
        time.sleep(COMPILATION_S)
        return empty_view(caller)

    subscriptions = Subscriptions(view, NO_WATCHES)
    with ExitStack() as stack:
        for number in range(LISTENERS):
            request = SessionRequest(tools=(str(number),))
            stack.enter_context(subscriptions.open(Caller(LOCAL_ADMIN, request=request)))
        compiled, most_at_once = 0, 0
        subscriptions.announce()
        async with asyncio.timeout(60):
            while compiled < LISTENERS:
                before = compiled
                await asyncio.sleep(0)
                most_at_once = max(most_at_once, compiled - before)

    assert most_at_once < LISTENERS / 2


async def test_no_principal_takes_all_streams() -> None:
    subscriptions = Subscriptions(empty_view, NO_WATCHES, max_open=20)
    other = Caller(Principal(id="key:bob", role="agent"))
    with ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(subscriptions.open(Caller(LOCAL_ADMIN)))
        with pytest.raises(SessionLimit, match="you hold 16 event streams"):
            stack.enter_context(subscriptions.open(Caller(LOCAL_ADMIN)))
        for _ in range(2):
            stack.enter_context(subscriptions.open(other))
        with pytest.raises(SessionLimit, match="you hold 2 event streams"):
            stack.enter_context(subscriptions.open(other))
        assert len(subscriptions) == 18
    with subscriptions.open(Caller(LOCAL_ADMIN)):
        assert len(subscriptions) == 1


async def test_who_comes_after_the_end_ends_at_once() -> None:
    subscriptions = Subscriptions(empty_view, NO_WATCHES)
    with subscriptions.open(Caller(LOCAL_ADMIN)) as before:
        subscriptions.close()
        assert await before.wait(5) == ListenerUpdate()
        with subscriptions.open(Caller(LOCAL_ADMIN)) as after:
            assert (before.is_over, after.is_over) == (True, True)


async def test_without_listeners_nothing_is_compiled() -> None:
    before = asyncio.all_tasks()
    Subscriptions(empty_view, NO_WATCHES).announce()

    assert asyncio.all_tasks() == before


async def test_a_listener_that_saw_other_lists_is_notified_of_the_difference() -> None:
    subscriptions = Subscriptions(empty_view, NO_WATCHES)
    with subscriptions.open(Caller(LOCAL_ADMIN)) as listener:
        seen = listener.seen
        listener.catch_up({**seen, "prompts": b"other"})
        updates = await listener.wait(5)
        listener.change({**seen, "tools": b"now"})
        listener.change(seen)  # and back again before the listener waited

        assert updates == ListenerUpdate(("prompts",))
        assert await listener.wait(0) == ListenerUpdate()


async def test_a_listener_without_a_scope_is_notified_of_all_lists() -> None:
    subscriptions = Subscriptions(empty_view, NO_WATCHES)
    with subscriptions.open(Caller(LOCAL_ADMIN)) as listener:
        listener.change({})

        assert await listener.wait(5) == ListenerUpdate(("prompts", "resources", "templates", "tools"))


async def test_a_listener_whose_scope_is_refused_hears_of_no_resource_any_more() -> None:
    is_refused = False

    def view(caller: Caller) -> View:
        if is_refused:
            raise NotFound("no such task")
        return empty_view(caller)

    subscriptions = Subscriptions(view, NO_WATCHES)
    watch = ResourceWatch("ada")
    for number in range(MAX_NOTIFIED + 1):
        subscriptions.watches.add(watch, f"x:{number}", server_id="one", uri=f"x:{number}")
        subscriptions.watches.on_updated("one", f"x:{number}")
    with subscriptions.open(Caller(LOCAL_ADMIN), watch=watch) as listener:
        is_refused = True

        assert await listener.wait(5) == ListenerUpdate()
        assert watch.updated  # one was too many at once
        assert await listener.wait(5) == ListenerUpdate()
        assert not watch.updated
