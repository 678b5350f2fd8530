"""UPS-9 at the platform layer: a pinned server offers its tools only as they were approved."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.policy.worlds import offer, refs, snapshot
from toolgate.model.pins import Pin
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest
from toolgate.policy.scope import Reason, Scope

GIT = offer("git", "log", "push")
PLATFORM = snapshot(GIT, offer("fs", "read"))
DIGESTS = {name: tool.digest for name, tool in GIT.tools.items()}


def pinned(**tools: str) -> Snapshot:
    return replace(PLATFORM, pins={"git": Pin(server_id="git", tools=tools)})


def scope_of(platform: Snapshot) -> Scope:
    return compose(platform, Ceiling(), task=None, request=SessionRequest())


def test_a_server_without_a_pin_offers_what_it_lists() -> None:
    assert scope_of(PLATFORM).tools == refs("fs/read", "git/log", "git/push")


def test_a_pinned_server_offers_exactly_what_was_approved() -> None:
    assert scope_of(pinned(**DIGESTS)).tools == refs("fs/read", "git/log", "git/push")


def test_a_new_tool_and_a_changed_one_wait_for_approval_and_say_so() -> None:
    scope = scope_of(pinned(push="0" * 64))

    assert scope.tools == refs("fs/read")
    held = [one for one in scope.decisions if one.reason is Reason.QUARANTINED]
    assert [(one.tool, one.layer, one.rule) for one in held] == [
        ("log", "platform", "pin: not approved"),
        ("push", "platform", "pin: its definition is not the approved one"),
    ]


@given(
    st.dictionaries(st.sampled_from(["log", "push", "gone"]), st.sampled_from([*DIGESTS.values(), "0" * 64]))
)
def test_a_pin_only_ever_narrows(tools: dict[str, str]) -> None:
    offered = set(scope_of(pinned(**tools)).tools)

    assert offered <= set(scope_of(PLATFORM).tools)
    assert {ref.name for ref in offered if ref.server_id == "git"} == {
        name for name, digest in tools.items() if DIGESTS.get(name) == digest
    }
