"""The command line, in a process whose leases on invocations are short: a lost node is soon missed."""

import sys
from importlib import import_module

LEASE_S = 1.5

if __name__ == "__main__":
    queue = import_module("toolgate.registry.invocations")
    vars(queue)["LEASE_MS"] = int(LEASE_S * 1000)
    vars(queue)["HEARTBEAT_S"] = LEASE_S / 5
    # Their other users are imported from here on.
    sys.exit(import_module("toolgate.cli.root").main())
