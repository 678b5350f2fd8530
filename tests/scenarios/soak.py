"""How often a scenario is repeated: a few times in the suite, many times under `make soak`."""

import os


def rounds(*, suite: int, soak: int) -> int:
    return soak if os.environ.get("TOOLGATE_SOAK") else suite
