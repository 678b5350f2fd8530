"""What commands assume until they are told otherwise."""

from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:8080"
KEY_VARIABLE: Final = "TOOLGATE_KEY"
