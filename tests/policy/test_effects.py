"""Patterns for effects: `@read_only` and its like, by what approved definitions say, and never by names."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import pytest
from hypothesis import given, settings

from tests.policy.changes import with_offers, with_profiles, with_task
from tests.policy.test_properties import scope_of, seeds, worlds
from tests.policy.worlds import Maker, World, offer, refs, snapshot
from tests.scenarios.soak import rounds
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling, Key
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.tasks import Profile, Selection
from toolgate.model.tools import HINTS, UNSTATED, Pin, ServerTools, Snapshot, read_effects
from toolgate.policy.admission import find_requirements
from toolgate.policy.compose import compose, compute_key_reach, explain
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_tools_selection
from toolgate.policy.learn import learn
from toolgate.policy.lint import lint
from toolgate.policy.patterns import Patterns, effect_of, parse_pattern
from toolgate.policy.plan import Planner
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.rules import can_match, find_matching, is_in_ceiling, read_approved
from toolgate.policy.scope import Scope

FEW = settings(max_examples=rounds(suite=8, soak=17_000), database=None)

READS = {"readOnlyHint": True}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
DELETES = {"destructiveHint": True}
BOTH = {"readOnlyHint": True, "destructiveHint": True}
FS = offer(
    "fs",
    *("read", "write", "delete", "odd", "mute"),
    hints={"read": READS, "write": WRITES, "delete": DELETES, "odd": BOTH},
)
MUTE = offer("mute", "a", "b")


def seen(
    *offers: ServerTools,
    ceiling: Ceiling | None = None,
    task: TaskPolicy | None = None,
    request: SessionRequest | None = None,
    profiles: tuple[Profile, ...] = (),
) -> tuple[ToolRef, ...]:
    platform = snapshot(*(offers or (FS,)), profiles=profiles)
    return compose(ScopeInputs(platform, ceiling or Ceiling(), task, request or SessionRequest())).tools


@pytest.mark.parametrize(
    "text", ["@read_only", "@destructive", "fs/@idempotent", "f*/@open_world", "*/@read_only", "prompt:@x"]
)
def test_effects_are_patterns(text: str) -> None:
    assert parse_pattern(text) == text


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("@readonly", "unknown effect `@readonly`", "did you mean `@read_only`? the effects are"),
        ("@read-only", "unknown effect `@read-only`", "did you mean `@read_only`?"),
        ("fs/@Destructive", "unknown effect `@Destructive`", "did you mean `@destructive`?"),
        ("@read*", "unknown effect `@read*`", "`@destructive`, `@idempotent`, `@open_world`, `@read_only`"),
        ("@", "unknown effect `@`", "the effects are"),
        ("@zzz", "unknown effect `@zzz`", "the effects are"),
        ("@read_only/fs", "has an invalid server id `@read_only`", "write the server before the effect"),
    ],
)
def test_an_unknown_effect_is_refused_with_those_there_are(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_pattern(text)

    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_a_tool_that_calls_itself_like_an_effect_is_not_matched_by_it() -> None:
    patterns = Patterns(["@read_only"])
    ref = ToolRef("fs", "read_only_3f2a9c1b")

    assert patterns.first_match(ref, "@read_only", effects=UNSTATED, is_deny=False) is None
    assert effect_of("read_only") is None


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("@read_only",), ["read"]),
        (("@destructive",), ["delete"]),
        (("@idempotent", "@open_world"), ["write"]),
        (("fs/@read_only", "mute"), ["mute", "read"]),
        (("?s/@read_only",), ["read"]),
        (("other/@read_only", "o*/@destructive"), []),
    ],
)
@pytest.mark.requirement("002-021")
def test_an_allow_pattern_matches_only_what_a_definition_states(
    patterns: tuple[str, ...], expected: list[str]
) -> None:
    everywhere = TaskPolicy(task_id="t", enabled=True, default=("fs",))
    by_profile = Profile(profile_id="p", selection=Selection(allow=patterns))
    found = [
        seen(replace(FS, record=replace(FS.record, allowed_tools=patterns))),
        seen(ceiling=Ceiling(allow=patterns)),
        seen(task=replace(everywhere, allow=patterns)),
        seen(task=replace(everywhere, overrides=Selection(allow=patterns))),
        seen(task=replace(everywhere, profile="p"), profiles=(by_profile,)),
        seen(request=SessionRequest(tools=parse_tools_selection(patterns))),
        seen(request=SessionRequest(allow=patterns)),
        seen(request=SessionRequest(profile="p"), profiles=(by_profile,)),
        tuple(find_matching(snapshot(FS), Patterns(patterns), is_deny=False)),
    ]

    assert found == [tuple(ToolRef("fs", name) for name in expected)] * len(found)


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (("@destructive",), ["read", "write"]),
        (("@read_only",), ["write"]),
        (("@open_world",), ["write"]),
        (("fs/@idempotent", "other/@read_only"), []),
        (("?s/@destructive",), ["read", "write"]),
        (("other/@destructive",), ["delete", "mute", "odd", "read", "write"]),
    ],
)
def test_a_deny_pattern_matches_all_that_a_definition_does_not_rule_out(
    patterns: tuple[str, ...], left: list[str]
) -> None:
    everywhere = TaskPolicy(task_id="t", enabled=True, default=("fs",))
    by_profile = Profile(profile_id="p", selection=Selection(deny=patterns))
    found = [
        seen(ceiling=Ceiling(deny=patterns)),
        seen(task=replace(everywhere, deny=patterns)),
        seen(task=replace(everywhere, overrides=Selection(deny=patterns))),
        seen(task=replace(everywhere, profile="p"), profiles=(by_profile,)),
        seen(request=SessionRequest(deny=patterns)),
        seen(request=SessionRequest(profile="p"), profiles=(by_profile,)),
    ]

    assert found == [tuple(ToolRef("fs", name) for name in left)] * len(found)


def test_an_effect_never_speaks_of_prompts_and_resources() -> None:
    server = offer("fs", "read", "prompt:p", "resource:f:x", allowed=("*", "prompt:*", "resource:*"))

    def scope(ceiling: Ceiling) -> Scope:
        return compose(ScopeInputs(snapshot(server), ceiling))

    assert scope(Ceiling(allow=("@read_only",))).refs == ()
    assert scope(Ceiling(deny=("@destructive",))).refs == refs("fs/prompt:p", "fs/resource:f:x")


def test_annotations_that_change_after_approval_do_not_change_the_decision() -> None:
    """A pin has the digest, which covers annotations: what differs is quarantined, whatever it says now."""
    tool = replace(FS.tools["write"], effects=read_effects(READS), digest="new")
    drifted = replace(
        FS, tools=MappingProxyType({"write": tool}), record=replace(FS.record, allowed_tools=("@read_only",))
    )
    pin = Pin(server_id="fs", tools={"write": "old"})
    platform = replace(snapshot(drifted), pins={"fs": pin})
    found = explain(ScopeInputs(platform))

    assert [(one.tool, one.allowed, one.rule) for one in found.tools] == [
        ("write", False, "pin: its definition is not the approved one")
    ]
    approved = replace(platform, pins={"fs": Pin(server_id="fs", tools={"write": "new"})})
    assert read_approved(platform, tool.ref) == ("", UNSTATED)
    assert read_approved(approved, tool.ref) == ("", tool.effects)
    assert list(find_matching(platform, Patterns(["@read_only"]), is_deny=False)) == []


def test_an_approver_whose_ceiling_has_an_effect_judges_calls_within_it() -> None:
    ref = ToolRef("fs", "x")

    def judges(ceiling: Ceiling, hints: Mapping[str, bool]) -> bool:
        return is_in_ceiling(ceiling, ref, task_id=None, effects=read_effects(hints))

    assert judges(Ceiling(allow=("@read_only",)), READS)
    assert not judges(Ceiling(allow=("@read_only",)), {})
    assert judges(Ceiling(deny=("@destructive",)), READS)
    assert not judges(Ceiling(deny=("@destructive",)), {})


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        pytest.param(
            Ceiling(allow=("@read_only",)),
            {
                "delete": "key allow (`@read_only`: the definition does not state `readOnlyHint`)",
                "mute": "key allow (`@read_only`: the definition does not state `readOnlyHint`)",
                "odd": "key allow (`@read_only`: the definition contradicts itself: `readOnlyHint: true`, "
                "`destructiveHint: true`)",
                "read": "key allow `@read_only` (the definition says `readOnlyHint: true`)",
                "write": "key allow (`@read_only`: the definition says `readOnlyHint: false`)",
            },
            id="allow",
        ),
        pytest.param(
            Ceiling(allow=("*", "@read_only"), deny=("@destructive", "mute")),
            {
                "delete": "key deny `@destructive` (the definition says `destructiveHint: true`)",
                "mute": "key deny `mute`",
                "odd": "key deny `@destructive` (the definition contradicts itself: `readOnlyHint: true`, "
                "`destructiveHint: true`)",
                "read": "key allow `*`",
                "write": "key allow `*`",
            },
            id="deny",
        ),
        pytest.param(
            Ceiling(allow=("other/@read_only", "@open_world")),
            dict.fromkeys(
                ("delete", "mute", "odd", "read"),
                "key allow (`@open_world`: the definition does not state `openWorldHint`)",
            )
            | {"write": "key allow (`@open_world`: the definition says `openWorldHint: false`)"},
            id="only what speaks of the server",
        ),
    ],
)
def test_explain_says_which_effect_decided_and_what_the_definition_says(
    ceiling: Ceiling, expected: dict[str, str]
) -> None:
    found = explain(ScopeInputs(snapshot(FS), ceiling))

    assert {one.tool: one.rule for one in found.tools} == expected


def policy(default: Approval, **per_effect: Approval) -> ServerTools:
    per_tool = {f"@{effect}": hint_values for effect, hint_values in per_effect.items()}
    record = replace(FS.record, approval_policy=ApprovalPolicy(default=default, per_tool=per_tool))
    return replace(FS, record=record)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(policy("never", destructive="always"), ["delete", "mute", "odd"], id="more for some"),
        pytest.param(policy("always", read_only="never"), ["delete", "mute", "odd", "write"], id="less"),
        pytest.param(policy("never", read_only="never"), [], id="never, by any reading"),
        pytest.param(
            policy("always", idempotent="never", read_only="policy"),
            ["delete", "mute", "odd"],
            id="the strictest reading of several",
        ),
    ],
)
def test_approvals_by_effect_ask_for_more_where_a_definition_does_not_say(
    server: ServerTools, expected: list[str]
) -> None:
    platform = snapshot(server)
    tools = refs(*(f"fs/{name}" for name in sorted(FS.tools)))
    found = find_requirements(platform, tools)

    assert [ref.name for ref in found] == expected
    assert all("definition" in one.rule or "default" in one.rule for one in found.values())


def test_plan_shows_what_a_change_to_an_effect_does() -> None:
    before = snapshot(FS)
    after = snapshot(replace(FS, record=replace(FS.record, allowed_tools=("@read_only",))))
    (change,) = Planner().plan(before, after)

    assert change.removed == refs("fs/delete", "fs/mute", "fs/odd", "fs/write")
    assert change.added == ()


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        pytest.param(snapshot(FS), [], id="no effect"),
        pytest.param(
            snapshot(replace(MUTE, record=replace(MUTE.record, allowed_tools=("@read_only",)))),
            [("no_annotations", "no tool of `mute` states `readOnlyHint`, so it allows none of them")],
            id="an allowlist on a server without annotations",
        ),
        pytest.param(
            snapshot(
                MUTE,
                offer("quiet", "c"),
                keys=(Key(key_id="k", sha256="", role="agent", ceiling=Ceiling(deny=("@destructive",))),),
            ),
            [
                (
                    "no_annotations",
                    "no tool of `mute` and 1 more servers states `destructiveHint`, so it denies all of them",
                )
            ],
            id="a denylist",
        ),
        pytest.param(
            snapshot(replace(FS, record=replace(FS.record, allowed_tools=("read", "@open_world")))),
            [("matches_nothing", "no name matches `@open_world`")],
            id="annotated, and none like that",
        ),
        pytest.param(
            snapshot(
                FS,
                MUTE,
                keys=(
                    Key(
                        key_id="k",
                        sha256="",
                        role="agent",
                        ceiling=Ceiling(allow=("@read_only",), deny=("fs/@destructive", "read")),
                    ),
                ),
            ),
            [("shadowed", "`key deny` denies everything that `@read_only` allows")],
            id="an allowlist that a denylist cancels",
        ),
        pytest.param(
            snapshot(offer("slow", state="pending", allowed=("@read_only",))),
            [("not_judged", "server `slow` has not listed its tools (pending)")],
            id="not listed yet",
        ),
    ],
)
def test_lint_finds_effects_that_no_definition_states(
    platform: Snapshot, expected: list[tuple[str, str]]
) -> None:
    found = lint(platform)

    assert [(one.code, one.message) for one in (*found.findings, *found.unjudged)] == expected


def test_a_server_that_was_not_listed_may_hold_any_effect() -> None:
    slow = offer("slow", state="pending")

    assert can_match(slow, Patterns(["@read_only"]), is_deny=False)
    assert not can_match(MUTE, Patterns(["@read_only"]), is_deny=False)
    assert can_match(MUTE, Patterns(["@read_only"]), is_deny=True)
    broken = offer("bad", quarantined={"x": "no schema", "prompt:y": "no name"})
    assert can_match(broken, Patterns(["@destructive"]), is_deny=True)


def test_a_key_reaches_what_its_effects_let_through() -> None:
    assert compute_key_reach(snapshot(FS, MUTE), Ceiling(allow=("@read_only",))) == set(refs("fs/read"))


def test_learning_keeps_what_the_effects_of_a_task_let_through_and_no_more() -> None:
    used = refs("fs/delete", "fs/read")
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",), allow=("@read_only",))

    assert learn(snapshot(FS), task, used).policy.allow == ("fs/read",)


def test_learning_drops_a_denial_by_effect_only_where_it_would_deny_what_was_used() -> None:
    lax = TaskPolicy(
        task_id="t", enabled=True, enforced=False, default=("fs",), deny=("@destructive", "@open_world")
    )

    assert learn(snapshot(FS), lax, refs("fs/write")).dropped == ()
    assert learn(snapshot(FS), lax, refs("fs/delete")).dropped == (
        "mcp.tool_denylist `@destructive`",
        "mcp.tool_denylist `@open_world`",
    )


def test_learning_ignores_annotations_that_are_not_approved() -> None:
    """A server cannot have a tool learned by name by calling it read-only later."""
    tool = replace(FS.tools["delete"], effects=read_effects(READS), digest="new")
    drifted = replace(FS, tools=MappingProxyType({"delete": tool}))
    platform = replace(snapshot(drifted), pins={"fs": Pin(server_id="fs", tools={"delete": "old"})})
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",), allow=("@read_only",))

    assert learn(platform, task, refs("fs/delete")).policy.allow == ()


def forget_one(maker: Maker, world: World) -> World:
    """The same world, in which one definition says less. A contradiction stays one."""

    def forget(offer: ServerTools) -> ServerTools:
        tools = dict(offer.tools)
        if not tools:
            return offer
        name, hint = maker.pick(tuple(sorted(tools))), maker.pick(tuple(HINTS.values()))
        hints = dict(tools[name].effects.hints)
        is_contradiction = hints.get("readOnlyHint") and hints.get("destructiveHint")
        if not (is_contradiction and hint in {"readOnlyHint", "destructiveHint"}):
            hints.pop(hint, None)
        tools[name] = replace(tools[name], effects=read_effects(hints))
        return replace(offer, tools=MappingProxyType(tools))

    return replace(world, platform=with_offers(world.platform, forget))


def without_effects(world: World) -> World:
    """The same world with names in place of effects: every tool allowed where one was, and none denied."""

    def allow(texts: Iterable[str] | None) -> tuple[str, ...] | None:
        return None if texts is None else tuple(widened(texts))

    def widened(texts: Iterable[str]) -> Iterator[str]:
        return (text if effect_of(text) is None else f"{text.partition('@')[0]}*" for text in texts)

    def named(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(text for text in texts if effect_of(text) is None)

    def selection(one: Selection) -> Selection:
        return replace(one, allow=allow(one.allow), deny=named(one.deny))

    def task(one: TaskPolicy) -> TaskPolicy:
        return replace(one, allow=allow(one.allow), deny=named(one.deny), overrides=selection(one.overrides))

    def record(one: ServerTools) -> ServerTools:
        allowed = tuple(widened(one.record.allowed_tools))
        return replace(one, record=replace(one.record, allowed_tools=allowed))

    ceiling, request = world.ceiling, world.request
    platform = with_profiles(with_offers(world.platform, record), selection)
    return replace(
        with_task(world, task),
        platform=platform,
        ceiling=replace(ceiling, allow=allow(ceiling.allow), deny=named(ceiling.deny)),
        request=replace(
            request, tools=allow(request.tools), allow=allow(request.allow), deny=named(request.deny)
        ),
    )


@FEW
@given(seeds)
def test_an_effect_never_gives_more_than_the_same_lists_without_it(seed: int) -> None:
    for _maker, world in worlds(seed):
        assert set(scope_of(world).refs) <= set(scope_of(without_effects(world)).refs)


@FEW
@given(seeds)
def test_a_definition_that_says_less_never_gives_more(seed: int) -> None:
    for maker, world in worlds(seed):
        assert set(scope_of(forget_one(maker, world)).refs) <= set(scope_of(world).refs)


def test_a_definition_that_says_less_never_takes_an_approval_away() -> None:
    strictness: tuple[Approval, ...] = ("never", "policy", "always")
    hints = [
        dict(zip(HINTS.values(), hint_values, strict=True))
        for hint_values in product((True, False, None), repeat=4)
    ]
    rules = [
        (default, dict(zip(("@read_only", "@destructive", "@open_world"), hint_values, strict=True)))
        for default, *hint_values in product(strictness, repeat=4)
    ]

    def needs(
        hint_values: Mapping[str, bool | None], default: Approval, per_tool: dict[str, Approval]
    ) -> bool:
        tool = replace(FS.tools["read"], effects=read_effects(hint_values))
        record = replace(FS.record, approval_policy=ApprovalPolicy(default=default, per_tool=per_tool))
        platform = snapshot(replace(FS, record=record, tools={"read": tool}))
        return bool(find_requirements(platform, refs("fs/read")))

    for (default, per_tool), hint_values in product(rules, hints[::4]):
        less = hint_values | {"openWorldHint": None}
        assert needs(less, default, per_tool) >= needs(hint_values, default, per_tool), (
            default,
            per_tool,
            hint_values,
        )
        if not (hint_values["readOnlyHint"] and hint_values["destructiveHint"]):
            less = hint_values | {"destructiveHint": None}
            assert needs(less, default, per_tool) >= needs(hint_values, default, per_tool), (
                default,
                per_tool,
                hint_values,
            )
