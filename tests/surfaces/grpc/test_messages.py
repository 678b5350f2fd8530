"""Records as messages and back: nothing is lost, nothing is invented, nothing makes it fail."""

from typing import Any, Final

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from toolgate.govern.changes.records import fill_defaults
from toolgate.model.revisions import Kind, StoredRecord
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy
from toolgate.registry.records.codec import parse_record
from toolgate.surfaces.grpc.collection import EXTRAS, encode_message, list_kept_members, parse_message

Json = dict[str, Any]

IDS: Final = st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True)
TEXTS: Final = st.text(st.characters(categories=("L", "N", "P")), max_size=12).filter(
    lambda text: "***" not in text
)
LABELS: Final = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
NAMES: Final = st.from_regex(r"[A-Z_]{1,8}", fullmatch=True)
PATTERNS: Final = st.lists(st.sampled_from(["*", "read_*", "get", "git/?ush", "***"]), max_size=4)
DIGESTS: Final = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
APPROVALS: Final = st.sampled_from(["never", "always", "policy"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Each of these members, or not."""
    return st.fixed_dictionaries({}, optional=fields)


STDIO: Final = st.fixed_dictionaries(
    {"command": LABELS},
    optional={
        "args": st.lists(TEXTS, max_size=3),
        "env": st.dictionaries(NAMES, TEXTS, max_size=3),
        "env_from": st.lists(NAMES, max_size=3),
        "cwd": LABELS,
    },
)
HTTP: Final = st.fixed_dictionaries(
    {"url": st.sampled_from(["https://a.example/mcp", "http://${ENV:HOST}/"])},
    optional={
        "headers": st.dictionaries(st.sampled_from(["X-One", "x-two"]), LABELS, max_size=2),
        "auth_ref": LABELS,
    },
)
OAUTH: Final = st.fixed_dictionaries(
    {
        "grant": st.sampled_from(["client_credentials", "authorization_code"]),
        "client_id": LABELS,
        "client_secret_ref": LABELS,
        "issuer": st.just("https://login.example"),
    },
    optional={"scopes": st.lists(LABELS, max_size=3)},
).map(lambda oauth: {"url": "https://a.example/mcp", "oauth": oauth})
SERVERS: Final = st.tuples(
    st.one_of(
        STDIO.map(lambda launch: {"transport": "stdio", "stdio": launch}),
        OAUTH.map(lambda endpoint: {"transport": "streamable_http", "http": endpoint}),
        st.tuples(HTTP, st.sampled_from(["streamable_http", "http_sse_legacy"])).map(
            lambda pair: {"transport": pair[1], "http": pair[0]}
        ),
    ),
    some(
        display_name=TEXTS,
        tool_namespace=LABELS,
        allowed_tools=PATTERNS,
        approval_policy=some(default=APPROVALS, per_tool=st.dictionaries(LABELS, APPROVALS, max_size=3)),
        budgets=some(
            tool_timeout_ms=st.integers(100, 300_000),
            max_concurrency=st.integers(1, 1_024),
            max_tool_output_bytes=st.integers(1_024, 2**26),
        ),
        tags=st.lists(LABELS, max_size=3),
        category=LABELS,
        enabled=st.booleans(),
        sharing=st.sampled_from(["shared", "per_session"]),
        idle_timeout_s=st.integers(0, 1_000_000),
        start_timeout_s=st.integers(0, 3_600),
        list_ttl_s=st.just(0) | st.integers(30, 300),
        prewarm=st.booleans(),
        protocol=st.sampled_from(["auto", "stateless", "session"]),
        redaction=some(
            hide=st.lists(LABELS, max_size=3),
            show=st.lists(LABELS, max_size=3),
            arguments=st.sampled_from(["redacted", "none"]),
        ),
        package=st.none()
        | st.fixed_dictionaries(
            {"version": st.just("1.0.0"), "sha256": st.sampled_from(["0" * 64, "a" * 64])}
        ),
    ),
).map(lambda parts: parts[0] | parts[1])
LISTS: Final = {
    "servers": st.lists(IDS, max_size=3),
    "tags": st.lists(LABELS, max_size=3),
    "allow": PATTERNS,
    "deny": PATTERNS,
}
PROFILES: Final = some(
    **LISTS, environments=st.dictionaries(st.sampled_from(["dev", "staging", "prod"]), some(**LISTS))
)
TASKS: Final = some(
    display_name=TEXTS,
    config=some(
        **{"mcp.enabled": st.sampled_from(["true", "false"]), "mcp.default_server_ids": st.just('["a"]')}
    ),
    workload=st.tuples(
        st.fixed_dictionaries({"module": DIGESTS}),
        some(
            args=st.lists(TEXTS, max_size=3),
            env=st.dictionaries(st.sampled_from(["A", "B"]), TEXTS),
            limits=some(
                fuel=st.integers(10**6, 10**13),
                table_elements=st.integers(0, 10**6),
                max_output_bytes=st.integers(0, 2**22),
                max_calls=st.integers(0, 100_000),
            ),
            retries=st.integers(0, 10),
        ),
    ).map(lambda parts: parts[0] | parts[1]),
)
PINS: Final = some(
    tools=st.dictionaries(LABELS, DIGESTS, max_size=3), changed=st.dictionaries(LABELS, DIGESTS, max_size=3)
)
RECORDS: Final = st.one_of(
    st.tuples(st.just("server"), SERVERS),
    st.tuples(st.just("task"), TASKS),
    st.tuples(st.just("profile"), PROFILES),
    st.tuples(st.just("pin"), PINS),
)


def stored(kind: Kind, record_id: str, body: Json) -> StoredRecord:
    id_field = "server_id" if kind == "pin" else f"{kind}_id"
    return StoredRecord(
        kind=kind, id=record_id, body={id_field: record_id, **body}, revision=1, updated_at_ms=0
    )


@given(pair=RECORDS, record_id=IDS)
def test_a_record_that_goes_out_and_comes_back_is_the_same(pair: tuple[Kind, Json], record_id: str) -> None:
    kind, body = pair
    message = encode_message(kind, fill_defaults(stored(kind, record_id, body)))
    over_the_wire = type(message).FromString(message.SerializeToString())

    assert parse_record(kind, record_id, parse_message(over_the_wire)) == parse_record(kind, record_id, body)


@given(
    raw=st.binary(max_size=64),
    kind=st.sampled_from([sms.McpServerRecord, policy.Profile, policy.Pin, policy.Task]),
)
def test_any_message_becomes_plain_data(raw: bytes, kind: Any) -> None:
    try:
        message = kind.FromString(raw)
    except DecodeError:
        return

    assert [value for value in parse_message(message).values() if value in ("", [], {})] == []


MEMBERS: Final = (
    *EXTRAS,
    "stdio",
    "http",
    "workload",
    "budgets",
    "config",
    "tools",
    "environments",
    "transport",
)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(EXTRAS) | LABELS, inner, max_size=3)
    ),
)


@given(
    kind=st.sampled_from(["server", "task", "profile", "pin"]),
    body=some(**dict.fromkeys(MEMBERS, JSON)),
)
def test_what_another_version_stored_is_shown_as_far_as_it_fits(kind: Kind, body: Json) -> None:
    message: Any = encode_message(kind, fill_defaults(stored(kind, "x", body)))

    assert "x" in {getattr(message, name, "") for name in ("server_id", "task_id", "profile_id")}


def test_a_budget_of_zero_is_the_default_and_not_zero() -> None:
    """SPEAR takes a partial `budgets` for 100 ms."""
    record = sms.McpServerRecord(server_id="a", budgets=sms.McpBudgets(max_concurrency=2))

    assert parse_message(record) == {"server_id": "a", "budgets": {"max_concurrency": 2}}
    assert parse_message(sms.McpServerRecord(budgets=sms.McpBudgets())) == {}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(sms.McpServerRecord(), {}, id="nothing"),
        pytest.param(
            sms.McpServerRecord(http=sms.McpHttpConfig(), stdio=sms.McpStdioConfig(command="x")),
            {"stdio": {"command": "x"}},
            id="an empty part says nothing",
        ),
        pytest.param(
            sms.McpServerRecord.FromString(b"\x18\x07"), {"transport": "7"}, id="a transport no one knows"
        ),
        pytest.param(
            sms.McpServerRecord(approval_policy=sms.McpApprovalPolicy(default_policy="always")),
            {"approval_policy": {"default": "always"}},
            id="SPEAR's default_policy is our default",
        ),
        pytest.param(
            sms.McpServerRecord(approval_policy=sms.McpApprovalPolicy(in_place=False)),
            {"approval_policy": {"in_place": False}},
            id="others decide",
        ),
        pytest.param(
            sms.McpServerRecord(extras=sms.McpServerExtras(enabled=False)),
            {"enabled": False},
            id="not enabled",
        ),
    ],
)
def test_what_a_message_is_for(record: sms.McpServerRecord, expected: Json) -> None:
    assert parse_message(record) == expected


def test_a_client_that_does_not_know_our_members_does_not_touch_them() -> None:
    assert list_kept_members(sms.McpServerRecord()) == EXTRAS
    assert list_kept_members(sms.McpServerRecord(extras=sms.McpServerExtras())) == ()
    assert list_kept_members(policy.Task()) == ("workload",)
    assert list_kept_members(policy.Task(workload=policy.Workload())) == ()
