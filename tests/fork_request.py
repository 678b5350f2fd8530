"""A command that is run by a fork of `tests/forked_programs.py`: `fork_request.py SOCKET PROGRAM …`.

It needs nothing but the standard library, and little of that: it is started hundreds of times.
"""

import json
import os
import socket
import sys


def request(path: str, program: str, *words: str) -> int:
    """Hand over all that the program has from us, and wait for its exit code."""
    asked = {"program": program, "words": words, "environ": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        sent = json.dumps(asked).encode() + b"\n"
        streams = [0, 1, 2, os.open(".", os.O_DIRECTORY)]
        connection.sendall(sent[socket.send_fds(connection, [sent], streams) :])
        # It is the only one to use the streams from here on: their ends must be seen.
        for stream in (0, 1):
            os.close(stream)
        code = connection.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(request(*sys.argv[1:]))
