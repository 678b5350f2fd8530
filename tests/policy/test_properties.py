"""What must hold for every platform, key, task and request, each over thousands of small random worlds.

One example of hypothesis is a seed, and each seed makes many worlds: a world is far cheaper to build than
an example is to draw.
"""

import json
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy import model
from tests.policy.changes import add_deny, remove_allow, reorder
from tests.policy.worlds import SERVERS, Maker, World
from tests.scenarios.soak import rounds
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.tasks import Task
from toolgate.model.tools import UNSTATED
from toolgate.policy.compose import Explanation, compose, decide_one, explain
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.patterns import Patterns
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.rules import compile_stored
from toolgate.policy.scope import Decision, Scope

CASES_PER_EXAMPLE = 60
# 3,000 cases a property, or a million.
MANY = settings(max_examples=rounds(suite=50, soak=17_000), database=None)
LAYERS = dict(zip(("platform", "key", "task", "request"), model.LAYERS, strict=True))

seeds = st.integers(min_value=0, max_value=2**32)


def worlds(seed: int) -> Iterator[tuple[Maker, World]]:
    maker = Maker(seed)
    for _ in range(CASES_PER_EXAMPLE):
        yield maker, maker.world()


def scope_of(world: World) -> Scope:
    return compose(ScopeInputs(world.platform, world.ceiling, world.task, world.request))


def seen(scope: Scope) -> tuple[ToolRef, ...]:
    return tuple(sorted(scope.refs))


def explanation_of(world: World) -> Explanation:
    return explain(ScopeInputs(world.platform, world.ceiling, world.task, world.request))


def ref_of(decision: Decision) -> ToolRef:
    assert decision.tool is not None
    return ToolRef(decision.server_id, decision.tool)


@pytest.mark.requirement("000-06", "000-16", "002-028")
@MANY
@given(seeds)
def test_sco_3_a_scope_is_the_intersection_of_its_layers_and_so_a_subset_of_each(seed: int) -> None:
    for _, world in worlds(seed):
        scope = scope_of(world)

        assert (seen(scope), scope.refusal and scope.refusal.code) == (
            model.expected(world),
            model.refusal_code(world),
        )
        assert all(admits(world, ref) for admits in model.LAYERS for ref in scope.refs)


@pytest.mark.requirement("000-17")
@MANY
@given(seeds)
def test_sco_3_adding_a_deny_never_adds_a_tool(seed: int) -> None:
    for maker, world in worlds(seed):
        before, after = scope_of(world), scope_of(add_deny(maker, world))

        assert set(after.refs) <= set(before.refs)


@MANY
@given(seeds)
def test_sco_3_removing_an_allow_never_adds_a_tool(seed: int) -> None:
    for maker, world in worlds(seed):
        before, after = scope_of(world), scope_of(remove_allow(maker, world))

        assert set(after.refs) <= set(before.refs)


@MANY
@given(seeds)
def test_sco_3_the_order_of_lists_and_repeats_in_them_do_not_matter(seed: int) -> None:
    for maker, world in worlds(seed):
        assert scope_of(reorder(maker, world)) == scope_of(world)


@pytest.mark.requirement("000-11")
@MANY
@given(seeds)
def test_sco_3_the_same_input_gives_the_same_output(seed: int) -> None:
    first = [scope_of(world) for _, world in worlds(seed)]
    compile_stored.cache_clear()

    assert [scope_of(world) for _, world in worlds(seed)] == first


@MANY
@given(seeds)
def test_every_excluded_tool_has_exactly_one_reason_and_its_layer_does_object(seed: int) -> None:
    for _, world in worlds(seed):
        explanation = explanation_of(world)

        assert [ref_of(one) for one in explanation.tools] == sorted(model.registered(world))
        for one in explanation.tools:
            assert one.allowed is (one.reason is None)
            if not one.allowed and explanation.scope.refusal is None:
                assert not LAYERS[one.layer](world, ref_of(one)), one


@MANY
@given(seeds)
def test_explain_and_compose_never_disagree(seed: int) -> None:
    for _, world in worlds(seed):
        explanation, scope = explanation_of(world), scope_of(world)

        assert explanation.scope == scope
        assert tuple(ref_of(one) for one in explanation.tools if one.allowed) == seen(scope)


@MANY
@given(seeds)
def test_sco_2_what_a_scope_shows_is_decided_the_same_when_it_is_asked_for_alone(seed: int) -> None:
    for _, world in worlds(seed):
        for one in explanation_of(world).tools:
            alone = decide_one(
                ScopeInputs(world.platform, world.ceiling, world.task, world.request), ref_of(one)
            )

            assert alone == one


@MANY
@given(seeds)
def test_sco_2_each_kind_is_listed_as_what_it_is(seed: int) -> None:
    for _, world in worlds(seed):
        scope, servers = scope_of(world), world.platform.servers

        assert all(ref.name in servers[ref.server_id].tools for ref in scope.tools)
        assert all(ref.name[7:] in servers[ref.server_id].prompts for ref in scope.prompts)
        assert all(ref.name[9:] in servers[ref.server_id].resources for ref in scope.resources)
        assert all(ref.name[9:] in servers[ref.server_id].templates for ref in scope.templates)


@MANY
@given(seeds)
def test_a_task_that_is_accepted_has_its_default_within_its_allowed_servers(seed: int) -> None:
    maker = Maker(seed)
    for _ in range(CASES_PER_EXAMPLE):
        default, allowed = maker.some(SERVERS), maker.some(SERVERS)
        config = {
            "mcp.default_server_ids": json.dumps(default),
            "mcp.allowed_server_ids": json.dumps(allowed),
        }
        task = Task(task_id="t", config=config)
        if set(default) <= set(allowed):
            policy = parse_task_policy(task)

            assert (policy.default, policy.allowed) == (tuple(sorted(default)), tuple(sorted(allowed)))
        else:
            with pytest.raises(InvalidRecord, match=r"mcp\.default_server_ids"):
                parse_task_policy(task)


@MANY
@given(seeds)
def test_patterns_match_as_their_definition_says_whatever_the_order(seed: int) -> None:
    random = Random(seed)
    for _ in range(CASES_PER_EXAMPLE):
        texts = ["".join(random.choices("ab*?/", k=random.randrange(1, 9))) for _ in range(3)]
        ref = ToolRef(
            "".join(random.choices("ab", k=2)), "".join(random.choices("ab*?", k=random.randrange(1, 9)))
        )
        matching = sorted(text for text in set(texts) if model.matches(text, ref))
        patterns = Patterns(texts)
        found = patterns.first_match(ref, effects=UNSTATED, is_deny=False)

        assert (found in matching) if matching else (found is None), (texts, ref)
        assert patterns.matches_any(ref.server_id, {ref.name}) is bool(matching)
        assert Patterns(reversed(texts)).first_match(ref, effects=UNSTATED, is_deny=False) == found
