"""The edge where bodies become values: every rule of a record, and what a refusal says."""

from typing import Any

import pytest

from tests.growth import grows_with_length
from toolgate.errors import InvalidRecord
from toolgate.model.principals import make_choice_id
from toolgate.model.revisions import Kind
from toolgate.model.servers import (
    ApprovalPolicy,
    HttpEndpoint,
    RedactionRules,
    ServerBudgets,
    ServerRecord,
    StdioLaunch,
)
from toolgate.registry.records.codec import Record, encode_record, parse_record, parse_server, unknown_fields
from toolgate.registry.records.policy_bodies import MAX_CHOICES, KeyBody, ProfileBody, TaskBody
from toolgate.registry.records.server_bodies import ServerBody

STDIO: dict[str, Any] = {"server_id": "fs", "transport": "stdio", "stdio": {"command": "mcp-fs"}}
HTTP: dict[str, Any] = {
    "server_id": "web",
    "transport": "streamable_http",
    "http": {"url": "https://example.com/mcp"},
}
FULL: dict[str, Any] = {
    "server_id": "git-lab_2",
    "transport": "stdio",
    "stdio": {
        "command": "uvx",
        "args": ["mcp-git", "; $(rm)\n|"],
        "env": {"TOKEN": "${ENV:TOKEN}", "MODE": "${ENV:MODE:-ro}"},
        "env_from": ["HOME_URL"],
        "cwd": "/srv",
    },
    "display_name": "Git — Gruppe",
    "tool_namespace": "mcp.git",
    "allowed_tools": ["read_*", "git-lab_2/list_?"],
    "approval_policy": {"default": "policy", "per_tool": {"push": "always"}},
    "budgets": {"tool_timeout_ms": 100, "max_concurrency": 1, "max_tool_output_bytes": 1024},
    "redaction": {"hide": ["ssn", "*_note"], "show": ["key"], "arguments": "none"},
    "tags": ["code", "内部"],
    "category": "dev/tools",
    "enabled": False,
    "sharing": "per_session",
    "idle_timeout_s": 60,
    "start_timeout_s": 90,
    "list_ttl_s": 30,
    "prewarm": True,
    "protocol": "session",
}


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """`body` with one field, given as a dotted path, set to something else."""
    head, _, rest = path.partition(".")
    return {**body, head: changed(body.get(head, {}), rest, value) if rest else value}


# Servers


@pytest.mark.requirement("002-001", "002-005", "002-007")
def test_a_full_server_is_read_field_by_field() -> None:
    assert parse_server(FULL) == ServerRecord(
        server_id="git-lab_2",
        transport="stdio",
        stdio=StdioLaunch(
            command="uvx",
            args=("mcp-git", "; $(rm)\n|"),
            env={"TOKEN": "${ENV:TOKEN}", "MODE": "${ENV:MODE:-ro}"},
            env_from=("HOME_URL",),
            cwd="/srv",
        ),
        display_name="Git — Gruppe",
        tool_namespace="mcp.git",
        allowed_tools=("read_*", "git-lab_2/list_?"),
        approval_policy=ApprovalPolicy(default="policy", per_tool={"push": "always"}),
        budgets=ServerBudgets(tool_timeout_ms=100, max_concurrency=1, max_tool_output_bytes=1024),
        redaction=RedactionRules(hide=("ssn", "*_note"), show=("key",), arguments="none"),
        tags=("code", "内部"),
        category="dev/tools",
        enabled=False,
        sharing="per_session",
        idle_timeout_s=60,
        start_timeout_s=90,
        list_ttl_s=30,
        prewarm=True,
        protocol="session",
    )


@pytest.mark.requirement("002-009", "002-010")
def test_a_short_server_has_every_default_and_allows_no_tool() -> None:
    assert parse_server(STDIO) == ServerRecord(
        server_id="fs", transport="stdio", stdio=StdioLaunch(command="mcp-fs"), tool_namespace="mcp.fs"
    )


@pytest.mark.requirement("002-012")
def test_a_budget_given_in_part_never_means_zero_for_the_rest() -> None:
    record = parse_server(changed(STDIO, "budgets", {"max_concurrency": 2}))

    assert record.budgets == ServerBudgets(
        tool_timeout_ms=30_000, max_concurrency=2, max_tool_output_bytes=1_048_576
    )


def test_the_old_file_format_is_understood() -> None:
    record = parse_server({**STDIO, "version": 1, "approval_policy": {"default_policy": "always"}})

    assert record.approval_policy == ApprovalPolicy(default="always")


