"""Every metric and every field of the audit after a fixed script of calls on all doors: exactly those.

A metric or a field that is added, and has no place here, makes it fail.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from tests.docs.documents import document
from tests.scenarios.everything import LISTED, Known, run_script
from tests.scenarios.expected_calls import CALLS, STARTED
from tests.scenarios.gateway import Json, Site
from toolgate.app.node import open_node
from toolgate.audit.events import AuditEvent
from toolgate.settings import Settings


class AtLeast:
    """Any number from here on: for what depends on how fast the machine is."""

    def __init__(self, least: float) -> None:
        self._least = least

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and other >= self._least

    def __repr__(self) -> str:
        return f"at least {self._least}"

    __hash__ = None  # type: ignore[assignment]


SOME, MORE = AtLeast(0), AtLeast(1e-9)
EACH: Final = ("broken", "greeter", "guarded", "rug", "stage")
TASKS: Final = ("", "desk", "guest", "tight", "trial")
COUNTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "mcp_tool_call_total": {
        " ": 5,
        " search_tools": 1,
        "guarded echo": 5,
        "rug turn": 1,
        "stage echo": 13,
        "stage fail": 1,
        "stage hang": 1,
    },
    "mcp_tool_call_error_total": {
        "budget_exceeded stage echo": 1,
        "mcp_approval_denied guarded echo": 1,
        "mcp_approval_required guarded echo": 3,
        "mcp_invalid_arguments stage echo": 2,
        "mcp_timeout stage hang": 1,
        "tool_error stage fail": 1,
        "unknown_tool  ": 5,
    },
    "mcp_tool_call_latency_ms_count": {
        " ": 0,
        " search_tools": 1,
        "guarded echo": 1,
        "rug turn": 1,
        "stage echo": 10,
        "stage fail": 1,
        "stage hang": 1,
    },
    "mcp_tool_call_latency_ms_sum": {
        " ": 0,
        " search_tools": MORE,
        "guarded echo": MORE,
        "rug turn": MORE,
        "stage echo": MORE,
        "stage fail": MORE,
        "stage hang": AtLeast(450),
    },
    "mcp_tool_call_output_bytes_count": {
        " ": 0,
        " search_tools": 1,
        "guarded echo": 1,
        "rug turn": 1,
        "stage echo": 10,
        "stage fail": 1,
        "stage hang": 0,
    },
    "mcp_tool_call_output_bytes_sum": {
        " ": 0,
        " search_tools": 282,
        "guarded echo": 43,
        "rug turn": 34,
        "stage echo": 441,
        "stage fail": 155,
        "stage hang": 0,
    },
    "mcp_injection_total": {" failed": 1, "broken failed": 1, "stage success": 5},
    "mcp_denied_reason": {
        "env_missing broken": 3,
        "mcp_policy_denied rug": 1,
        "not_in_request_allowlist stage": 2,
        "quarantined rug": 1,
        "unknown_server ": 1,
    },
    "mcp_server_connect_total": {"broken failed": 1, **{f"{one} success": 1 for one in LISTED}},
    # Two of them want to be listed again after a minute, which a busy machine may take for the script.
    "mcp_list_tools_latency_ms_count": {
        "greeter": 1,
        "guarded": AtLeast(1),
        "rug": 2,
        "stage": AtLeast(1),
    },
    "mcp_list_tools_latency_ms_sum": dict.fromkeys(LISTED, SOME),
    "mcp_effective_servers": {**dict.fromkeys(TASKS, 1), "trial": 4},
    "toolgate_shadow_denials_total": {"denied_by_task stage": 1},
    "toolgate_budget_refusals_total": {"calls_per_day": 1},
    "toolgate_empty_scopes_total": {"": 0},
    "toolgate_scope_tools_count": {"": 13},
    "toolgate_scope_tools_sum": {"": 42},
    "toolgate_scope_tokens_count": {"": 13},
    "toolgate_scope_tokens_sum": {"": 786},
    "toolgate_chat_total": {"answered scripted": 2},
    "toolgate_chat_rounds_count": {"": 2},
    "toolgate_chat_rounds_sum": {"": 2},
    "toolgate_chat_model_latency_ms_count": {"scripted": 4},
    "toolgate_chat_model_latency_ms_sum": {"scripted": MORE},
    "toolgate_session_calls_count": {"chat": 1, "mcp": 1, "responses": 1},
    "toolgate_session_calls_sum": {"chat": 2, "mcp": 2, "responses": 1},
    "toolgate_session_rounds_count": {"chat": 1, "mcp": 1, "responses": 1},
    "toolgate_session_rounds_sum": {"chat": 1, "mcp": 0, "responses": 1},
    "toolgate_session_limit_hits_total": {"mcp mcp_timeout": 1},
    "toolgate_invocations_total": {"exit succeeded": 1},
    "toolgate_invocation_ms_count": {"": 1},
    "toolgate_invocation_ms_sum": {"": MORE},
    "toolgate_invocations_queued": {"": 0},
    "toolgate_guests": {"": 0},
    "toolgate_audit_failing": {"": 0},
    "toolgate_audit_lag": {"the audit index": SOME},
    "toolgate_loop_lag_ms": {"": SOME},
    "toolgate_definition_tokens_total": {"": 606, "desk": 116, "guest": 58, "tight": 0, "trial": 0},
    "toolgate_definition_tokens_saved_total": {"": 173, "desk": 146, "guest": 67, "tight": 0, "trial": 0},
    "toolgate_result_tokens_total": {"": 47, "desk": 4, "guest": 1, "tight": 2, "trial": 1},
    "toolgate_approvals_pending": {"": 1},
    "toolgate_sessions": {"": 2},
    "toolgate_streams": {"": 1},
    "toolgate_children": {"": 4},
    "toolgate_child_evictions_total": {"": 0},
    "toolgate_catalog_rows": {"discovered": 7, "legacy": AtLeast(0), "manifest": 0, "summary": 0},
    "toolgate_catalog_fallback_ended": {"": 0},
    "toolgate_calls_in_flight": dict.fromkeys(EACH, 0),
    "toolgate_calls_queued": dict.fromkeys(EACH, 0),
    "toolgate_node_calls_in_flight": {"": 0},
    "toolgate_node_calls_limit": {"": 512},
    "toolgate_node_calls_queued": {"": 0},
    "toolgate_node_calls_refused_total": {"": 0},
    "toolgate_registry_revision": {"": 11},
    "toolgate_server_state": {"broken down": 1, **{f"{one} connected": 1 for one in LISTED}},
}
"""Each sample by the values of its labels, in the order of their names."""
OF_NODES: Final[Mapping[str, Any]] = {
    "toolgate_sync_age_s": SOME,
    "toolgate_sync_degraded": SOME,
    "toolgate_sync_relists_total": 0,
}
OF_ROLLOUTS: Final = {
    "toolgate_profile_call_errors_total",
    "toolgate_profile_call_latency_ms",
    "toolgate_profile_calls_total",
}
"""The script rolls out no profile: a scenario of policy shows these, and the events' `profile`."""
OTHERS: Final[Mapping[str, list[Json]]] = {
    "admin": [
        *(
            {
                "principal": "directory",
                "operation": "reload",
                "kind": "server",
                "record_id": one,
                "revision": 2,
            }
            for one in ("broken", "greeter", "guarded", "rug", "stage")
        ),
        {"operation": "put", "kind": "task", "record_id": "desk", "revision": 3},
        {"operation": "put", "kind": "task", "record_id": "tight", "revision": 4},
        {"operation": "put", "kind": "task", "record_id": "trial", "revision": 5},
        {"operation": "upload", "kind": "module", "record_id": "<hash>", "revision": 5},
        {"operation": "put", "kind": "task", "record_id": "guest", "revision": 6},
        {"operation": "put", "kind": "task", "record_id": "guest", "revision": 7},
        {"operation": "put", "kind": "pin", "record_id": "rug", "revision": 8},
        {"operation": "test", "kind": "server", "record_id": "stage", "revision": 9},
        {"operation": "put", "kind": "chat_upstream", "record_id": "scripted", "revision": 10},
        {"operation": "put", "kind": "chat_upstream", "record_id": "scripted", "revision": 11},
    ],
    "credential": [{"peer": "127.0.0.1", "code": "unauthenticated"}],
    "definition": [{"server_id": "rug", "tool": "read", "approved": "<hash>", "found": "<hash>"}],
    "invocation": [
        {
            "task_id": "guest",
            "invocation_id": "<id>",
            "attempt": 1,
            "state": "succeeded",
            "ended_by": "exit",
            "module": "<hash>",
            "duration_ms": "<number>",
            "tool_calls": 2,
        }
    ],
    "approval": [
        {"state": "asked"},
        {"state": "approved", "decided_by": "local", "reason": "so be it"},
        {"state": "used"},
        {"state": "asked"},
        {"state": "denied", "decided_by": "local", "reason": "so be it"},
        {"state": "asked"},
    ],
    "spawn": [
        {"server_id": "greeter", "command": "<command>", "package": "<hash>"},
        {"server_id": "guarded", "command": "<command>"},
        {"server_id": "rug", "command": "<command>"},
        {"server_id": "stage", "command": "<command>"},
        {"server_id": "stage", "command": "<command>", "reason": "trial"},
    ],
    "scope": [
        {
            "excluded": 2,
            "offered": ["stage.echo", "stage.fail", "stage.hang"],
            "reasons": {"env_missing": 1, "unknown_server": 1},
            "exclusions": [
                {
                    "server_id": "broken",
                    "reason": "env_missing",
                    "layer": "platform",
                    "rule": "environment variable `NOBODY_SET_THIS` is not set",
                },
                {
                    "server_id": "missing",
                    "reason": "unknown_server",
                    "layer": "platform",
                    "rule": "?servers=",
                },
            ],
        },
        {
            "tools": 1,
            "tokens": 19,
            "excluded": 2,
            "offered": ["stage.echo"],
            "filters": [{"layer": "request", "rule": "?tools=", "patterns": ["stage/echo"]}],
            "reasons": {"not_in_request_allowlist": 2},
            "exclusions": [
                {
                    "server_id": "stage",
                    "tool": tool,
                    "reason": "not_in_request_allowlist",
                    "layer": "request",
                    "rule": "?tools=",
                }
                for tool in ("fail", "hang")
            ],
        },
        {"mode": "find", "tokens": 529},
        {"door": "hostcall", "task_id": "guest", "server_id": "stage", "revision": 7},
        {"door": "chat", "task_id": "desk", "revision": 10},
    ],
    "session": [
        {
            "door": "mcp",
            "session": "<session>",
            "ended_by": "closed",
            "tool_calls": 2,
            "limits": {"mcp_timeout": 1},
        },
        {"door": "mcp", "session": "<session>", "ended_by": "closed"},
        {"door": "mcp", "session": "<session>", "ended_by": "shutdown", "tool_calls": 2},
        *(
            {
                "door": door,
                "request_id": "<id>",
                "task_id": "desk",
                "ended_by": "answered",
                "tool_calls": made,
                "rounds": 1,
            }
            for door, made in (("chat", 2), ("responses", 1))
        ),
    ],
    "tokens": [
        {"lists": 3, "definition_tokens": 606, "full_tokens": 375, "calls": 9, "result_tokens": 47},
        {
            "task_id": "desk",
            "lists": 2,
            "definition_tokens": 116,
            "full_tokens": 262,
            "calls": 2,
            "result_tokens": 4,
        },
        {
            "task_id": "guest",
            "lists": 1,
            "definition_tokens": 58,
            "full_tokens": 125,
            "calls": 1,
            "result_tokens": 1,
        },
        {"task_id": "tight", "calls": 1, "result_tokens": 2},
        {"task_id": "trial", "calls": 1, "result_tokens": 1},
    ],
}
COMMON: Final[Mapping[str, Json]] = {
    "admin": {"principal": "local"},
    "invocation": {"principal": "local"},
    "approval": {
        "principal": "local",
        "task_id": "",
        "server_id": "guarded",
        "tool": "echo",
        "approval_id": "<id>",
    },
    "tokens": {"task_id": ""},
    "session": {"principal": "local", "duration_ms": "<number>"},
    "scope": {
        "door": "mcp",
        "principal": "local",
        "scope": "<hash>",
        "mode": "list",
        "servers": 1,
        "tools": 3,
        "prompts": 0,
        "resources": 0,
        "tokens": 58,
        "excluded": 0,
        "revision": 5,
        "effective_servers": ["stage"],
        "offered": ["stage.echo", "stage.fail", "stage.hang"],
    },
}
"""What all of a type have."""
SEAL: Final = {"of", "prev", "seq", "sha256", "type"}
HASH, ID = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16,32}")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    return run_script(Site(tmp_path_factory.mktemp("everything")))


