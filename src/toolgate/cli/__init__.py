"""The command line: one module per command, each a client of the REST API like any other.

Only `up` builds a gateway. Nothing here decides policy, and no other package imports this one.
"""

from toolgate.cli.root import main

__all__ = ["main"]
