"""The rules of the four layers, one case a rule."""

from dataclasses import replace

import pytest

from tests.policy.worlds import TOKENS, offer, refs, snapshot
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling
from toolgate.model.servers import ApprovalPolicy
from toolgate.model.tasks import Profile, Selection, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Decision, EffectiveFilter, Reason, Refusal, Scope

EMPTY = "no tool is left in this scope: run `toolgate explain` for the reasons"
EMPTY_TASK = EMPTY.replace("this scope", "the scope of task `t`")
NOWHERE = "`mcp.profile` names the missing profile `nowhere`, so no tool is allowed"
REVIEW = Profile(
    profile_id="review",
    selection=Selection(servers=("fs", "git"), allow=("read", "log", "push"), deny=("git/push",)),
    environments={"dev": Selection(tags=("scm",))},
)
PLATFORM = snapshot(
    offer("fs", "read", "write", tags=("local",)),
    offer("git", "log", "push", tags=("local", "scm")),
    offer("web", "get", "read"),
    profiles=(REVIEW,),
)
ALL = refs("fs/read", "fs/write", "git/log", "git/push", "web/get", "web/read")
OPEN = Ceiling()
ASK = SessionRequest()
TASK = TaskPolicy(task_id="t", enabled=True, default=("fs",))
WIDE = replace(TASK, allowed=("fs", "git"))
BARE = TaskPolicy(task_id="t", enabled=True)


def tools_of(
    platform: Snapshot = PLATFORM,
    ceiling: Ceiling = OPEN,
    *,
    task: TaskPolicy | None = None,
    request: SessionRequest = ASK,
) -> tuple[ToolRef, ...]:
    scope = compose(ScopeInputs(platform, ceiling, task, request))
    assert scope.refusal is None
    return scope.tools


@pytest.mark.requirement("000-49")
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(ASK, refs("fs/read", "gitlab/list"), id="the default"),
        pytest.param(SessionRequest(servers=("gitlab",)), refs("gitlab/list"), id="narrowed"),
        pytest.param(
            SessionRequest(servers=("duckduckgo-search",)), refs("duckduckgo-search/find"), id="allowed"
        ),
        pytest.param(SessionRequest(servers=("jira",)), None, id="not allowed"),
    ],
)
def test_the_task_config_of_the_requirement_document_means_what_it_says(
    request_: SessionRequest, expected: tuple[ToolRef, ...] | None
) -> None:
    config = {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["gitlab","fs"]',
        "mcp.allowed_server_ids": '["gitlab","fs","duckduckgo-search"]',
        "mcp.tool_allowlist": '["*"]',
        "mcp.tool_denylist": '["delete_*"]',
    }
    platform = snapshot(
        offer("fs", "read", "delete_file"),
        offer("gitlab", "list"),
        offer("duckduckgo-search", "find"),
        offer("jira", "list"),
    )
    policy = parse_task_policy(Task(task_id="t", config=config))

    scope = compose(ScopeInputs(platform, task=policy, request=request_))

    assert (None if scope.refusal is not None else scope.tools) == expected


@pytest.mark.requirement("000-11", "000-12", "000-13")
def test_a_scope_carries_all_that_is_to_be_known_about_it() -> None:
    platform = snapshot(offer("fs", "read", "write"), offer("git", "log"))
    task = replace(TASK, default=("fs", "ghost"), allow=("r*",))

    assert compose(ScopeInputs(platform, task=task, request=ASK)) == Scope(
        tools=(ToolRef("fs", "read"),),
        servers=("fs",),
        filters=(EffectiveFilter("task", "mcp.tool_allowlist", ("r*",), is_deny=False),),
        decisions=(
            Decision(
                server_id="fs",
                tool="read",
                allowed=True,
                layer="task",
                reason=None,
                rule="mcp.tool_allowlist `r*`",
            ),
            Decision(
                server_id="fs",
                tool="write",
                allowed=False,
                layer="task",
                reason=Reason.NOT_IN_TASK_ALLOWLIST,
                rule="mcp.tool_allowlist",
            ),
            Decision(
                server_id="ghost",
                tool=None,
                allowed=False,
                layer="platform",
                reason=Reason.UNKNOWN_SERVER,
                rule="mcp.default_server_ids",
            ),
        ),
        tokens=TOKENS,
    )