@pytest.mark.requirement("002-008")
@pytest.mark.parametrize("transport", ["streamable_http", "http_sse_legacy"])
def test_http_transports_take_an_endpoint(transport: str) -> None:
    body = {**HTTP, "transport": transport, "http": {**HTTP["http"], "auth_ref": "web-token"}}

    assert parse_server(body).http == HttpEndpoint(url="https://example.com/mcp", auth_ref="web-token")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/mcp",
        "https://[::1]/mcp?x=1&y=%20",
        "https://${ENV:HOST}/mcp?key=${ENV:KEY:-none}",
        "HTTPS://example.com",
    ],
)
def test_urls_that_are_taken(url: str) -> None:
    record = parse_server(changed(HTTP, "http.url", url))

    assert record.http == HttpEndpoint(url=url)


REFUSED = [
    *[
        pytest.param(changed(STDIO, "server_id", value), "server_id", id=f"sco_7 server id {value!r}")
        for value in ("", "Fs", "a__b", "a.b", "a-", "-a", "a" * 41, "fs\n", "fs\x00", "ﬁle", "reаd", 7, None)
    ],
    *[
        pytest.param(
            changed(STDIO, f"budgets.{field}", value), f"budgets.{field}", id=f"bud_7 {field} {value}"
        )
        for field in ("tool_timeout_ms", "max_concurrency", "max_tool_output_bytes")
        for value in (0, -1, float("nan"), 1e18, 10**18, "30000", True, None)
    ],
    pytest.param(changed(STDIO, "budgets.tool_timeout_ms", 99), "budgets.tool_timeout_ms", id="99 ms"),
    pytest.param(
        changed(STDIO, "budgets.tool_timeout_ms", 300_001), "budgets.tool_timeout_ms", id="300001 ms"
    ),
    pytest.param(
        changed(STDIO, "budgets.max_concurrency", 1_025), "budgets.max_concurrency", id="1025 calls"
    ),
    pytest.param(
        changed(STDIO, "budgets.max_tool_output_bytes", 67_108_865),
        "budgets.max_tool_output_bytes",
        id="over 64 MiB",
    ),
    *[
        pytest.param(changed(HTTP, "http.url", url), "http.url", id=f"ssr_4 url {url!r}")
        for url in (
            "file:///etc/passwd",
            "gopher://x/",
            "unix:/run/x",
            "ftp://x/",
            "https://user:pw@example.com/",
            "https://user@example.com/",
            "https://@example.com/",
            "https:///mcp",
            "//example.com/mcp",
            "/mcp",
            "example.com",
            "https://example.com/#part",
            "https://example.com:99999/",
            "https://exa mple.com/",
            "https://example.com/\r\nX: y",
            "https://example.com\\@evil/",
            "https://éxample.com/",
            "https://[::1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://127.0.0.1./",
            "http://0/",
            "${ENV:URL}",
            "https://${ENV:1X}/",
            "",
        )
    ],
    pytest.param(
        changed(HTTP, "http.headers", {"X-A": "b\r\nX-B: c"}), "http.headers.X-A", id="CRLF in a header"
    ),
    pytest.param(
        changed(HTTP, "http.headers", {"X A": "b"}), "http.headers.X A", id="space in a header's name"
    ),
    pytest.param(changed(HTTP, "http.headers", {"X-A": "é"}), "http.headers.X-A", id="header not ASCII"),
    pytest.param(changed(HTTP, "http.headers", {"Host": "x"}), "http.headers.Host", id="host header"),
    pytest.param(
        changed(HTTP, "http.headers", {"Accept-Encoding": "gzip"}),
        "http.headers.Accept-Encoding",
        id="a header that could never be sent",
    ),
    pytest.param(
        changed(HTTP, "http.headers", {"Mcp-Name": "x"}), "http.headers.Mcp-Name", id="header of MCP"
    ),
    pytest.param(
        changed(HTTP, "http.headers", {"X-A": "1", "x-a": "2"}), "http", id="one header in two spellings"
    ),
    pytest.param(
        changed(HTTP, "http.headers", {"X-A": "${ENV:}"}), "http.headers.X-A", id="broken reference"
    ),
    pytest.param(
        changed(STDIO, "stdio.args", ["${ENV:A:-${ENV:B}}"]), "stdio.args[0]", id="reference in a default"
    ),
    pytest.param(
        changed(STDIO, "stdio.args", ["${ENV:A:-" * 3_600]), "stdio.args[0]", id="references left open"
    ),
    pytest.param(changed(HTTP, "http.headers", {"X-A": "***"}), "http.headers.X-A", id="a mask sent back"),
    pytest.param(changed(HTTP, "http.auth_ref", "../secret"), "http.auth_ref", id="auth_ref with a path"),
    pytest.param(changed(STDIO, "stdio.env", {"A B": "x"}), "stdio.env.A B", id="variable with a space"),
    pytest.param(changed(STDIO, "stdio.env", {"A=B": "x"}), "stdio.env.A=B", id="variable with ="),
    pytest.param(changed(STDIO, "stdio.env", {"A": "x\x00"}), "stdio.env.A", id="fuz_6 NUL in a value"),
    pytest.param(changed(STDIO, "stdio.env", {"A": "x\x1b[0m"}), "stdio.env.A", id="escape in a value"),
    pytest.param(changed(STDIO, "stdio.env", {"A": "\ud800"}), "stdio.env.A", id="fuz_5 lone surrogate"),
    pytest.param(changed(STDIO, "stdio.env", {"A": 1}), "stdio.env.A", id="a number as a value"),
    pytest.param(changed(STDIO, "stdio.env_from", ["1A"]), "stdio.env_from[0]", id="bad name in env_from"),
    pytest.param(changed(STDIO, "stdio.args", ["a", "b\x00"]), "stdio.args[1]", id="NUL in an argument"),
    pytest.param(changed(STDIO, "stdio.args", "a b"), "stdio.args", id="arguments as one text"),
    pytest.param(changed(STDIO, "stdio.command", ""), "stdio.command", id="no command"),
    pytest.param(changed(STDIO, "stdio.command", "a\nb"), "stdio.command", id="newline in the command"),
    pytest.param(changed(STDIO, "allowed_tools", [""]), "allowed_tools[0]", id="empty pattern"),
    pytest.param(changed(STDIO, "allowed_tools", ["a" * 129]), "allowed_tools[0]", id="long pattern"),
    pytest.param(changed(STDIO, "allowed_tools", ["a", "b c"]), "allowed_tools[1]", id="spaced pattern"),
    pytest.param(changed(STDIO, "allowed_tools", None), "allowed_tools", id="null patterns"),
    pytest.param(changed(STDIO, "tool_namespace", "a__b"), "tool_namespace", id="namespace with __"),
    pytest.param(changed(STDIO, "tool_namespace", "Mcp"), "tool_namespace", id="namespace in upper case"),
    pytest.param(changed(STDIO, "display_name", "a\nb"), "display_name", id="newline in a title"),
    pytest.param(changed(STDIO, "tags", ["a", ""]), "tags[1]", id="empty tag"),
    pytest.param(changed(STDIO, "tags", ["a\u200b"]), "tags[0]", id="invisible tag"),
    pytest.param(changed(STDIO, "category", " a"), "category", id="category with a space before it"),
    pytest.param(changed(STDIO, "start_timeout_s", 3_601), "start_timeout_s", id="start of over an hour"),
    pytest.param(changed(STDIO, "list_ttl_s", 29), "list_ttl_s", id="lists read again too often"),
    pytest.param(changed(STDIO, "protocol", "2025-11-25"), "protocol", id="a version for a revision"),
    pytest.param(changed(STDIO, "idle_timeout_s", -1), "idle_timeout_s", id="negative idle time"),
    pytest.param(changed(STDIO, "idle_timeout_s", 10**12), "idle_timeout_s", id="endless idle time"),
    pytest.param(changed(STDIO, "enabled", "yes"), "enabled", id="text for a truth value"),
    pytest.param(changed(STDIO, "sharing", "none"), "sharing", id="unknown sharing"),
    pytest.param(changed(STDIO, "transport", "websocket"), "transport", id="unknown transport"),
    pytest.param(changed(STDIO, "version", 2), "version", id="another version of the format"),
    pytest.param(
        changed(STDIO, "approval_policy.default", "maybe"), "approval_policy.default", id="unknown approval"
    ),
    pytest.param(
        changed(STDIO, "approval_policy.per_tool", {"a b": "never"}), "approval_policy", id="no tool name"
    ),
    pytest.param(changed(STDIO, "colour", "red"), "colour", id="unknown field"),
    pytest.param(changed(STDIO, "stdio.shell", True), "stdio.shell", id="unknown field inside"),
]


