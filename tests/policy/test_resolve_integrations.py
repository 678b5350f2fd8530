"""The caller's own layer: what it switches off is gone, and nothing it switches on reaches past its key."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.worlds import SERVERS, Maker, World, offer, snapshot
from tests.scenarios.soak import rounds
from toolgate.model.names import kind_of
from toolgate.model.principals import Ceiling, IntegrationChoice, IntegrationState, Principal, make_choice_id
from toolgate.model.tools import ServerTools, Snapshot, read_effects
from toolgate.policy.compose import compose, decide_one, explain
from toolgate.policy.layers import TaskPolicy
from toolgate.policy.resolve import ALL_ON, Integrations, ScopeInputs, read_integrations
from toolgate.policy.scope import NO_LIMITS, Reason, Scope

READ_ONLY = read_effects({"readOnlyHint": True})
STATES: tuple[IntegrationState, ...] = ("off", "read_only", "on")


def reading(server: ServerTools, *names: str) -> ServerTools:
    """`server`, whose tools of these names say that they change nothing."""
    tools = {
        name: replace(tool, effects=READ_ONLY) if name in names else tool
        for name, tool in server.tools.items()
    }
    return replace(server, tools=MappingProxyType(tools))


def files(*names: str) -> ServerTools:
    shown = offer(
        "files",
        *("read", "write", "prompt:tidy", "resource:f:/a", "resource:f:/{x}", *names),
        allowed=("*", "prompt:*", "resource:*"),
    )
    return reading(shown, "read")


def scope_of(platform: Snapshot, integrations: Integrations) -> Scope:
    return compose(ScopeInputs(platform, integrations=integrations))


def names(scope: Scope) -> list[str]:
    return sorted(f"{ref.server_id}/{ref.name}" for ref in scope.refs)


def reasons(platform: Snapshot, integrations: Integrations) -> dict[str, tuple[str, str, str]]:
    found = explain(ScopeInputs(platform, integrations=integrations))
    return {
        f"{one.server_id}/{one.tool}": (one.layer, str(one.reason), one.rule)
        for one in found.tools
        if not one.allowed
    }


@pytest.mark.requirement("002-020")
def test_a_server_the_caller_switched_off_is_gone_with_its_prompts_and_resources() -> None:
    platform = snapshot(files(), offer("git", "log"))
    switched = Integrations("on", {"files": "off"})

    assert names(scope_of(platform, switched)) == ["git/log"]
    assert reasons(platform, switched) == dict.fromkeys(
        [f"files/{name}" for name in ("prompt:tidy", "read", "resource:f:/a", "resource:f:/{x}", "write")],
        ("caller", "integration_off", "integrations: switched off by the caller"),
    )


@pytest.mark.requirement("002-020")
def test_a_server_that_is_on_for_reading_has_its_read_only_tools_its_prompts_and_its_resources() -> None:
    platform = snapshot(files())
    chosen, default = Integrations("off", {"files": "read_only"}), Integrations("read_only")

    assert names(scope_of(platform, chosen)) == [
        "files/prompt:tidy",
        "files/read",
        "files/resource:f:/a",
        "files/resource:f:/{x}",
    ]
    assert names(scope_of(platform, default)) == names(scope_of(platform, chosen))
    assert reasons(platform, chosen) == {
        "files/write": ("caller", "integration_read_only", "integrations: read-only tools, set by the caller")
    }
    assert reasons(platform, default)["files/write"][2] == (
        "integrations: read-only tools unless the caller switches on all"
    )


@pytest.mark.requirement("002-020")
def test_where_a_key_begins_with_nothing_a_caller_has_what_it_switches_on() -> None:
    platform = snapshot(files(), offer("git", "log"))
    before, after = Integrations("off"), Integrations("off", {"git": "on"})

    assert names(scope_of(platform, before)) == []
    assert names(scope_of(platform, after)) == ["git/log"]
    assert reasons(platform, before)["git/log"] == (
        "caller",
        "integration_off",
        "integrations: off unless the caller switches it on",
    )


def test_platform_and_key_object_before_the_caller_and_the_task_after_it() -> None:
    platform = snapshot(replace(files(), quarantined={"bad": "no schema"}))
    integrations = Integrations("read_only")
    task = TaskPolicy(task_id="t", enabled=True, default=("files",), deny=("write",))

    def layer(name: str, ceiling: Ceiling) -> str:
        found = explain(ScopeInputs(platform, ceiling, task, integrations=integrations))
        return next(one.layer for one in found.tools if one.tool == name)

    assert layer("bad", Ceiling()) == "platform"
    assert layer("write", Ceiling(deny=("write",))) == "key"
    assert layer("write", Ceiling()) == "caller"
    assert layer("read", Ceiling(deny=("read",))) == "key"


def test_a_tool_that_no_list_has_is_not_taken_for_read_only() -> None:
    ref = next(iter(scope_of(snapshot(files()), ALL_ON).tools))
    decision = decide_one(
        ScopeInputs(snapshot(files()), integrations=Integrations("read_only")), ref._replace(name="read_more")
    )

    assert (decision.allowed, decision.reason) == (False, Reason.INTEGRATION_READ_ONLY)


def principal(default: IntegrationState) -> Principal:
    return Principal(id="key:ada", role="agent", integrations=default)


def chosen_by(principal_id: str, servers: Mapping[str, IntegrationState], **more: bool) -> Snapshot:
    choice = IntegrationChoice(
        choice_id=make_choice_id(principal_id), principal=principal_id, servers=servers, **more
    )
    return Snapshot(choices={choice.choice_id: choice})


def test_a_caller_has_its_own_choices_over_the_default_of_its_key_and_no_other() -> None:
    own = chosen_by("key:ada", {"git": "off"})

    assert read_integrations(own, principal("on")) == Integrations("on", {"git": "off"})
    assert read_integrations(chosen_by("key:bob", {"git": "off"}), principal("on")) is ALL_ON
    assert read_integrations(Snapshot(), principal("on")) is ALL_ON
    assert read_integrations(Snapshot(), principal("read_only")) == Integrations("read_only")


def test_a_choice_that_cannot_be_read_switches_everything_off() -> None:
    damaged = chosen_by("key:ada", {}, is_readable=False)

    assert read_integrations(damaged, principal("on")) == Integrations("off")


@settings(max_examples=rounds(suite=30, soak=17_000), database=None)
@given(st.integers(min_value=0, max_value=2**32))
@pytest.mark.requirement("002-020")
def test_choices_only_take_away_and_exactly_what_they_say(seed: int) -> None:
    maker, random = Maker(seed), Random(seed)
    for _ in range(40):
        world = maker.world()
        platform = replace(
            world.platform,
            servers={
                one: reading(found, *maker.some(("read", "del")))
                for one, found in world.platform.servers.items()
            },
        )
        chosen = random.sample(SERVERS, random.randrange(len(SERVERS) + 1))
        integrations = Integrations(
            random.choice(STATES), {server_id: random.choice(STATES) for server_id in chosen}
        )
        narrowed, free = (composed(world, platform, one) for one in (integrations, ALL_ON))

        assert narrowed.refs == tuple(ref for ref in free.refs if has(platform, integrations, *ref))
        assert (narrowed.refusal, narrowed.warnings) == (free.refusal, free.warnings) or not narrowed.refs


def composed(world: World, platform: Snapshot, integrations: Integrations) -> Scope:
    return compose(
        ScopeInputs(platform, world.ceiling, world.task, world.request, integrations=integrations),
        limits=NO_LIMITS,
    )


def has(platform: Snapshot, integrations: Integrations, server_id: str, name: str) -> bool:
    state = integrations.state_of(server_id)
    tool = platform.servers[server_id].tools.get(name)
    reads = bool(kind_of(name)) or (tool is not None and tool.is_read_only)
    return state == "on" or (state == "read_only" and reads)