# Platform


@pytest.mark.requirement("004-10")
def test_without_key_task_and_request_a_scope_is_what_the_platform_allows() -> None:
    assert tools_of() == ALL


def test_an_empty_platform_gives_an_empty_scope_and_a_warning() -> None:
    assert compose(ScopeInputs(snapshot(), request=ASK)) == Scope(warnings=(EMPTY,))


@pytest.mark.requirement("000-15")
def test_a_server_shows_what_its_allowed_tools_match() -> None:
    platform = snapshot(
        offer("fs", "read", "write", allowed=("fs/r*",)), offer("git", "log", allowed=("fs/*",))
    )

    assert tools_of(platform) == refs("fs/read")


def test_a_server_whose_list_failed_keeps_the_tools_of_an_earlier_time() -> None:
    platform = snapshot(offer("fs", "read", state="list_failed"), offer("git", "log", state="env_missing"))

    assert tools_of(platform) == refs("fs/read", "git/log")


def test_a_server_that_has_not_listed_its_tools_yet_is_in_the_scope_without_any() -> None:
    platform = snapshot(offer("fs", "read"), offer("git", state="pending"))
    scope = compose(ScopeInputs(platform, request=ASK))

    assert (scope.tools, scope.servers) == (refs("fs/read"), ("fs", "git"))


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        pytest.param(("git/log",), ("git",), id="the one its tools are named of"),
        pytest.param(("log",), ("git", "web"), id="all that might have the name"),
        pytest.param(("fs/read",), ("fs",), id="not those no name can mean"),
    ],
)
def test_a_server_that_has_not_listed_yet_counts_as_long_as_it_may_have_what_is_asked_for(
    tools: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    platform = snapshot(offer("fs", "read"), offer("git", state="pending"), offer("web", state="pending"))
    scope = compose(ScopeInputs(platform, request=SessionRequest(tools=tools)))

    assert scope.servers == expected


def test_a_tool_with_a_refused_definition_is_left_out_alone() -> None:
    platform = snapshot(
        offer("fs", "read", "write", quarantined={"write": "no schema", "odd name": "its name"})
    )

    assert tools_of(platform) == refs("fs/read")


def test_a_tool_that_needs_approval_is_still_in_the_scope() -> None:
    fs = offer("fs", "read")
    record = replace(fs.record, approval_policy=ApprovalPolicy(default="always", per_tool={"read": "always"}))

    assert tools_of(snapshot(replace(fs, record=record))) == refs("fs/read")


# Key


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        pytest.param(Ceiling(servers=("fs",)), refs("fs/read", "fs/write"), id="servers"),
        pytest.param(Ceiling(servers=()), (), id="no servers"),
        pytest.param(Ceiling(allow=("*/read",)), refs("fs/read", "web/read"), id="allow"),
        pytest.param(Ceiling(allow=()), (), id="an empty allow lets nothing through"),
        pytest.param(Ceiling(deny=("git/*", "read")), refs("fs/write", "web/get"), id="deny"),
        pytest.param(Ceiling(allow=("read",), deny=("fs/*",)), refs("web/read"), id="deny beats allow"),
        pytest.param(Ceiling(tasks=("t",)), (), id="a key bound to tasks has nothing without one"),
    ],
)
def test_a_key_narrows(ceiling: Ceiling, expected: tuple[ToolRef, ...]) -> None:
    assert tools_of(ceiling=ceiling) == expected


def test_a_key_bound_to_a_task_has_what_the_task_has() -> None:
    assert tools_of(ceiling=Ceiling(tasks=("t",)), task=TASK) == refs("fs/read", "fs/write")


