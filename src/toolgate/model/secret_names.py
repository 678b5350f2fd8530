"""Which names usually stand for a secret: of variables, headers, flags and parameters."""

import re
from typing import Final

# Wide on purpose: a harmless value masked costs a look into the file, a secret shown costs more.
_SECRET_WORD: Final = re.compile(
    r"api[-_]?key|access[-_]?key|private[-_]?key|signing[-_]?key|token|secret|passw|passphrase|pwd"
    r"|auth(?!or(?!i[sz]))|cookie|credential|bearer|session|signature|(?:^|[-_.])(?:key|pat|sig|dsn)$",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether what goes by this name usually is a secret."""
    return _SECRET_WORD.search(name) is not None
