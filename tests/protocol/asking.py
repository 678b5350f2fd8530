"""What the conformance suite is told to start: it has the words after SOCKET run at the other end of that.

It needs nothing but the standard library, and little of that: it is started a hundred times.
"""

import json
import os
import socket
import sys


def request(path: str, *words: str) -> int:
    """Who runs it has our words and our environment; the complaint that comes back is ours."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(path)
        asking.sendall(json.dumps({"words": words, "environ": dict(os.environ)}).encode() + b"\n")
        complaint = asking.makefile("rb").read().decode()
    sys.stderr.write(complaint)
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(request(*sys.argv[1:]))
