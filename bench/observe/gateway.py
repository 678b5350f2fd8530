"""`toolgate up` for `measure.py`: it writes down how many calls it made, turn by turn, and the processor time of them.

    gateway.py (turns | whole) RESULTS WORDS OF `toolgate`...

`turns`: it observes in one turn, and does not in the next, and nothing follows its audit log. `whole`: as it is. What
is left out is replaced by what does nothing, here alone: the product has no setting for it.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolgate.app import audit_index
from toolgate.cli.root import main
from toolgate.gateway.call import audit_trail
from toolgate.gateway.call.audit_trail import AuditTrail
from toolgate.gateway.call.pipeline import CallPipeline
from toolgate.model.json_text import NO_ARGUMENTS
from toolgate.redaction.arguments import Redaction

# Short: what else the machine does meanwhile changes from one tenth of a second to the next.
TURN_S = 0.02
WRITE_S = 1.0
REAL: dict[Any, tuple[str, ...]] = {
    AuditTrail: ("record_start", "record_end"), Redaction: ("redact_for_audit",), audit_trail: ("estimate_result",)}
NOTHING: dict[str, Any] = {"record_start": lambda *_: 0, "record_end": lambda *_: None,
                           "redact_for_audit": lambda *_: NO_ARGUMENTS, "estimate_result": lambda *_: 0}


class Turns:
    """Counts calls and processor time, with observation and without."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.calls = 0
        self.real = {name: getattr(owner, name) for owner, names in REAL.items() for name in names}
        record_end = self.real["record_end"]
        # One that began in a turn without a record has nothing to end in the next.
        self.real["record_end"] = lambda trail, call, start, *end: start and record_end(trail, call, start, *end)
        self.running: asyncio.Task[None] | None = None

    def begin(self, *, is_alternating: bool) -> None:
        """From the moment on that there is a gateway."""
        send, make = CallPipeline.run, AuditTrail.__init__

        def counted(self_: CallPipeline, *args: Any, **options: Any) -> Any:
            self.calls += 1
            return send(self_, *args, **options)

        def made(recording: AuditTrail, *args: Any, **options: Any) -> None:
            make(recording, *args, **options)
            self.running = asyncio.get_running_loop().create_task(self.run(is_alternating=is_alternating))

        CallPipeline.run = counted  # type: ignore[method-assign]
        AuditTrail.__init__ = made  # type: ignore[method-assign]

    async def run(self, *, is_alternating: bool) -> None:
        is_on, turns, written_s = True, [], 0.0
        while True:
            self.observe(is_on=is_on)
            calls, spent = self.calls, time.process_time()
            await asyncio.sleep(TURN_S)
            turns.append((is_on, self.calls - calls, time.process_time() - spent))
            if time.monotonic() > written_s + WRITE_S:
                written_s = time.monotonic()
                self.results.write_text(json.dumps(turns))
            is_on = not (is_on and is_alternating)

    def observe(self, *, is_on: bool) -> None:
        for owner, names in REAL.items():
            for name in names:
                setattr(owner, name, (self.real if is_on else NOTHING)[name])


@asynccontextmanager
async def unfollowed(*_args: object, **_options: object) -> AsyncIterator[None]:
    yield


if __name__ == "__main__":
    kind, results, *words = sys.argv[1:]
    Turns(Path(results)).begin(is_alternating=kind == "turns")
    if kind == "turns":
        audit_index.follow_log = unfollowed
    sys.exit(main(words))
