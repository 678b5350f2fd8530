"""Times as people read them: by UTC, whatever the clock of the terminal says."""

from datetime import UTC, datetime
from typing import Final

DAY: Final = "%Y-%m-%d"
MINUTE: Final = f"{DAY} %H:%M"
SECOND: Final = f"{MINUTE}:%S"


def moment(at_ms: float, form: str = SECOND) -> str:
    """A time in unix milliseconds, as `form` writes it."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):{form}}"