def test_a_task_the_key_may_not_use_answers_as_if_it_did_not_exist() -> None:
    scope = compose(ScopeInputs(PLATFORM, Ceiling(tasks=("u",)), TASK, ASK))

    assert (scope.tools, scope.servers) == ((), ())
    assert scope.refusal == Refusal(
        code="not_found", message="no task `t`", hint="check the name, or list what this key can access"
    )


def test_servers_asked_for_outside_the_key_are_left_out_and_not_refused() -> None:
    request = SessionRequest(servers=("fs", "git"))

    assert tools_of(ceiling=Ceiling(servers=("fs",)), request=request) == refs("fs/read", "fs/write")


# Task


@pytest.mark.requirement("000-01", "000-10", "000-14", "000-32", "000-35", "000-36")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(TaskPolicy(task_id="t", default=("fs",)), (), id="not enabled"),
        pytest.param(BARE, (), id="enabled without servers"),
        pytest.param(TASK, refs("fs/read", "fs/write"), id="default"),
        pytest.param(WIDE, refs("fs/read", "fs/write"), id="allowed does not widen the default"),
        pytest.param(replace(BARE, allowed=("fs",)), (), id="allowed is not a default"),
        pytest.param(replace(TASK, allow=("*e",)), refs("fs/write"), id="allow"),
        pytest.param(replace(TASK, allow=()), (), id="an empty allow lets nothing through"),
        pytest.param(replace(TASK, deny=("fs/w*",)), refs("fs/read"), id="deny"),
        pytest.param(replace(TASK, allow=("*",), deny=("*",)), (), id="deny beats allow"),
        pytest.param(
            replace(TASK, default=("fs", "git"), tags=("scm",)), refs("git/log", "git/push"), id="tags"
        ),
        pytest.param(replace(TASK, tags=()), (), id="no tag will do"),
        pytest.param(replace(BARE, tags=("scm",)), refs("git/log", "git/push"), id="tags are a default"),
        pytest.param(
            replace(BARE, tags=("scm",), is_default_empty=True),
            (),
            id="an empty default is one, whatever the tags",
        ),
        pytest.param(
            replace(BARE, profile="review"), refs("fs/read", "git/log"), id="a profile is a default"
        ),
        pytest.param(
            replace(BARE, profile="review", is_default_empty=True),
            (),
            id="an empty default is one, whatever the profile",
        ),
        pytest.param(
            replace(TASK, default=("fs", "web"), profile="review"), refs("fs/read"), id="a profile narrows"
        ),
        pytest.param(
            replace(BARE, profile="review", tags=("scm",)), refs("git/log"), id="tags narrow a profile"
        ),
        pytest.param(
            replace(BARE, profile="review", allowed=("git",)), refs("git/log"), id="allowed narrows a profile"
        ),
        pytest.param(replace(BARE, profile="nowhere"), (), id="a profile that does not exist"),
        pytest.param(replace(TASK, profile="nowhere"), (), id="a profile that does not exist, and a default"),
        pytest.param(
            replace(BARE, profile="review", overrides=Selection(servers=("git",))),
            refs("git/log"),
            id="overrides: servers",
        ),
        pytest.param(
            replace(BARE, profile="review", overrides=Selection(tags=("scm",))),
            refs("git/log"),
            id="overrides: tags",
        ),
        pytest.param(
            replace(BARE, profile="review", overrides=Selection(allow=("r*", "push"))),
            refs("fs/read"),
            id="overrides: allow, which widens nothing",
        ),
        pytest.param(
            replace(BARE, profile="review", overrides=Selection(deny=("log",))),
            refs("fs/read"),
            id="overrides: deny",
        ),
        pytest.param(
            replace(TASK, overrides=Selection(deny=("read",))),
            refs("fs/write"),
            id="overrides narrow without a profile too",
        ),
    ],
)
def test_a_task_narrows(task: TaskPolicy, expected: tuple[ToolRef, ...]) -> None:
    assert tools_of(task=task) == expected


@pytest.mark.requirement("000-39")
def test_a_profile_has_a_selection_of_its_own_for_an_environment() -> None:
    dev = replace(PLATFORM, environment="dev")

    assert tools_of(dev, task=replace(BARE, profile="review")) == refs("git/log", "git/push")


