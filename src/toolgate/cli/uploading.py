"""Files on their way to a gateway, part by part: whatever it has already is not sent again."""

import sys
from collections.abc import Callable
from typing import BinaryIO

from rich.console import Console

from toolgate.cli.client.rest import RestClient
from toolgate.cli.output import open_console
from toolgate.cli.progress import Progress
from toolgate.model.packages import MAX_PART_BYTES

Tell = Callable[[str], None]


def open_progress(*, as_json: bool) -> Progress:
    """Steps shown as they happen, to whoever looks on; nobody else is told."""
    if as_json or not sys.stderr.isatty():
        return Progress(Console(quiet=True))
    return Progress(open_console(to_stderr=True))


def send_parts(client: RestClient, file: BinaryIO, sha256: str, tell: Tell) -> int:
    """Send the parts that are not there yet; how many there are."""
    size = file.seek(0, 2)
    count = max(1, -(-size // MAX_PART_BYTES))
    path = upload_path(sha256)
    there = set(client.get(path)["parts"])
    for number in range(1, count + 1):
        tell(f"{(number - 1) * 100 // count} %")
        if number not in there:
            file.seek((number - 1) * MAX_PART_BYTES)
            client.put_bytes(f"{path}/{number}", file.read(MAX_PART_BYTES))
    return count


def upload_path(sha256: str) -> str:
    """Where the parts of a file go."""
    return f"/api/uploads/{sha256}"
