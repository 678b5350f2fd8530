"""Every reason code: when it is given, by which layer, and the rule it names."""

from dataclasses import replace

import pytest

from tests.policy.worlds import offer, snapshot
from toolgate.model.principals import Ceiling
from toolgate.model.tasks import Profile, Selection
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.compose import explain
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Decision, Layer, Reason

OPEN = Ceiling()
ASK = SessionRequest()
TASK = TaskPolicy(task_id="t", enabled=True, default=("fs",))
BARE = TaskPolicy(task_id="t", enabled=True)
PROFILE = Profile(
    profile_id="p", selection=Selection(servers=("fs",), tags=("local",), allow=("r*",), deny=("read_all",))
)
PLATFORM = snapshot(
    offer("fs", "read", "read_all", "write", allowed=("read*", "w*"), tags=("local",)),
    offer("git", "log"),
    profiles=(PROFILE,),
)


def decided(
    platform: Snapshot, ceiling: Ceiling, *, task: TaskPolicy | None, request: SessionRequest
) -> tuple[Decision, ...]:
    """Every decision, those against whole servers as they were made."""
    found = explain(ScopeInputs(platform, ceiling, task, request))
    about_tools = [one for one in found.scope.decisions if one.tool is not None]
    return tuple(sorted((*found.servers, *about_tools), key=lambda one: (one.server_id, one.tool or "")))


def no(server_id: str, tool: str | None, layer: Layer, reason: Reason, rule: str) -> Decision:
    return Decision(server_id=server_id, tool=tool, allowed=False, layer=layer, reason=reason, rule=rule)


def yes(server_id: str, tool: str, layer: Layer, rule: str) -> Decision:
    return Decision(server_id=server_id, tool=tool, allowed=True, layer=layer, reason=None, rule=rule)


FS_ALLOWED = (
    yes("fs", "read", "platform", "allowed_tools `read*`"),
    yes("fs", "read_all", "platform", "allowed_tools `read*`"),
    yes("fs", "write", "platform", "allowed_tools `w*`"),
)


def test_the_reason_codes_are_those_of_the_design() -> None:
    assert [str(reason) for reason in Reason] == [
        "unknown_server",
        "server_disabled",
        "not_requested",
        "not_allowed_by_key",
        "integration_off",
        "integration_read_only",
        "not_allowed_by_task",
        "deny_all",
        "env_missing",
        "list_timeout",
        "list_failed",
        "not_in_server_allowlist",
        "not_in_task_allowlist",
        "denied_by_task",
        "not_in_request_allowlist",
        "denied_by_request",
        "quarantined",
        "invalid_definition",
        "approval_required",
    ]


@pytest.mark.requirement("000-13", "000-15", "000-40")
@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(
            offer("fs", "read", enabled=False),
            no("fs", None, "platform", Reason.SERVER_DISABLED, "enabled"),
            id="server_disabled",
        ),
        pytest.param(
            offer("fs", "read", allowed=()),
            no("fs", None, "platform", Reason.DENY_ALL, "allowed_tools"),
            id="deny_all",
        ),
        pytest.param(
            offer("fs", state="env_missing", detail="`TOKEN` is not set"),
            no("fs", None, "platform", Reason.ENV_MISSING, "`TOKEN` is not set"),
            id="env_missing",
        ),
        pytest.param(
            offer("fs", state="list_timeout"),
            no("fs", None, "platform", Reason.LIST_TIMEOUT, "tools/list"),
            id="list_timeout",
        ),
        pytest.param(
            offer("fs", state="list_failed"),
            no("fs", None, "platform", Reason.LIST_FAILED, "tools/list"),
            id="list_failed",
        ),
        pytest.param(
            offer("fs", "write", allowed=("read",)),
            no("fs", "write", "platform", Reason.NOT_IN_SERVER_ALLOWLIST, "allowed_tools"),
            id="not_in_server_allowlist",
        ),
        pytest.param(
            offer("fs", quarantined={"bad": "no schema"}),
            no("fs", "bad", "platform", Reason.INVALID_DEFINITION, "tool definition: no schema"),
            id="invalid_definition",
        ),
        pytest.param(
            offer("fs", "bad", quarantined={"bad": "no schema"}),
            no("fs", "bad", "platform", Reason.INVALID_DEFINITION, "tool definition: no schema"),
            id="invalid_definition, though an older definition is known",
        ),
    ],
)
def test_the_platform_says_why(server: ServerTools, expected: Decision) -> None:
    decisions = decided(snapshot(server), OPEN, task=None, request=ASK)

    assert decisions == (expected,)