@pytest.mark.requirement("000-45", "002-047", "002-048")
def test_every_sample_is_what_the_script_makes_of_it(known: Known) -> None:
    found = {
        name: {" ".join(value for _, value in sorted(labels)): number for labels, number in samples.items()}
        for name, samples in known.metrics.items()
        if not name.endswith("_bucket")
    }
    lines = found.pop("toolgate_audit_events_total")

    assert found == COUNTED
    # Some sessions end, and tokens are told, after the metrics were read.
    last = max(one["seq"] for one in known.events if one["type"] not in ("session", "tokens", "seal"))
    assert last <= lines[""] <= last + len(known.of("session")) + len(known.of("tokens"))


def test_histograms_rise_to_their_counts(known: Known) -> None:
    for name, samples in known.metrics.items():
        if name.endswith("_bucket"):
            series: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
            for labels, number in samples.items():
                bound = float(dict(labels)["le"])
                rest = frozenset(one for one in labels if one[0] != "le")
                series.setdefault(rest, []).append((bound, number))
            counts = known.metrics[name.removesuffix("_bucket") + "_count"]
            for labels, buckets in series.items():
                rising = [number for _, number in sorted(buckets)]
                assert rising == sorted(rising)
                assert rising[-1] == counts[labels]


def test_metrics_and_audit_tell_the_same_of_every_door(known: Known) -> None:
    calls = [one for one in known.of("call") if one["tool"]]
    audited = Counter((one.get("server_id", ""), one["tool"]) for one in calls)
    unknown = sum(audited.pop(key) for key in list(audited) if not key[0] and key[1] != "search_tools")
    counted = {
        (dict(labels)["server_id"], dict(labels)["tool"]): number
        for labels, number in known.metrics["mcp_tool_call_total"].items()
    }
    sizes = sum(one.get("result_bytes", 0) for one in calls)

    assert counted == {**audited, ("", ""): unknown}
    assert sum(known.metrics["mcp_tool_call_output_bytes_sum"].values()) == sizes
    assert {one["door"] for one in calls} == {"mcp", "rest", "chat", "responses", "hostcall"}


