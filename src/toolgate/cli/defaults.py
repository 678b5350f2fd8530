"""What commands assume until they are told otherwise."""

from shlex import quote
from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def url_option(url: str) -> str:
    """What a command line needs that is to reach the gateway at `url`: nothing for the usual one."""
    return "" if url == DEFAULT_URL else f" --url {quote(url)}"