KEY = Reason.NOT_ALLOWED_BY_KEY


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        pytest.param(
            Ceiling(servers=("git",)),
            (no("fs", None, "key", KEY, "key servers"), yes("git", "log", "platform", "allowed_tools `*`")),
            id="servers",
        ),
        pytest.param(
            Ceiling(tasks=("t",)),
            (no("fs", None, "key", KEY, "key tasks"), no("git", None, "key", KEY, "key tasks")),
            id="tasks",
        ),
        pytest.param(
            Ceiling(allow=("fs/read", "*g"), deny=("log",)),
            (
                yes("fs", "read", "key", "key allow `fs/read`"),
                no("fs", "read_all", "key", KEY, "key allow"),
                no("fs", "write", "key", KEY, "key allow"),
                no("git", "log", "key", KEY, "key deny `log`"),
            ),
            id="allow and deny",
        ),
    ],
)
def test_the_key_says_why(ceiling: Ceiling, expected: tuple[Decision, ...]) -> None:
    assert decided(PLATFORM, ceiling, task=None, request=ASK) == expected


TASK_SAYS = Reason.NOT_ALLOWED_BY_TASK


@pytest.mark.requirement("000-13")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(
            replace(TASK, enabled=False),
            (
                no("fs", None, "task", TASK_SAYS, "mcp.enabled"),
                no("git", None, "task", TASK_SAYS, "mcp.enabled"),
            ),
            id="not enabled",
        ),
        pytest.param(
            TASK,
            (*FS_ALLOWED, no("git", None, "task", TASK_SAYS, "mcp.default_server_ids")),
            id="the default",
        ),
        pytest.param(
            replace(TASK, allowed=("fs",)),
            (*FS_ALLOWED, no("git", None, "task", TASK_SAYS, "mcp.allowed_server_ids")),
            id="the allowed servers",
        ),
        pytest.param(
            replace(TASK, allowed=("fs", "git")),
            (*FS_ALLOWED, no("git", None, "request", Reason.NOT_REQUESTED, "mcp.default_server_ids")),
            id="allowed and not in the default",
        ),
        pytest.param(
            replace(TASK, default=("fs", "git"), tags=("local",)),
            (*FS_ALLOWED, no("git", None, "task", TASK_SAYS, "mcp.tags")),
            id="tags",
        ),
        pytest.param(
            replace(BARE, tags=("local",), allowed=("fs", "git")),
            (*FS_ALLOWED, no("git", None, "task", TASK_SAYS, "mcp.tags")),
            id="tags as the default",
        ),
        pytest.param(
            replace(TASK, default=("fs", "git"), allow=("w*", "log"), deny=("l*",)),
            (
                no("fs", "read", "task", Reason.NOT_IN_TASK_ALLOWLIST, "mcp.tool_allowlist"),
                no("fs", "read_all", "task", Reason.NOT_IN_TASK_ALLOWLIST, "mcp.tool_allowlist"),
                yes("fs", "write", "task", "mcp.tool_allowlist `w*`"),
                no("git", "log", "task", Reason.DENIED_BY_TASK, "mcp.tool_denylist `l*`"),
            ),
            id="allow and deny",
        ),
        pytest.param(
            replace(BARE, profile="p"),
            (
                yes("fs", "read", "task", "mcp.profile `p` allow `r*`"),
                no("fs", "read_all", "task", Reason.DENIED_BY_TASK, "mcp.profile `p` deny `read_all`"),
                no("fs", "write", "task", Reason.NOT_IN_TASK_ALLOWLIST, "mcp.profile `p` allow"),
                no("git", None, "task", TASK_SAYS, "mcp.profile `p`"),
            ),
            id="a profile as the default",
        ),
        pytest.param(
            replace(TASK, default=("git",), profile="p"),
            (
                no("fs", None, "task", TASK_SAYS, "mcp.default_server_ids"),
                no("git", None, "task", TASK_SAYS, "mcp.profile `p` servers"),
            ),
            id="a profile's servers",
        ),
        pytest.param(
            replace(TASK, profile="nowhere"),
            (
                no("fs", None, "task", TASK_SAYS, "mcp.profile `nowhere`"),
                no("git", None, "task", TASK_SAYS, "mcp.default_server_ids"),
            ),
            id="a profile that does not exist",
        ),
        pytest.param(
            replace(
                TASK,
                default=("fs", "git"),
                overrides=Selection(tags=("local",), allow=("r*",), deny=("read",)),
            ),
            (
                no("fs", "read", "task", Reason.DENIED_BY_TASK, "mcp.profile_overrides tool_denylist `read`"),
                yes("fs", "read_all", "task", "mcp.profile_overrides tool_allowlist `r*`"),
                no(
                    "fs",
                    "write",
                    "task",
                    Reason.NOT_IN_TASK_ALLOWLIST,
                    "mcp.profile_overrides tool_allowlist",
                ),
                no("git", None, "task", TASK_SAYS, "mcp.profile_overrides tags"),
            ),
            id="overrides",
        ),
        pytest.param(
            replace(TASK, default=("fs", "git"), overrides=Selection(servers=("fs",))),
            (*FS_ALLOWED, no("git", None, "task", TASK_SAYS, "mcp.profile_overrides server_ids")),
            id="the servers of overrides",
        ),
    ],
)
def test_the_task_says_why(task: TaskPolicy, expected: tuple[Decision, ...]) -> None:
    assert decided(PLATFORM, OPEN, task=task, request=ASK) == expected


