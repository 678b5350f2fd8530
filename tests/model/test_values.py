"""The frozen values: defaults that are safe, and the few things they say about themselves."""

from dataclasses import FrozenInstanceError, replace

import pytest

from toolgate.model.principals import Ceiling, Key, Principal
from toolgate.model.revisions import ChangeBatch
from toolgate.model.servers import HttpEndpoint, ServerBudgets, ServerRecord, StdioLaunch
from toolgate.model.tasks import ENVIRONMENTS, Profile, Selection, Task
from toolgate.model.tools import ServerTools, Snapshot

RECORD = ServerRecord(server_id="fs", transport="stdio", stdio=StdioLaunch(command="fs"))


def test_a_server_allows_no_tool_by_default() -> None:
    assert RECORD.allowed_tools == ()
    assert RECORD.budgets == ServerBudgets(
        tool_timeout_ms=30_000, max_concurrency=16, max_tool_output_bytes=1_048_576
    )


@pytest.mark.parametrize(
    ("changed", "reconnects"),
    [
        pytest.param(replace(RECORD, stdio=StdioLaunch(command="fs", args=("-v",))), True, id="launch"),
        pytest.param(
            replace(RECORD, transport="streamable_http", stdio=None, http=HttpEndpoint(url="http://[::1]")),
            True,
            id="transport",
        ),
        pytest.param(replace(RECORD, sharing="per_session"), True, id="sharing"),
        pytest.param(replace(RECORD, allowed_tools=("*",), tags=("a",), enabled=False), False, id="policy"),
        pytest.param(replace(RECORD, budgets=ServerBudgets(tool_timeout_ms=1)), False, id="budgets"),
    ],
)
def test_only_what_a_connection_depends_on_reconnects_a_server(
    changed: ServerRecord, reconnects: bool
) -> None:
    assert (changed.launch != RECORD.launch) == reconnects


def test_an_environments_own_selection_replaces_the_common_one() -> None:
    common, prod = Selection(servers=("fs",)), Selection(servers=())
    profile = Profile(profile_id="p", selection=common, environments={"prod": prod})

    chosen = {environment: profile.selection_for(environment) for environment in ENVIRONMENTS}

    assert chosen == {"dev": common, "staging": common, "prod": prod}


def test_a_ceiling_does_not_restrict_unless_it_says_so() -> None:
    expected = Ceiling(tasks=None, servers=None, allow=None, deny=())

    assert Principal(id="ada", role="agent").ceiling == expected
    assert Key(key_id="k", sha256="", role="agent").ceiling == expected


def test_values_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RECORD.server_id = "other"  # type: ignore[misc]


def test_a_fresh_node_serves_nothing() -> None:
    snapshot = Snapshot()

    assert (snapshot.servers, snapshot.tasks, snapshot.profiles, snapshot.keys) == ({}, {}, {}, {})
    assert snapshot.environment == "prod"
    assert ServerTools(record=RECORD).state == "pending"


def test_a_batch_without_changes_is_a_bookmark() -> None:
    assert ChangeBatch(revision=7).changes == ()


def test_a_task_has_no_tools_until_its_config_says_so() -> None:
    assert Task(task_id="t").config == {}
