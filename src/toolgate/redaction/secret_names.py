"""Which names usually stand for a secret: of variables, headers, flags and parameters."""

import re
from typing import Final

# Wide on purpose: a harmless value masked costs a look into the file, a secret shown costs more.
_SECRET_WORD: Final = re.compile(
    r"(?:api|access|account|encryption|master|private|signing|ssh)[-_]?key|key[-_]?data|token|secret"
    r"|passw|passphrase|passcode|pwd|auth(?!or(?!i[sz]))|cookie|credential|bearer|session|signature"
    r"|(?:^|[-_.])(?:key|pat|sig|dsn|pass|pw|otp|cvv|cvc|jwt)$",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether what goes by this name usually is a secret."""
    return _SECRET_WORD.search(name) is not None