REQUEST_SAYS = Reason.NOT_IN_REQUEST_ALLOWLIST


@pytest.mark.requirement("000-13")
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(
            SessionRequest(enabled=False),
            (
                no("fs", None, "request", Reason.NOT_REQUESTED, "mcp.enabled"),
                no("git", None, "request", Reason.NOT_REQUESTED, "mcp.enabled"),
            ),
            id="switched off",
        ),
        pytest.param(
            SessionRequest(servers=("fs",)),
            (*FS_ALLOWED, no("git", None, "request", Reason.NOT_REQUESTED, "?servers=")),
            id="servers",
        ),
        pytest.param(
            SessionRequest(tools=("fs/read",)),
            (
                yes("fs", "read", "request", "?tools= `fs/read`"),
                no("fs", "read_all", "request", REQUEST_SAYS, "?tools="),
                no("fs", "write", "request", REQUEST_SAYS, "?tools="),
                no("git", None, "request", REQUEST_SAYS, "?tools="),
            ),
            id="tools",
        ),
        pytest.param(
            SessionRequest(allow=("r*", "log"), deny=("l*",)),
            (
                yes("fs", "read", "request", "mcp.tool_allowlist `r*`"),
                yes("fs", "read_all", "request", "mcp.tool_allowlist `r*`"),
                no("fs", "write", "request", REQUEST_SAYS, "mcp.tool_allowlist"),
                no("git", "log", "request", Reason.DENIED_BY_REQUEST, "mcp.tool_denylist `l*`"),
            ),
            id="allow and deny",
        ),
        pytest.param(
            SessionRequest(profile="p"),
            (
                yes("fs", "read", "request", "?profile= `p` allow `r*`"),
                no("fs", "read_all", "request", Reason.DENIED_BY_REQUEST, "?profile= `p` deny `read_all`"),
                no("fs", "write", "request", REQUEST_SAYS, "?profile= `p` allow"),
                no("git", None, "request", Reason.NOT_REQUESTED, "?profile= `p` servers"),
            ),
            id="a profile",
        ),
        pytest.param(
            SessionRequest(profile="nowhere"),
            (
                no("fs", None, "request", Reason.NOT_REQUESTED, "?profile= `nowhere`"),
                no("git", None, "request", Reason.NOT_REQUESTED, "?profile= `nowhere`"),
            ),
            id="a profile that does not exist",
        ),
    ],
)
def test_the_request_says_why(request_: SessionRequest, expected: tuple[Decision, ...]) -> None:
    assert decided(PLATFORM, OPEN, task=None, request=request_) == expected


