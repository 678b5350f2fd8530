"""What the audit has of each call in `everything`: whole, but for what differs each time."""

from typing import Any, Final

from tests.scenarios.gateway import Json

PINNED: Final = "pin: its definition changed after it was approved"
ECHO: Final = {"server_id": "stage", "tool": "echo"}
ADMITTED: Final = {"layer": "platform", "rule": "allowed_tools `*`", "definition": "<hash>"}
"""The rule that lets a call pass, and the definition that its caller was shown."""
WAITS: Final = {"layer": "platform", "rule": "approval_policy default: always", "definition": "<hash>"}
IDS: Final = {"mcp": "1", "rest": "<id>", "chat": "<id>", "responses": "<id>", "hostcall": "<id>"}
"""What each door calls a request."""
GUEST: Final = {"task_id": "guest", "session": "<id>"}
TOOK: Final = {"duration_us": "<number>"}
WRAPPED: Final = 40
"""What the server puts around a text, in bytes."""


def common(door: str, revision: int) -> Json:
    """What is known of every call."""
    return {
        "door": door,
        "principal": "local",
        "request_id": IDS[door],
        "revision": revision,
        "trace_id": "<id>",
    }


def given(text: str, **more: Any) -> Json:
    """Arguments, as they were shown and by their size."""
    return {"arguments": {"text": text}, "argument_bytes": len(text) + len('{"text":""}'), **more}


def reply(text: str) -> Json:
    """The result of an echo: its size, and what it costs a model."""
    return {"outcome": "ok", "result_bytes": WRAPPED + len(text), "result_tokens": (len(text) + 2) * 2 // 7}


def echo(door: str, text: str, revision: int = 5, **more: Any) -> tuple[Json, Json]:
    """One that was sent and answered: how it began, and what it ends with."""
    start = {**common(door, revision), **ECHO, **ADMITTED, **given(text), **more}
    return start, reply(text)


def denied(door: str, code: str, **more: Any) -> Json:
    return {**common(door, more.pop("revision", 5)), "outcome": "denied", "code": code, **more}


NOTHING: Final = {"arguments": {}, "argument_bytes": 2}
_ANSWERED: Final[list[tuple[Json, Json]]] = [
    echo("rest", "six", server_id="guarded"),
    echo("mcp", "one"),
    (
        {**common("mcp", 5), **ADMITTED, **NOTHING, "server_id": "stage", "tool": "fail"},
        {"outcome": "tool_error", "result_bytes": 155, "result_tokens": 21},
    ),
    (
        {
            **common("mcp", 5),
            **ADMITTED,
            **NOTHING,
            "server_id": "stage",
            "tool": "hang",
            "session": "<session>",
        },
        {"outcome": "error", "code": "mcp_timeout"},
    ),
    echo(
        "mcp",
        "two",
        session="<session>",
        layer="request",
        rule="?tools= `stage/echo`",
        arguments={"text": "two", "api_key": "***"},
        argument_bytes=33,
    ),
    echo("mcp", "three", session="<session>"),
    echo("mcp", "four"),
    echo("rest", "five"),
    echo("rest", "eight", task_id="tight"),
    echo("rest", "ten", task_id="trial", shadow="mcp.tool_denylist `stage/echo`"),
    echo("hostcall", "hi", 7, **GUEST),
    (
        {**common("mcp", 8), **ADMITTED, **NOTHING, "server_id": "rug", "tool": "turn"},
        {"outcome": "ok", "result_bytes": 34, "result_tokens": 1},
    ),
    echo("chat", "eleven", 10, task_id="desk"),
    echo("responses", "twelve", 11, task_id="desk"),
]
_ASKED: Final = {"server_id": "guarded", "tool": "echo", **WAITS, **TOOK}
_UNFIT: Final = {**ECHO, "definition": "<hash>"}
STARTED: Final[list[Json]] = [start for start, _ in _ANSWERED]
CALLS: Final[list[Json]] = [
    *({**start, **end, **TOOK, "start": "<number>"} for start, end in _ANSWERED),
    {
        **common("mcp", 5),
        **TOOK,
        "tool": "search_tools",
        "definition": "<hash>",
        "outcome": "ok",
        "arguments": {"query": "say the same"},
        "argument_bytes": 24,
        "result_bytes": 282,
        "result_tokens": 18,
    },
    *(
        denied("rest", "mcp_approval_required", **_ASKED, **given(text))
        for text in ("six", "seven", "undecided")
    ),
    denied("rest", "mcp_approval_denied", **_ASKED, **given("seven")),
    denied(
        "rest",
        "budget_exceeded",
        **ECHO,
        **TOOK,
        **given("nine"),
        task_id="tight",
        layer="task",
        rule="mcp.budgets: calls_per_day = 1",
        definition="<hash>",
    ),
    denied("mcp", "mcp_invalid_arguments", **_UNFIT),
    denied("hostcall", "mcp_invalid_arguments", revision=7, **_UNFIT, **GUEST),
    denied("mcp", "unknown_tool", tool="stage.nope"),
    denied("mcp", "unknown_tool", tool="stage.fail", session="<session>", layer="request", rule="?tools="),
    denied("hostcall", "unknown_tool", revision=7, tool="none", **GUEST),
    denied("mcp", "unknown_tool", revision=9, tool="rug.read", layer="platform", rule=PINNED),
    denied("chat", "unknown_tool", revision=10, tool="stage.nope", task_id="desk"),
    denied(
        "rest",
        "mcp_policy_denied",
        tool="",
        server_id="rug",
        task_id="desk",
        layer="task",
        rule="task `desk` does not allow `rug`",
    ),
]