def test_no_metric_is_without_an_expectation() -> None:
    named = set(re.findall(r"^\| `(\w+)`", document("docs/reference/metrics.md").text, re.MULTILINE))
    covered = {re.sub(r"_(sum|count)$", "", name) for name in COUNTED} | OF_NODES.keys() | OF_ROLLOUTS

    assert named - covered == {"toolgate_audit_events_total"}
    assert covered - named == set()


def test_a_node_has_those_about_its_control_as_well(tmp_path: Path) -> None:
    async def read() -> dict[str, Any]:
        async with open_node(Settings(data_dir=tmp_path, control=("127.0.0.1:1",)), {}) as app:
            return {one.name: one.samples for one in app.gateway.metrics.families()}

    found = asyncio.run(read())

    assert {name: found[name] for name in OF_NODES} == {name: {(): one} for name, one in OF_NODES.items()}


def normal(event: Json) -> Json:
    """An event without what differs each time, which must be there all the same, and in its form."""
    shown = {name: value for name, value in event.items() if name not in ("seq", "type")}
    assert shown.pop("at_ms") > 1_700_000_000_000
    for name, value in shown.items():
        if isinstance(value, str) and HASH.fullmatch(value):
            shown[name] = "<hash>"
        elif isinstance(value, str) and (ID.fullmatch(value) or value.startswith("req_")):
            shown[name] = "<id>"
        elif name == "session":
            shown[name] = "<session>"
        elif name == "command" and value.startswith("/"):
            shown[name] = "<command>"
        elif name in ("duration_us", "duration_ms", "start"):
            assert value > 0
            shown[name] = "<number>"
    return shown