@pytest.mark.requirement("002-094")
@pytest.mark.parametrize(("body", "field"), REFUSED)
def test_a_server_that_breaks_a_rule_is_refused_and_the_field_is_named(
    body: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_server(body)

    assert [problem["field"] for problem in caught.value.data["problems"]] == [field]
    assert f"`{field}`: " in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param({}, "`server_id`: is missing; `transport`: is missing", id="nothing at all"),
        pytest.param({**STDIO, "stdio": None}, "transport `stdio` needs `stdio`", id="no launch"),
        pytest.param({**STDIO, "http": HTTP["http"]}, "transport `stdio` does not allow `http`", id="both"),
        pytest.param({**HTTP, "http": None}, "transport `streamable_http` needs `http`", id="no endpoint"),
        pytest.param(
            {**HTTP, "stdio": STDIO["stdio"]},
            "transport `streamable_http` does not allow `stdio`",
            id="both, http",
        ),
    ],
)
def test_exactly_the_launch_that_the_transport_needs(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_server(body)

    assert str(caught.value) == message


def test_sec_1_a_refusal_never_repeats_a_value() -> None:
    canary = "c4n4ry\x00"
    body = {**STDIO, "stdio": {"command": "x", "env": {"TOKEN": canary}, "args": ["--token", canary]}}

    with pytest.raises(InvalidRecord) as caught:
        parse_server(body)
    assert "c4n4ry" not in repr((caught.value, caught.value.data, caught.value.__cause__, caught.value.hint))


def test_references_that_are_left_open_are_each_looked_at_once() -> None:
    def parse(times: int) -> None:
        with pytest.raises(InvalidRecord, match="invalid reference: write"):
            parse_server(changed(STDIO, "stdio.args", ["${ENV:A:-" * times] * 20))

    assert grows_with_length(parse, 60)


def test_many_problems_are_counted_and_not_all_shown() -> None:
    with pytest.raises(InvalidRecord, match="and 5 more"):
        parse_server({**STDIO, **{f"x{n}": n for n in range(15)}})


def test_a_lenient_reading_passes_over_unknown_fields_and_names_them() -> None:
    body = {**STDIO, "colour": "red", "stdio": {"command": "mcp-fs", "shell": True}}

    assert parse_server(body, strict=False) == parse_server(STDIO)
    assert unknown_fields("server", body) == ("stdio.shell", "colour")
    assert unknown_fields("server", STDIO) == ()


def test_a_lenient_reading_is_lenient_about_nothing_else() -> None:
    with pytest.raises(InvalidRecord):
        parse_server({**STDIO, "colour": "red", "enabled": "yes"}, strict=False)


# All kinds


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("server", STDIO),
        ("server", FULL),
        ("server", HTTP),
        ("task", {"task_id": "t"}),
        ("task", {"task_id": "t", "display_name": "T", "config": {"mcp.enabled": "true"}}),
        ("profile", {"profile_id": "p"}),
        (
            "profile",
            {"profile_id": "p", "servers": [], "deny": ["x"], "environments": {"dev": {"allow": []}}},
        ),
        ("key", {"key_id": "k", "sha256": "0" * 64, "role": "admin"}),
        ("key", {"key_id": "k", "sha256": "0" * 64, "role": "agent", "ceiling": {"servers": []}}),
        ("key", {"key_id": "k", "sha256": "0" * 64, "role": "agent", "budgets": {"calls_per_day": 5}}),
        ("key", {"key_id": "k", "sha256": "0" * 64, "role": "agent", "integrations": "off"}),
        ("choice", {"choice_id": make_choice_id("local"), "principal": "local", "servers": {"fs": "off"}}),
    ],
)
def test_the_shortest_body_goes_through_a_record_and_back(kind: Kind, body: dict[str, Any]) -> None:
    record: Record = parse_record(kind, next(iter(body.values())), body)

    assert encode_record(record) == body
    assert list(encode_record(record)) == list(body)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "key:bob"},
        {"principal": ""},
        {"servers": {"fs": "some"}},
        {"servers": {"../fs": "off"}},
        {"servers": {f"s{number}": "off" for number in range(MAX_CHOICES + 1)}},
        {"default": "off"},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_choice_is_of_one_principal_and_bounded(change: dict[str, Any]) -> None:
    choice_id = make_choice_id("key:ada")
    body = {"choice_id": choice_id, "principal": "key:ada", "servers": {"fs": "read_only"}}
    parse_record("choice", choice_id, body)

    with pytest.raises(InvalidRecord):
        parse_record("choice", choice_id, body | change)


def test_what_is_default_is_not_encoded() -> None:
    body = {
        **STDIO,
        "version": 1,
        "display_name": "",
        "tool_namespace": "mcp.fs",
        "allowed_tools": [],
        "budgets": {"max_concurrency": 16},
        "approval_policy": {},
        "enabled": True,
        "http": None,
    }

    assert encode_record(parse_server(body)) == STDIO


def test_a_record_is_written_under_its_own_name() -> None:
    assert parse_record(
        "server", "fs", {"transport": "stdio", "stdio": {"command": "mcp-fs"}}
    ) == parse_server(STDIO)
    with pytest.raises(InvalidRecord, match="`server_id`: differs from the id `other`"):
        parse_record("server", "other", STDIO)


@pytest.mark.parametrize("model", [ServerBody, TaskBody, ProfileBody, KeyBody])
def test_every_field_is_described_for_the_reference(model: type[ServerBody]) -> None:
    schema = model.model_json_schema()
    shapes = [schema, *schema.get("$defs", {}).values()]

    assert [
        f"{shape['title']}.{name}"
        for shape in shapes
        for name, field in shape.get("properties", {}).items()
        if "description" not in field
    ] == []
