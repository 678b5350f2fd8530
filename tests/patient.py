"""The command line, in a process that gives servers long to start: a machine that runs tests may be busy."""

import sys
from importlib import import_module
from pathlib import Path

START_S = 120.0

if __name__ == "__main__":
    # Its other users are imported from here on.
    vars(import_module("toolgate.upstream.connection.contract"))["START_TIMEOUT_S"] = START_S
    if "--demo" in sys.argv:
        vars(import_module("toolgate.cli.demo.demo"))["CONNECT_WITHIN_S"] = 2 * START_S
    sys.argv[0] = str(Path(sys.executable).with_name("toolgate"))
    sys.exit(import_module("toolgate.cli.root").main())
