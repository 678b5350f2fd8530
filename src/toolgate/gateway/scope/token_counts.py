"""What lists and results cost models: an estimate cheap enough for each result, and what is told of all."""

from collections.abc import Callable, Container, Mapping
from operator import sub
from typing import Final

import msgspec

from toolgate.audit.events import TokensCounted
from toolgate.audit.log.writer import AuditLog
from toolgate.model.json_text import Members
from toolgate.upstream.connection.contract import RpcResponse

TOKENS, PER_BYTES = 2, 7
"""Two for seven bytes: for prose, code and JSON within JSON, what `catalog.tokens` counts within a fifth.
It takes 50 ms for a megabyte, and this nothing."""
MEDIA_TOKENS: Final = 1_000
"""What models count for a picture of middling size, however many bytes it has."""


_TEXT_BEGINS, _TEXT_ENDS = b'[{"type":"text","text":"', b'"}]'
_QUOTES: Final = (_TEXT_BEGINS + _TEXT_ENDS).count(b'"')
_AROUND: Final = len(_TEXT_BEGINS + _TEXT_ENDS) - len(b'""')
_SHORT_BYTES: Final = 16 * 1024


class _Block(msgspec.Struct, gc=False):
    """One piece of a result, as far as a model reads it."""

    type: str = ""
    text: msgspec.Raw = msgspec.Raw()
    resource: msgspec.Raw = msgspec.Raw()


_decode_blocks = msgspec.json.Decoder(list[_Block]).decode


def estimate_result(reply: RpcResponse) -> int:
    """About how many tokens a model is charged for `reply`; 0 for an error, which no model need see."""
    members = reply.members
    return 0 if members is None else _estimate(members, reply.size)


def _estimate(members: Members, size: int) -> int:
    """Of a tool's result its blocks; where it has none, what it has as an object, which says the same."""
    content = members.get("content")
    if content is None:
        return size * TOKENS // PER_BYTES
    if len(content) <= _SHORT_BYTES:
        # Most results are one text. Where there is no other quote, there is nothing else either.
        said = bytes(content)
        if said.count(b'"') == _QUOTES and said.startswith(_TEXT_BEGINS) and said.endswith(_TEXT_ENDS):
            return (len(said) - _AROUND) * TOKENS // PER_BYTES
    try:
        blocks = _decode_blocks(content)
    except msgspec.DecodeError:
        return len(content) * TOKENS // PER_BYTES
    if not blocks:
        return len(members.get("structuredContent", b"")) * TOKENS // PER_BYTES
    text = media = 0
    for block in blocks:
        text += len(block.text) + len(block.resource)
        media += block.type in ("image", "audio")
    return text * TOKENS // PER_BYTES + media * MEDIA_TOKENS


class TaskTokens:
    """What the lists and results of one task cost models, from the first on."""

    __slots__ = ("calls", "definitions", "full", "lists", "results", "saved")

    def __init__(self) -> None:
        self.lists = 0
        self.definitions = 0
        """What the definitions in those lists cost."""
        self.full = 0
        """What those of all registered tools would have."""
        self.saved = 0
        """The difference where it is to the good: a counter never falls."""
        self.calls = 0
        self.results = 0

    def record_list(self, tokens: int, full: int) -> None:
        """A list was shown that costs `tokens`, where all tools cost `full`."""
        self.lists += 1
        self.definitions += tokens
        self.full += full
        if full > tokens:
            self.saved += full - tokens

    def record_result(self, tokens: int) -> None:
        """A call ended with a result that costs `tokens`."""
        self.calls += 1
        self.results += tokens


class TokenCounts:
    """What is counted of all tasks, and what of it the audit was told."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._tasks: dict[str, TaskTokens] = {}
        self._told: dict[str, tuple[int, ...]] = {}

    def of(self, task_id: str) -> TaskTokens:
        """The numbers of a task that is registered. Callers without one: under no name."""
        found = self._tasks.get(task_id)
        if found is None:
            found = self._tasks[task_id] = TaskTokens()
        return found

    def tell(self, *, at_ms: int, registered: Container[str]) -> None:
        """Tell the audit what is new, an event a task, and forget tasks that are gone."""
        for task_id, tokens in list(self._tasks.items()):
            now = (tokens.lists, tokens.definitions, tokens.full, tokens.calls, tokens.results)
            told = self._told.get(task_id, (0,) * len(now))
            if now != told:
                self._told[task_id] = now
                self._audit.record(TokensCounted(at_ms, task_id, *map(sub, now, told)))
            elif task_id and task_id not in registered:
                del self._tasks[task_id]
                self._told.pop(task_id, None)

    def by_task(self, name: str) -> Callable[[], Mapping[str, float]]:
        """Reads one of the numbers, task by task."""
        return lambda: {task_id: float(getattr(tokens, name)) for task_id, tokens in self._tasks.items()}