def in_order(events: list[Json]) -> list[Json]:
    return sorted(events, key=lambda event: json.dumps(event, sort_keys=True))


def added_up(events: list[Json]) -> list[Json]:
    """One of each task: they are told every minute, which a busy machine may take for the script."""
    found: dict[str, Json] = {}
    for event in events:
        sums = found.setdefault(event.get("task_id", ""), dict(event))
        if sums != event:
            numbers = {name: value for name, value in event.items() if name not in ("type", "task_id")}
            sums.update({name: sums.get(name, 0) + value for name, value in numbers.items()})
    return list(found.values())


@pytest.mark.parametrize("kind", OTHERS)
def test_every_event_is_what_the_script_makes_of_it(known: Known, kind: str) -> None:
    expected = [{**COMMON.get(kind, {}), **one} for one in OTHERS[kind]]

    found = added_up(known.of(kind)) if kind == "tokens" else known.of(kind)

    assert in_order(list(map(normal, found))) == in_order(expected)


@pytest.mark.requirement("002-050")
def test_every_call_is_on_record_once_with_all_that_is_known_of_it(known: Known) -> None:
    assert in_order(list(map(normal, known.of("call")))) == in_order(CALLS)


def test_every_call_that_was_sent_was_written_down_before(known: Known) -> None:
    starts = {one["seq"]: one for one in known.of("start")}
    ends = {one["start"]: one for one in known.of("call") if "start" in one}

    assert in_order(list(map(normal, starts.values()))) == in_order(STARTED)
    assert ends.keys() == starts.keys()
    assert all(number < end["seq"] for number, end in ends.items())
    for number, start in starts.items():
        same = {name: value for name, value in start.items() if name not in ("seq", "type", "at_ms")}
        assert same.items() <= ends[number].items()


def test_no_field_of_any_event_is_without_an_expectation() -> None:
    expected = {
        **{kind: [{**COMMON.get(kind, {}), **one} for one in rows] for kind, rows in OTHERS.items()},
        "call": CALLS,
        "start": STARTED,
    }
    fields = {
        str(struct.__struct_config__.tag): {one.encode_name for one in msgspec.structs.fields(struct)}
        for struct in get_args(AuditEvent)
    }

    assert fields.keys() == expected.keys()
    for kind, rows in expected.items():
        assert fields[kind] - {name for row in rows for name in row} - {"profile"} == {"at_ms"}, kind


def test_the_log_is_whole_and_vouched_for(known: Known) -> None:
    numbered = [one["seq"] for one in known.events if one["type"] != "seal"]

    assert numbered == list(range(1, len(numbered) + 1))
    assert {frozenset(one) for one in known.of("seal")} == {frozenset(SEAL)}
    assert known.verified is not None
    assert known.verified.code == 0, known.verified
