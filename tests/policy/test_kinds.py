"""Tools, prompts and resources in one decision engine: the kinds never mix, and each is denied by default."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.worlds import KIND_PATTERNS, OTHERS, PATTERNS, TOOLS, offer, refs, snapshot
from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.names import ToolRef, kind_of
from toolgate.model.principals import Ceiling
from toolgate.model.tools import UNSTATED, Pin, ServerTools
from toolgate.policy.compose import compose, decide_one, explain
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_tools_selection
from toolgate.policy.lint import lint
from toolgate.policy.patterns import MAX_KIND_PATTERN, Patterns, parse_pattern
from toolgate.policy.plan import Planner
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.rules import count_registered
from toolgate.policy.scope import Decision, Reason, Scope, ScopeLimits

OPEN = Ceiling()
ASK = SessionRequest()
EVERYTHING = ("*", "prompt:*", "resource:*")
ALL = ("read", "prompt:greet", "resource:file:///a", "resource:file:///{x}")


def scope_of(*names: str, allowed: tuple[str, ...], request: SessionRequest = ASK) -> Scope:
    return compose(ScopeInputs(snapshot(offer("fs", *names, allowed=allowed)), request=request))


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        pytest.param("*", "prompt:greet", False, id="a star is all tools and no prompt"),
        pytest.param("*", "resource:file:///a", False, id="a star is all tools and no resource"),
        pytest.param("fs/*", "prompt:greet", False, id="all tools of a server are no prompt"),
        pytest.param("*:*", "prompt:greet", False, id="a colon makes no kind"),
        pytest.param("prompt*", "prompt:greet", False, id="a wildcard makes no kind"),
        pytest.param("prompt:*", "greet", False, id="all prompts are no tool"),
        pytest.param("prompt:*", "resource:greet:", False, id="all prompts are no resource"),
        pytest.param("resource:*", "prompt:greet", False, id="all resources are no prompt"),
        pytest.param("prompt:*", "prompt:greet", True, id="all prompts"),
        pytest.param("prompt:greet", "prompt:greet", True, id="a prompt"),
        pytest.param("prompt:greet", "prompt:greeting", False, id="another prompt"),
        pytest.param("prompt:g*t", "prompt:greet", True, id="a wildcard in a prompt"),
        pytest.param("prompt:fs/greet", "prompt:greet", True, id="a prompt of a server"),
        pytest.param("prompt:git/greet", "prompt:greet", False, id="a prompt of another server"),
        pytest.param("prompt:f?/g*", "prompt:greet", True, id="wildcards in both parts"),
        pytest.param("prompt:fs/a/b", "prompt:a/b", True, id="the first slash ends the server"),
        pytest.param("prompt:a/b", "prompt:a/b", False, id="a prompt with a slash needs its server"),
        pytest.param("prompt:*/a/b", "prompt:a/b", True, id="or any server"),
        pytest.param("resource:*", "resource:file:///a", True, id="all resources"),
        pytest.param("resource:file:///a", "resource:file:///a", True, id="a resource"),
        pytest.param("resource:file:///*", "resource:file:///docs/a", True, id="resources below a path"),
        pytest.param("resource:file:///docs/*", "resource:file:///a", False, id="another path"),
        pytest.param("resource:fs/file:///*", "resource:file:///a", True, id="resources of a server"),
        pytest.param("resource:git/file:///*", "resource:file:///a", False, id="of another server"),
        pytest.param("resource:fs/*", "resource:file:///a", True, id="all of a server"),
        pytest.param("resource:*/file:///a", "resource:file:///a", True, id="a resource of any server"),
        pytest.param("resource:*:///a", "resource:file:///a", True, id="any scheme"),
        pytest.param("resource:urn:a/b", "resource:urn:a/b", True, id="a scheme is no server"),
        pytest.param("resource:FILE:///a", "resource:file:///a", False, id="case counts"),
        pytest.param("resource:file:///{x}", "resource:file:///{x}", True, id="a template by its text"),
        pytest.param("resource:file:///{x}", "resource:file:///a", False, id="and not its expansion"),
    ],
)
def test_a_pattern_speaks_of_its_own_kind_alone(pattern: str, name: str, expected: bool) -> None:
    patterns, ref = Patterns([pattern]), ToolRef("fs", name)

    assert patterns.first_match(ref, effects=UNSTATED, is_deny=False) == (pattern if expected else None)
    assert patterns.matches_any("fs", [name]) is expected


@given(
    st.sampled_from((*PATTERNS, *KIND_PATTERNS)) | st.text(st.sampled_from("promt:esuc*?/a"), min_size=1),
    st.sampled_from((*TOOLS, *OTHERS)),
)
def test_kinds_never_mix(pattern: str, name: str) -> None:
    match = Patterns([pattern]).first_match(ToolRef("a", name), effects=UNSTATED, is_deny=False)

    assert match is None or kind_of(pattern) == kind_of(name)


@given(st.sampled_from((*TOOLS, *OTHERS)), st.sampled_from(("a", "b")))
def test_what_something_is_called_is_a_pattern_that_names_it_and_nothing_else(name: str, server: str) -> None:
    ref = ToolRef(server, name)
    patterns = Patterns([parse_pattern(str(ref))])
    others = {ToolRef(one, other) for one in ("a", "b") for other in (*TOOLS, *OTHERS)} - {ref}

    assert patterns.first_match(ref, effects=UNSTATED, is_deny=False) == str(ref)
    assert not any(patterns.first_match(other, effects=UNSTATED, is_deny=False) for other in others)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt:", "the pattern `prompt:` has no name"),
        ("resource:", "the pattern `resource:` has no name"),
        ("prompt:a b", "the pattern `prompt:a b` contains a space or an invisible character"),
        (
            "resource:" + "x" * MAX_KIND_PATTERN,
            f"the pattern `resource:{'x' * 31}…` has {MAX_KIND_PATTERN + 9} characters",
        ),
    ],
)
def test_a_pattern_of_a_kind_is_held_to_the_same_rules(text: str, message: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_pattern(text)

    assert str(caught.value) == message


def test_a_uri_may_be_longer_than_a_tools_name() -> None:
    longest = "resource:" + "x" * (MAX_KIND_PATTERN - 9)

    assert parse_pattern(longest) == longest


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(("*",), ("read",), id="tools alone"),
        pytest.param(("prompt:*",), ("prompt:greet",), id="prompts alone"),
        pytest.param(("resource:*",), ("resource:file:///a", "resource:file:///{x}"), id="resources alone"),
        pytest.param(("resource:file:///a",), ("resource:file:///a",), id="a resource and no template"),
        pytest.param(("resource:*{x}",), ("resource:file:///{x}",), id="a template and no resource"),
        pytest.param(EVERYTHING, ALL, id="everything"),
    ],
)
def test_sco_2_a_server_shows_only_the_kinds_its_record_names(
    allowed: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    scope = scope_of(*ALL, allowed=allowed)

    assert {ref.name for ref in scope.refs} == set(expected)
    assert scope.warnings == ()


@pytest.mark.parametrize("layer", ["key", "task", "request"])
def test_sco_2_an_allowlist_of_any_layer_admits_only_the_kinds_it_names(layer: str) -> None:
    allow = ("prompt:*",)
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",), allow=allow if layer == "task" else None)
    scope = compose(
        ScopeInputs(
            snapshot(offer("fs", *ALL, allowed=EVERYTHING)),
            Ceiling(allow=allow if layer == "key" else None),
            task,
            SessionRequest(allow=allow if layer == "request" else None),
        )
    )

    assert scope.refs == refs("fs/prompt:greet")


@pytest.mark.requirement("000-17")
@pytest.mark.parametrize("layer", ["key", "task", "request"])
def test_sco_2_a_denylist_of_any_layer_takes_away_the_kinds_it_names(layer: str) -> None:
    deny = ("resource:fs/file:///*",)
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",), deny=deny if layer == "task" else ())
    scope = compose(
        ScopeInputs(
            snapshot(offer("fs", *ALL, allowed=EVERYTHING)),
            Ceiling(deny=deny if layer == "key" else ()),
            task,
            SessionRequest(deny=deny if layer == "request" else ()),
        )
    )

    assert scope.refs == refs("fs/read", "fs/prompt:greet")


def test_a_request_for_tools_takes_nothing_else_from_their_servers() -> None:
    platform = snapshot(
        offer("fs", "read", "write", "prompt:greet", allowed=EVERYTHING),
        offer("git", "log", "prompt:review", allowed=EVERYTHING),
    )

    scope = compose(ScopeInputs(platform, request=SessionRequest(tools=("fs/read",))))

    assert scope.refs == refs("fs/read", "fs/prompt:greet")


@pytest.mark.parametrize("item", ["prompt:greet", "resource:file:///a"])
def test_a_request_for_tools_names_tools(item: str) -> None:
    with pytest.raises(InvalidParams, match=f"`tools`: `{item}` is not a tool"):
        parse_tools_selection([item])


def test_limits_count_tools_only() -> None:
    platform = snapshot(offer("fs", *ALL, allowed=EVERYTHING))

    fits = compose(ScopeInputs(platform, request=ASK), limits=ScopeLimits(max_tools=1, on_too_many="refuse"))
    too_large = compose(
        ScopeInputs(platform, request=ASK), limits=ScopeLimits(max_tools=0, on_too_many="refuse")
    )

    assert fits.refusal is None
    assert too_large.refusal is not None
    assert (too_large.refs, too_large.servers) == ((), ())
    assert too_large.admitted == set(refs(*(f"fs/{name}" for name in ALL)))


def test_pins_are_about_tools() -> None:
    platform = replace(
        snapshot(offer("fs", *ALL, allowed=EVERYTHING)),
        pins=MappingProxyType({"fs": Pin(server_id="fs", tools={})}),
    )

    scope = compose(ScopeInputs(platform, request=ASK))

    assert {ref.name for ref in scope.refs} == {*ALL} - {"read"}


def test_a_refused_listing_is_hidden_with_its_reason() -> None:
    platform = snapshot(offer("fs", "read", allowed=EVERYTHING, quarantined={"prompt:bad": "it has no name"}))

    (bad,) = (one for one in explain(ScopeInputs(platform, request=ASK)).tools if not one.allowed)

    assert (bad.tool, bad.reason, bad.rule) == (
        "prompt:bad",
        Reason.INVALID_DEFINITION,
        "definition: it has no name",
    )
    assert count_registered(platform).tools == 1


def test_a_server_known_for_its_prompts_alone_stays_when_its_tools_cannot_be_listed() -> None:
    platform = snapshot(offer("fs", "prompt:greet", allowed=EVERYTHING, state="list_failed"))

    assert compose(ScopeInputs(platform, request=ASK)).refs == refs("fs/prompt:greet")


@pytest.mark.parametrize(
    ("allowed", "uri", "expected"),
    [
        (("resource:file:///docs/*",), "file:///docs/a", True),
        (("resource:file:///docs/*",), "file:///etc/passwd", False),
        (("resource:file:///{x}",), "file:///etc", False),
        (("*",), "file:///docs/a", False),
    ],
)
def test_sco_2_a_uri_read_through_a_template_is_decided_on_its_own(
    allowed: tuple[str, ...], uri: str, expected: bool
) -> None:
    platform = snapshot(offer("fs", "resource:file:///{x}", allowed=allowed))
    ref = ToolRef("fs", f"resource:{uri}")

    decision = decide_one(ScopeInputs(platform, request=ASK), ref)

    assert (decision.tool, decision.allowed) == (ref.name, expected)


@pytest.mark.parametrize(
    ("server_id", "request_", "reason"),
    [
        ("ghost", ASK, Reason.UNKNOWN_SERVER),
        ("fs", SessionRequest(servers=("git",)), Reason.NOT_REQUESTED),
        ("fs", SessionRequest(enabled=False), Reason.NOT_REQUESTED),
    ],
)
def test_sco_22_nothing_is_read_of_a_server_that_is_not_in_the_scope(
    server_id: str, request_: SessionRequest, reason: Reason
) -> None:
    platform = snapshot(offer("fs", *ALL, allowed=EVERYTHING), offer("git"))
    ref = ToolRef(server_id, "resource:file:///a")

    decision = decide_one(ScopeInputs(platform, request=request_), ref)

    assert (decision.tool, decision.allowed, decision.reason) == (ref.name, False, reason)


def test_a_plan_tells_of_prompts_and_resources() -> None:
    before = snapshot(offer("fs", *ALL, allowed=("*",)))
    after = snapshot(offer("fs", *ALL, allowed=("*", "prompt:*")))

    (plain,) = Planner().plan(before, after)

    assert [str(ref) for ref in plain.added] == ["prompt:fs/greet"]


def test_patterns_of_kinds_that_match_nothing_are_found() -> None:
    platform = snapshot(offer("fs", *ALL, allowed=("read", "prompt:greet", "prompt:bye", "resource:git:*")))

    assert [(one.subject, one.message) for one in lint(platform).findings] == [
        ("prompt:bye", "no name matches `prompt:bye`"),
        ("resource:git:*", "no name matches `resource:git:*`"),
    ]


class Looked(Mapping[str, ServerTools]):
    """The servers of a platform; remembers which were looked at."""

    def __init__(self, servers: Mapping[str, ServerTools]) -> None:
        self._servers = servers
        self.at: set[str] = set()

    def __getitem__(self, server_id: str) -> ServerTools:
        self.at.add(server_id)
        return self._servers[server_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    def __contains__(self, server_id: object) -> bool:
        return server_id in self._servers


@pytest.mark.parametrize(
    ("ceiling", "task", "request_"),
    [
        pytest.param(Ceiling(servers=("s3", "s5")), None, ASK, id="servers of a key"),
        pytest.param(Ceiling(allow=("s3/*", "s5/read")), None, ASK, id="patterns of a key"),
        pytest.param(
            OPEN, TaskPolicy(task_id="t", enabled=True, default=("s3", "s5")), ASK, id="servers of a task"
        ),
        pytest.param(OPEN, None, SessionRequest(servers=("s3", "s5")), id="servers of a request"),
        pytest.param(OPEN, None, SessionRequest(tools=("s3/read", "s5/read")), id="tools of a request"),
    ],
)
def test_the_cost_of_a_scope_follows_what_is_asked_for_and_not_what_is_registered(
    ceiling: Ceiling, task: TaskPolicy | None, request_: SessionRequest
) -> None:
    platform = snapshot(*(offer(f"s{number}", "read") for number in range(100)))
    servers = Looked(platform.servers)

    scope = compose(ScopeInputs(replace(platform, servers=servers), ceiling, task, request_))

    assert scope.servers == ("s3", "s5")
    assert servers.at == {"s3", "s5"}


def test_a_server_without_any_tool_that_is_asked_for_is_left_out_whole() -> None:
    platform = snapshot(offer("fs", "read", "prompt:greet", allowed=EVERYTHING), offer("git", "log"))

    found = explain(ScopeInputs(platform, request=SessionRequest(tools=("log",))))

    assert found.scope.servers == ("git",)
    assert [(one.server_id, one.reason, one.rule) for one in found.servers] == [
        ("fs", Reason.NOT_IN_REQUEST_ALLOWLIST, "?tools=")
    ]


def test_what_compose_leaves_out_is_in_the_explanation() -> None:
    platform = snapshot(*(offer(f"s{number}", "read") for number in range(5)))
    ceiling = Ceiling(allow=("s1/*",))

    found = explain(ScopeInputs(platform, ceiling, request=ASK))

    assert [one.tool for one in found.scope.decisions] == ["read"]
    assert found.servers == tuple(
        Decision(
            server_id=server_id,
            tool=None,
            allowed=False,
            layer="key",
            reason=Reason.NOT_ALLOWED_BY_KEY,
            rule="key allow",
        )
        for server_id in ("s0", "s2", "s3", "s4")
    )


def test_a_request_names_servers_by_id_and_by_tool() -> None:
    request = SessionRequest(servers=("git",), tools=("web/fetch", "log"))

    assert request.named_servers == {"git", "web"}
