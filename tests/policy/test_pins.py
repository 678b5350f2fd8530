"""UPS-9 at the platform layer: a pinned server offers its tools only as they were approved."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.worlds import offer, refs, snapshot
from toolgate.model.names import ToolRef
from toolgate.model.tools import Pin, Snapshot
from toolgate.policy.compose import compose, decide_one
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Reason, Scope

GIT = offer("git", "log", "push")
PLATFORM = snapshot(GIT, offer("fs", "read"))
DIGESTS = {name: tool.digest for name, tool in GIT.tools.items()}


def pinned(**tools: str) -> Snapshot:
    return replace(PLATFORM, pins={"git": Pin(server_id="git", tools=tools)})


def scope_of(platform: Snapshot) -> Scope:
    return compose(ScopeInputs(platform))


def held(scope: Scope) -> list[tuple[str | None, str, str]]:
    return [(one.tool, one.layer, one.rule) for one in scope.decisions if one.reason is Reason.QUARANTINED]


def test_a_server_without_a_pin_offers_what_it_lists() -> None:
    assert scope_of(PLATFORM).tools == refs("fs/read", "git/log", "git/push")


def test_a_pinned_server_offers_exactly_what_was_approved() -> None:
    assert scope_of(pinned(**DIGESTS)).tools == refs("fs/read", "git/log", "git/push")


def test_a_new_tool_and_a_changed_one_wait_for_approval_and_say_so() -> None:
    scope = scope_of(pinned(push="0" * 64))

    assert scope.tools == refs("fs/read")
    assert held(scope) == [
        ("log", "platform", "pin: not approved"),
        ("push", "platform", "pin: its definition is not the approved one"),
    ]


def test_a_tool_that_changed_once_is_held_back_though_it_looks_as_approved_again() -> None:
    changed = Pin(server_id="git", tools=DIGESTS, changed={"push": "0" * 64})
    scope = scope_of(replace(PLATFORM, pins={"git": changed}))

    assert scope.tools == refs("fs/read", "git/log")
    assert held(scope) == [("push", "platform", "pin: its definition changed after it was approved")]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param("log", "allowed_tools `*`", id="approved"),
        pytest.param("push", "pin: its definition changed after it was approved", id="changed once"),
        pytest.param("other", "pin: not approved", id="never approved"),
    ],
)
def test_of_a_pinned_server_that_lists_nothing_yet_what_was_approved_alone_may_come(
    name: str, rule: str
) -> None:
    pin = Pin(server_id="git", tools={"log": "1" * 64, "push": "2" * 64}, changed={"push": "0" * 64})
    platform = replace(snapshot(offer("git", state="pending")), pins={"git": pin})
    decision = decide_one(ScopeInputs(platform), ToolRef("git", name))

    assert (decision.allowed, decision.rule) == (name == "log", rule)


DIGEST = st.sampled_from([*DIGESTS.values(), "0" * 64])
TOOLS = st.dictionaries(st.sampled_from(["log", "push", "gone"]), DIGEST)


@given(tools=TOOLS, changed=TOOLS)
def test_a_pin_only_ever_narrows(tools: dict[str, str], changed: dict[str, str]) -> None:
    pin = Pin(server_id="git", tools=tools, changed=changed)
    offered = set(scope_of(replace(PLATFORM, pins={"git": pin})).tools)

    assert offered <= set(scope_of(PLATFORM).tools)
    assert {ref.name for ref in offered if ref.server_id == "git"} == {
        name for name, digest in tools.items() if DIGESTS.get(name) == digest and name not in changed
    }
