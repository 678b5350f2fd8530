"""Questions about calls, for the suites of approvals."""

from dataclasses import replace
from typing import Any

from toolgate.model.approvals import ApprovalRequest

ASKED = ApprovalRequest(
    principal="key:ada",
    task_id="support",
    server_id="files",
    tool="delete",
    arguments_digest="a" * 64,
    definition="d" * 64,
    arguments=b'{"path":"/tmp/x"}',
    why="approval_policy default: always",
    session="s1",
    door="mcp",
)


def question(**changes: Any) -> ApprovalRequest:
    return replace(ASKED, **changes)
