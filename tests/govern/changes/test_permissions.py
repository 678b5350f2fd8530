"""ADM-8: no one can give away more than they have."""

import json
from typing import Any

import pytest

from toolgate.errors import Forbidden
from toolgate.govern.changes.permissions import check_grant, check_removal, check_role
from toolgate.model.principals import Ceiling, Principal, Quotas, Role
from toolgate.model.revisions import Kind
from toolgate.registry.records.codec import parse_record


def actor(role: Role = "publisher", *, expires_at_s: int | None = None, **ceiling: Any) -> Principal:
    return Principal(id="key:k", role=role, ceiling=Ceiling(**ceiling), expires_at_s=expires_at_s)


def server(server_id: str) -> Any:
    return parse_record("server", server_id, {"transport": "stdio", "stdio": {"command": "x"}})


def task(task_id: str = "t", **config: Any) -> Any:
    texts = {f"mcp.{name}": json.dumps(value) for name, value in config.items()}
    return parse_record("task", task_id, {"config": texts})


def key(**fields: Any) -> Any:
    return parse_record("key", "k", {"sha256": "0" * 64, **fields})


@pytest.mark.parametrize(
    ("role", "writable"),
    [
        ("agent", set()),
        ("node", set()),
        ("viewer", set()),
        ("publisher", {"task", "profile"}),
        ("admin", {"server", "task", "profile", "key", "pin", "chat_upstream"}),
    ],
)
def test_each_kind_has_the_least_role_that_may_write_it(role: Role, writable: set[Kind]) -> None:
    kinds: tuple[Kind, ...] = ("server", "task", "profile", "key", "pin", "chat_upstream", "secret")
    found = set()
    for kind in kinds:
        try:
            check_role(actor(role), kind)
        except Forbidden:
            continue
        found.add(kind)

    assert found == writable


BOUND = actor(servers=("git", "time"))
FEW = actor(allow=("git/log", "git/show"), deny=("*_all",))
TIED = actor(tasks=("t",))
MODELS = parse_record("chat_upstream", "local", {"base_url": "http://127.0.0.1:1/v1", "models": ["*"]})


