"""What the conformance suite objects to, and why that stays. An exception that no longer applies fails."""

from tests.protocol.suite import HANDSHAKE, STATELESS

REQUIRED = {HANDSHAKE: 30, STATELESS: 37}
SCENARIOS = {HANDSHAKE: 33, STATELESS: 50}
"""How many there are for servers: required ones, and all."""

NO_ROOTS = "the roots of one client are not shown to a server on a connection that many clients share"
EXCEPTIONS: dict[tuple[str, str], dict[str, str]] = {
    ("modern", HANDSHAKE): {},
    ("modern", STATELESS): {},
    ("one-way", HANDSHAKE): {},
    ("one-way", STATELESS): {},
    ("legacy", HANDSHAKE): {},
    ("legacy", STATELESS): {
        "input-required-result-basic-elicitation": "a handshake-era server gives its questions no keys",
        "input-required-result-basic-list-roots": NO_ROOTS,
        "input-required-result-multiple-input-requests": NO_ROOTS,
        "input-required-result-capability-check": "it hears once what its clients can do, not with each call",
        "input-required-result-ignore-extra-params": "answers without a state belong to no call of its",
    },
}
"""Of required scenarios: by fixture and revision."""

TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
UNSCORED: dict[str, dict[str, str]] = {
    HANDSHAKE: {},
    STATELESS: dict.fromkeys(TASKS, "the tasks extension is not carried"),
}
"""Of those that are run and not required."""