@pytest.mark.requirement("000-08")
@pytest.mark.parametrize(
    ("task", "request_", "expected"),
    [
        pytest.param(
            replace(TASK, default=("ghost",)),
            ASK,
            (Reason.UNKNOWN_SERVER, "mcp.default_server_ids"),
            id="a default",
        ),
        pytest.param(
            None,
            SessionRequest(servers=("ghost",)),
            (Reason.UNKNOWN_SERVER, "?servers="),
            id="a server asked for",
        ),
        pytest.param(
            None,
            SessionRequest(tools=("ghost/x",)),
            (Reason.UNKNOWN_SERVER, "?tools="),
            id="a tool asked for",
        ),
        pytest.param(
            None,
            SessionRequest(servers=("ghost",), tools=("ghost/x",)),
            (Reason.UNKNOWN_SERVER, "?servers="),
            id="a server and its tool asked for",
        ),
        pytest.param(
            replace(TASK, default=("ghost",), tags=("local",)),
            ASK,
            (Reason.UNKNOWN_SERVER, "mcp.default_server_ids"),
            id="tags do not speak of what is not there",
        ),
        pytest.param(
            TASK,
            SessionRequest(tools=("ghost/x",)),
            (TASK_SAYS, "mcp.default_server_ids"),
            id="what the task does not allow need not exist to be ruled out",
        ),
    ],
)
def test_a_server_asked_for_that_is_not_registered_is_unknown(
    task: TaskPolicy | None, request_: SessionRequest, expected: tuple[Reason, str]
) -> None:
    decisions = decided(PLATFORM, OPEN, task=task, request=request_)

    assert [(one.reason, one.rule) for one in decisions if one.server_id == "ghost"] == [expected]


def test_a_server_pattern_that_matches_no_server_is_not_an_unknown_server() -> None:
    decisions = decided(PLATFORM, OPEN, task=None, request=SessionRequest(tools=("gho*/x",)))

    assert {one.server_id for one in decisions} == {"fs", "git"}


def test_a_task_asked_only_for_tools_of_one_server_does_not_request_the_others() -> None:
    task = replace(TASK, allowed=("fs", "git"))
    decisions = decided(PLATFORM, OPEN, task=task, request=SessionRequest(tools=("git/log",)))

    assert decisions == (
        no("fs", None, "request", Reason.NOT_REQUESTED, "?tools="),
        yes("git", "log", "request", "?tools= `git/log`"),
    )


def test_a_request_refused_whole_says_so_of_every_server() -> None:
    decisions = decided(PLATFORM, OPEN, task=TASK, request=SessionRequest(servers=("fs", "git")))
    refused = "request denied: task `t` does not allow `git`"

    assert decisions == (
        no("fs", None, "task", TASK_SAYS, refused),
        no("git", None, "task", TASK_SAYS, "mcp.default_server_ids"),
    )


@pytest.mark.parametrize(
    ("ceiling", "task", "expected"),
    [
        pytest.param(Ceiling(deny=("*",)), replace(TASK, deny=("*",)), "key", id="the key before the task"),
        pytest.param(OPEN, replace(TASK, deny=("*",)), "task", id="the task before the request"),
        pytest.param(OPEN, TASK, "request", id="the request last"),
    ],
)
def test_the_first_layer_that_objects_is_the_one_that_is_named(
    ceiling: Ceiling, task: TaskPolicy, expected: Layer
) -> None:
    decisions = decided(PLATFORM, ceiling, task=task, request=SessionRequest(deny=("*",)))

    assert {one.layer for one in decisions if one.server_id == "fs"} == {expected}