@pytest.mark.parametrize(
    ("principal", "record", "is_granted"),
    [
        pytest.param(actor(), task(default_server_ids=["db"]), True, id="an unbound key, any server"),
        pytest.param(BOUND, task(default_server_ids=["git"]), True, id="a task within"),
        pytest.param(BOUND, task(default_server_ids=["db"]), False, id="a task with a server outside"),
        pytest.param(
            BOUND,
            task(default_server_ids=["git"], allowed_server_ids=["git", "db"]),
            False,
            id="a task that may be asked for one outside",
        ),
        pytest.param(BOUND, task(tags=["prod"]), False, id="servers by tag may be any"),
        pytest.param(BOUND, task(profile="p"), False, id="so may those of a profile"),
        pytest.param(
            BOUND, task(profile="p", allowed_server_ids=["git"]), True, id="a profile within named servers"
        ),
        pytest.param(BOUND, parse_record("profile", "p", {"servers": ["git"]}), True, id="a profile within"),
        pytest.param(BOUND, parse_record("profile", "p", {}), False, id="a profile of everything"),
        pytest.param(
            BOUND,
            parse_record("profile", "p", {"servers": ["git"], "environments": {"dev": {"servers": ["db"]}}}),
            False,
            id="a profile that is wider in one environment",
        ),
        pytest.param(
            BOUND,
            parse_record("profile", "p", {"servers": ["git"], "rollout": {"share": 1, "servers": ["db"]}}),
            False,
            id="a profile whose next version is wider",
        ),
        pytest.param(FEW, task(tool_allowlist=["git/log"], tool_denylist=["*_all"]), True, id="tools within"),
        pytest.param(FEW, task(tool_denylist=["*_all"]), False, id="a task of every tool"),
        pytest.param(
            FEW, task(tool_allowlist=["git/*"], tool_denylist=["*_all"]), False, id="a wider pattern"
        ),
        pytest.param(FEW, task(tool_allowlist=["git/log"]), False, id="a task without what the key denies"),
        pytest.param(
            FEW,
            parse_record("profile", "p", {"allow": [], "deny": ["*_all"]}),
            True,
            id="a profile of no tool",
        ),
        pytest.param(
            FEW,
            parse_record("profile", "p", {"allow": [], "deny": ["*_all"], "environments": {"dev": {}}}),
            False,
            id="a profile of every tool in one environment",
        ),
        pytest.param(
            BOUND, task(default_server_ids=["git"], enforce=False), False, id="a task that is not enforced"
        ),
        pytest.param(
            FEW,
            task(tool_allowlist=["git/log"], tool_denylist=["*_all"], enforce=False),
            False,
            id="tools that are not enforced",
        ),
        pytest.param(actor(), task(enforce=False), True, id="an unbound key enforces or not"),
        pytest.param(TIED, task("t"), True, id="its own task"),
        pytest.param(TIED, task("other"), False, id="another task"),
        pytest.param(TIED, parse_record("profile", "p", {}), False, id="a profile, which is for all tasks"),
        pytest.param(
            actor("admin", servers=("git",)),
            key(role="agent", ceiling={"servers": ["git"]}),
            True,
            id="a key within the own ceiling",
        ),
        pytest.param(
            actor("admin", servers=("git",)), key(role="agent"), False, id="a key without a ceiling"
        ),
        pytest.param(actor("publisher"), key(role="admin"), False, id="a key above the own role"),
        pytest.param(actor("admin"), key(role="node"), True, id="a node's key by an unbound administrator"),
        pytest.param(
            actor("admin", servers=("git",)),
            key(role="node", ceiling={"servers": ["git"]}),
            False,
            id="a node reads everything, so who is bound cannot make its key",
        ),
        pytest.param(actor("admin", servers=("git",)), server("git"), True, id="its own server"),
        pytest.param(actor("admin", servers=("git",)), server("db"), False, id="another server"),
        pytest.param(
            actor("admin", tasks=("t",)), server("git"), False, id="a server, by who is bound to tasks"
        ),
        pytest.param(actor("admin", deny=("x",)), server("git"), False, id="or to tools"),
        pytest.param(actor("admin"), MODELS, True, id="a chat upstream, by an unbound administrator"),
        pytest.param(actor("admin", servers=("git",)), MODELS, False, id="which is for the callers of all"),
        pytest.param(
            actor("admin", servers=("git",)), parse_record("pin", "db", {}), False, id="another pin"
        ),
        pytest.param(
            actor("admin", expires_at_s=100),
            key(role="agent", expires_at_s=100),
            True,
            id="a key that ends with it",
        ),
        pytest.param(
            actor("admin", expires_at_s=100),
            key(role="agent", expires_at_s=101),
            False,
            id="one that outlives it",
        ),
        pytest.param(actor("admin", expires_at_s=100), key(role="agent"), False, id="one that never ends"),
    ],
)
def test_a_record_reaches_no_further_than_who_writes_it(
    principal: Principal, record: Any, is_granted: bool
) -> None:
    if is_granted:
        check_grant(principal, record)
    else:
        with pytest.raises(Forbidden):
            check_grant(principal, record)


def test_who_is_bound_removes_only_what_it_is_bound_to() -> None:
    check_removal(TIED, "task", "t")
    check_removal(actor(), "profile", "p")
    check_removal(actor("admin", servers=("git",)), "server", "git")
    removals: tuple[tuple[Kind, str], ...] = (
        ("task", "other"),
        ("profile", "p"),
        ("server", "s"),
        ("key", "k"),
    )
    for kind, record_id in removals:
        with pytest.raises(Forbidden):
            check_removal(TIED, kind, record_id)


def test_adm_8_a_key_with_budgets_makes_none_that_may_use_more() -> None:
    bound = Principal(id="key:k", role="admin", budgets=Quotas(calls_per_day=5))
    check_grant(bound, key(role="agent", budgets={"calls_per_day": 5}))

    for budgets in ({}, {"calls_per_day": 6}, {"calls_per_minute": 1}):
        with pytest.raises(Forbidden, match="larger quotas than the key that creates it"):
            check_grant(bound, key(role="agent", budgets=budgets))