def test_a_profile_that_names_neither_servers_nor_tags_means_all_servers() -> None:
    readers = Profile(profile_id="readers", selection=Selection(allow=("read",)))
    platform = replace(PLATFORM, profiles={"readers": readers})

    assert tools_of(platform, task=replace(BARE, profile="readers")) == refs("fs/read", "web/read")


# Request


@pytest.mark.requirement("000-09", "002-018")
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(SessionRequest(enabled=False), (), id="off"),
        pytest.param(SessionRequest(enabled=True), ALL, id="on"),
        pytest.param(SessionRequest(servers=("fs", "ghost")), refs("fs/read", "fs/write"), id="servers"),
        pytest.param(SessionRequest(servers=()), (), id="no servers"),
        pytest.param(SessionRequest(tools=()), (), id="sco-4 no tools"),
        pytest.param(SessionRequest(tools=("no_such_tool", "ghost/x")), (), id="sco-4 unknown names only"),
        pytest.param(SessionRequest(tools=("read",)), refs("fs/read", "web/read"), id="a name on any server"),
        pytest.param(
            SessionRequest(tools=("fs/read", "git/*")), refs("fs/read", "git/log", "git/push"), id="tools"
        ),
        pytest.param(SessionRequest(tools=("READ",)), (), id="sco-5 another case"),
        pytest.param(SessionRequest(tools=("[a-z]*", "{read", "!x", ".*")), (), id="sco-8 no other signs"),
        pytest.param(
            SessionRequest(servers=("fs",), tools=("read",)), refs("fs/read"), id="servers and tools"
        ),
        pytest.param(
            SessionRequest(servers=("fs",), tools=("git/log",)), (), id="servers that rule out the tools"
        ),
        pytest.param(SessionRequest(allow=("g*",)), refs("web/get"), id="allow"),
        pytest.param(SessionRequest(allow=()), (), id="an empty allow lets nothing through"),
        pytest.param(SessionRequest(deny=("r*", "git/*")), refs("fs/write", "web/get"), id="deny"),
        pytest.param(SessionRequest(tools=("read",), allow=("fs/*",)), refs("fs/read"), id="tools and allow"),
        pytest.param(SessionRequest(profile="review"), refs("fs/read", "git/log"), id="a profile"),
        pytest.param(SessionRequest(profile="nowhere"), (), id="a profile that does not exist"),
    ],
)
def test_a_request_narrows(request_: SessionRequest, expected: tuple[ToolRef, ...]) -> None:
    assert tools_of(request=request_) == expected


@pytest.mark.requirement("000-10", "000-23", "000-29")
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(ASK, refs("fs/read", "fs/write"), id="sco-4 nothing: the default"),
        pytest.param(SessionRequest(servers=("git",)), refs("git/log", "git/push"), id="an allowed server"),
        pytest.param(SessionRequest(tools=("git/log",)), refs("git/log"), id="a tool of an allowed server"),
        pytest.param(SessionRequest(tools=("web/get",)), (), id="a tool of a server that is not allowed"),
        pytest.param(
            SessionRequest(tools=("web/get", "fs/read")), refs("fs/read"), id="one that is, one that is not"
        ),
        pytest.param(SessionRequest(tools=("ghost/x",)), (), id="sco-4 unknown names only"),
        pytest.param(SessionRequest(tools=()), (), id="sco-4 no tools"),
        pytest.param(
            SessionRequest(tools=("*",)), refs("fs/read", "fs/write"), id="sco-8 a star: the default"
        ),
        pytest.param(
            SessionRequest(tools=("*/*",)),
            refs("fs/read", "fs/write", "git/log", "git/push"),
            id="sco-8 a star for the server: what is allowed",
        ),
        pytest.param(SessionRequest(tools=("log",)), (), id="a name without a server means the default"),
        pytest.param(
            SessionRequest(tools=("read", "git/log")),
            refs("fs/read", "git/log"),
            id="names with and without a server",
        ),
    ],
)
def test_a_request_to_a_task_chooses_within_what_the_task_allows(
    request_: SessionRequest, expected: tuple[ToolRef, ...]
) -> None:
    assert tools_of(task=WIDE, request=request_) == expected


