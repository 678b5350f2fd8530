"""The command line, in a process whose registry reads the time from a file that a test writes."""

import os
import sys
from importlib import import_module
from pathlib import Path

CLOCK = "TEST_CLOCK_FILE"


def read_clock_ms(_store: object, _connection: object) -> int:
    return int(Path(os.environ[CLOCK]).read_text("ascii"))


if __name__ == "__main__":
    import_module("toolgate.registry.store.sql_store").Store._read_clock_ms = read_clock_ms
    sys.exit(import_module("toolgate.cli.root").main())
