"""Times in the past as people and programs write them: `7d`, `12h`, `30m`, a day, or unix milliseconds."""

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Final

from typer import Option

from toolgate.cli.failure import CommandFailed, Exit

_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_UNIX_MS: Final = re.compile(r"[0-9]{11,15}")
"""From 1973 on: a bare `7` is more likely a slip for `7d`."""
_UNIT_MS: Final = {"d": 24 * 3_600_000, "h": 3_600_000, "m": 60_000}
_MOST_MS: Final = 100 * 366 * _UNIT_MS["d"]

SINCE: Final = Option(
    "--since", metavar="TIME", help="How far back: `7d`, `12h`, `30m`, a day: `2026-11-01`, or unix ms."
)
SinceOption = Annotated[str, SINCE]


def parse_time(text: str, *, now_ms: int | None = None) -> int:
    """The time that is meant, in unix milliseconds."""
    now_ms = int(time.time() * 1e3) if now_ms is None else now_ms
    if _UNIX_MS.fullmatch(text):
        return int(text)
    span = _SPAN.fullmatch(text)
    if span is not None:
        back_ms = int(span[1]) * _UNIT_MS[span[2]]
        if back_ms <= _MOST_MS:
            return max(0, now_ms - back_ms)
    try:
        at_ms = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1e3)
    except ValueError:
        at_ms = -1
    if not 0 <= at_ms < now_ms:
        raise CommandFailed(
            f"`{text}` is no time in the past",
            hint="write `7d`, `12h`, `30m`, a day: `2026-11-01`, or unix milliseconds",
            exit_code=Exit.USAGE,
        )
    return at_ms
