"""What is kept of compiled views stays within its bound, whatever callers make up."""

import base64
import weakref

from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View, ViewCache, ViewSettings
from toolgate.model.names import ToolRef
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest
from toolgate.policy.scope import Decision, Scope

INFO = b'{"name":"toolgate"}'


def asking_for(*tools: str) -> Caller:
    return Caller(LOCAL_ADMIN, request=SessionRequest(tools=tools))


def no_decision(ref: ToolRef) -> Decision:
    raise AssertionError(f"no decision on {ref} was expected")


def add(views: ViewCache, caller: Caller) -> View:
    scope = Scope()
    view = View(
        caller, scope, Snapshot(), ViewSettings(page_size=10, decide=no_decision, on_growth=views.on_growth)
    )
    views.add(view)
    return view


def test_lod_1_the_oldest_views_go_when_all_weigh_too_much() -> None:
    views = ViewCache(max_bytes=5_000)
    callers = [asking_for(f"tool_{number}") for number in range(100)]
    for caller in callers:
        add(views, caller)

    assert views.size <= 5_000
    assert [caller for caller in callers if caller in views.views] == callers[-len(views.views) :]


def test_lod_1_a_long_request_weighs_more_than_a_short_one() -> None:
    views = ViewCache()

    short, long = add(views, asking_for("a")), add(views, asking_for(*map(str, range(1_000))))

    assert long.size > short.size + 50_000


def test_lod_1_a_view_that_has_encoded_its_list_weighs_what_the_list_does() -> None:
    views = ViewCache()
    view = add(views, asking_for("a"))
    before = views.size

    page = view.page("tools", "modern", None, INFO)
    again = view.page("tools", "modern", None, INFO)

    assert again is page
    assert views.size == before + len(page)


def test_lod_1_pages_from_cursors_that_callers_make_up_are_not_kept() -> None:
    views = ViewCache()
    view = add(views, asking_for("a"))
    before = views.size
    for number in range(100):
        view.page("tools", "modern", base64.urlsafe_b64encode(b"%03d" % number).decode(), INFO)

    assert (view.size, views.size) == (before, before)


def test_a_view_that_was_dropped_is_gone_and_does_not_count_when_it_grows() -> None:
    views = ViewCache()
    dropped = add(views, asking_for("a"))
    views.clear()

    dropped.page("tools", "legacy", None, INFO)
    known = weakref.ref(dropped)
    del dropped

    assert (views.size, len(views.views), known()) == (0, 0, None)
