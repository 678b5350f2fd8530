"""The tokens that lists and results cost models: an estimate for each result, and counts for each task."""

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from operator import sub
from typing import Final

import msgspec

from toolgate.audit.events import TokensCounted
from toolgate.audit.log.writer import AuditLog
from toolgate.upstream.connection.contract import RpcResponse

TOKENS, PER_BYTES = 2, 7
"""Two tokens for seven bytes. For prose, code and JSON in JSON, `catalog.tokens` counts within a fifth of
that, but takes 50 ms per megabyte; the estimate takes no time."""
MEDIA_TOKENS: Final = 1_000  # models count this for an image of medium size, independent of its bytes
_TEXT_BEGINS, _TEXT_ENDS = b'[{"type":"text","text":"', b'"}]'
_QUOTES: Final = (_TEXT_BEGINS + _TEXT_ENDS).count(b'"')
_AROUND: Final = len(_TEXT_BEGINS + _TEXT_ENDS) - len(b'""')
_SHORT_BYTES: Final = 16 * 1024  # a choice: a longer text likely has a quote, and would be copied in vain


class _Block(msgspec.Struct, gc=False):
    """The parts of a content block that a model reads."""

    type: str = ""
    text: msgspec.Raw = msgspec.Raw()
    resource: msgspec.Raw = msgspec.Raw()


_decode_blocks = msgspec.json.Decoder(list[_Block]).decode


def estimate_result(rpc: RpcResponse) -> int:
    """Estimate the tokens that a model is charged for a response; 0 for an error, which no model gets.

    A tool's result counts by its content blocks, or if it has none, by its structured content.
    """
    members = rpc.members
    if members is None:
        return 0
    content = members.get("content")
    if content is None:
        return rpc.size * TOKENS // PER_BYTES
    if len(content) <= _SHORT_BYTES:
        # Most results are one text. A result without any other quote has no other member.
        raw = bytes(content)
        if raw.count(b'"') == _QUOTES and raw.startswith(_TEXT_BEGINS) and raw.endswith(_TEXT_ENDS):
            return (len(raw) - _AROUND) * TOKENS // PER_BYTES
    try:
        blocks = _decode_blocks(content)
    except msgspec.DecodeError:
        return len(content) * TOKENS // PER_BYTES
    if not blocks:
        return len(members.get("structuredContent", b"")) * TOKENS // PER_BYTES
    text = media = 0
    for block in blocks:  # a loop: most results have one block, and two generators cost 0.5 µs
        text += len(block.text) + len(block.resource)
        media += block.type in ("image", "audio")
    return text * TOKENS // PER_BYTES + media * MEDIA_TOKENS


@dataclass(slots=True)
class TaskTokens:
    """The tokens that the lists and results of one task have cost models."""

    lists: int = 0
    definitions: int = 0
    """The tokens of the definitions in those lists."""
    full: int = 0
    """The tokens that the definitions of all registered tools would have cost."""
    saved: int = 0
    """The difference, if it is positive: a counter never falls."""
    calls: int = 0
    results: int = 0

    def record_list(self, tokens: int, full: int) -> None:
        """Count a list that costs `tokens`; a list of all tools would cost `full`."""
        self.lists += 1
        self.definitions += tokens
        self.full += full
        if full > tokens:
            self.saved += full - tokens


@dataclass(slots=True)
class TokenCounts:
    """The counts of all tasks, and the part of them that is in the audit log."""

    audit: AuditLog
    tasks: defaultdict[str, TaskTokens] = field(default_factory=lambda: defaultdict(TaskTokens))
    """By registered task; callers without a task count under the empty name."""
    audited: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def audit_changes(self, *, at_ms: int, registered: Container[str]) -> None:
        """Audit changed counts, one event per task, and drop deleted tasks."""
        for task_id, tokens in list(self.tasks.items()):
            now = (tokens.lists, tokens.definitions, tokens.full, tokens.calls, tokens.results)
            before = self.audited.get(task_id, (0,) * len(now))
            if now != before:
                self.audited[task_id] = now
                self.audit.record(TokensCounted(at_ms, task_id, *map(sub, now, before)))
            elif task_id and task_id not in registered:
                del self.tasks[task_id]
                self.audited.pop(task_id, None)

    def read(self, name: str) -> Mapping[str, float]:
        """The count `name` of each task."""
        return {task_id: float(getattr(tokens, name)) for task_id, tokens in self.tasks.items()}
