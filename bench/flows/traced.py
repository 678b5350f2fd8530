"""`toolgate up` with a counter of its own frames: SIGUSR1 starts to count, SIGUSR2 writes what was counted.

    python traced.py COUNTS_FILE up --listen …

Run it with the Python of the checkout to be measured. It writes one line of JSON: modules, functions and frames
of Toolgate that ran on the event loop in between.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import toolgate
from toolgate.cli import main

PACKAGE = str(Path(toolgate.__file__).parent)
frames: Counter[CodeType] = Counter()


def count(frame: FrameType, event: str, _arg: object) -> None:
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
        frames[frame.f_code] += 1


def start(*_signal: object) -> None:
    frames.clear()
    sys.setprofile(count)


def stop(*_signal: object) -> None:
    sys.setprofile(None)
    # Comprehensions, lambdas and module bodies have no name of their own: they count as frames only.
    named = {(code.co_filename, code.co_qualname) for code in frames if not code.co_name.startswith("<")}
    counts = {
        "modules": len({file for file, _ in named}),
        "functions": len(named),
        "frames": sum(frames.values()),
    }
    partial = Path(f"{sys.argv[0]}.partial")
    partial.write_text(json.dumps(counts), "utf-8")
    partial.rename(sys.argv[0])


if __name__ == "__main__":
    sys.argv.pop(0)
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
    main(sys.argv[1:])