@pytest.mark.requirement("000-14", "000-20")
@pytest.mark.parametrize(
    ("task", "request_", "message", "hint"),
    [
        pytest.param(
            WIDE,
            SessionRequest(servers=("fs", "web", "ghost")),
            "task `t` does not allow `ghost`, `web`",
            "request fewer servers, or add them to the task's `mcp.allowed_server_ids`",
            id="servers outside the allowed",
        ),
        pytest.param(
            TASK,
            SessionRequest(servers=("git",)),
            "task `t` does not allow `git`",
            "request fewer servers, or add them to the task's `mcp.allowed_server_ids`",
            id="allowed absent equals the default",
        ),
        pytest.param(
            replace(TASK, enabled=False),
            SessionRequest(enabled=True),
            "task `t` is not enabled",
            "set `mcp.enabled` of the task to `true`",
            id="switching on what the task has off",
        ),
        pytest.param(
            replace(TASK, enabled=False),
            SessionRequest(servers=("git",)),
            "task `t` does not allow `git`",
            "request fewer servers, or add them to the task's `mcp.allowed_server_ids`",
            id="servers outside the allowed of a task that is off",
        ),
    ],
)
def test_a_request_for_more_than_the_task_allows_is_refused_whole(
    task: TaskPolicy, request_: SessionRequest, message: str, hint: str
) -> None:
    scope = compose(ScopeInputs(PLATFORM, task=task, request=request_))

    assert scope.refusal == Refusal(code="mcp_policy_denied", message=message, hint=hint)
    assert (scope.tools, scope.servers, scope.tokens, scope.warnings) == ((), (), 0, ())
    assert not any(one.allowed for one in scope.decisions)


def test_switching_off_is_always_accepted() -> None:
    assert tools_of(task=replace(TASK, enabled=False), request=SessionRequest(enabled=False)) == ()


def test_a_refusal_does_not_tell_whether_the_server_exists() -> None:
    asked = [
        compose(ScopeInputs(PLATFORM, task=TASK, request=SessionRequest(servers=(server,))))
        for server in ("git", "ghost")
    ]
    git, ghost = (scope.refusal for scope in asked)

    assert git is not None
    assert ghost is not None
    assert git.message.replace("git", "ghost") == ghost.message


# Warnings


@pytest.mark.requirement("000-22", "000-41")
@pytest.mark.parametrize(
    ("task", "request_", "expected"),
    [
        pytest.param(TASK, ASK, (), id="tools"),
        pytest.param(BARE, ASK, (EMPTY_TASK,), id="enabled and nothing left"),
        pytest.param(None, SessionRequest(tools=()), (EMPTY,), id="nothing asked for"),
        pytest.param(replace(TASK, enabled=False), ASK, (), id="not enabled"),
        pytest.param(TASK, SessionRequest(enabled=False), (), id="switched off"),
        pytest.param(
            replace(TASK, profile="nowhere"), ASK, (NOWHERE, EMPTY_TASK), id="a task's profile is missing"
        ),
        pytest.param(
            None,
            SessionRequest(profile="nowhere"),
            (NOWHERE.replace("mcp.profile", "?profile="), EMPTY),
            id="a request's profile is missing",
        ),
    ],
)
def test_a_scope_warns(task: TaskPolicy | None, request_: SessionRequest, expected: tuple[str, ...]) -> None:
    assert compose(ScopeInputs(PLATFORM, task=task, request=request_)).warnings == expected


def test_a_scope_knows_what_it_admits() -> None:
    scope = compose(ScopeInputs(PLATFORM, task=TASK, request=ASK))

    assert scope.tools == refs("fs/read", "fs/write")
    assert scope.admitted == set(refs("fs/read", "fs/write"))
