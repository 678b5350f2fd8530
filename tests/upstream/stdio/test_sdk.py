"""A modern server of the official SDK behind a pipe tells when its tools change, because it is asked to."""

import sys
from pathlib import Path

import pytest

from tests.eventually import eventually_async
from tests.upstream.stdio_stage import Listener, call, command, open_link
from toolgate.model.protocol import LIST_CHANGED

pytestmark = pytest.mark.anyio
GROWING = str(Path(__file__).with_name("growing_server.py"))


async def test_a_modern_server_is_asked_to_tell_of_changes_and_does() -> None:
    listener = Listener()
    async with open_link(command(sys.executable, GROWING), listener) as link:
        assert (link.server_info.revision, link.server_info.announces("tools", "listChanged")) == (
            "modern",
            True,
        )
        assert await call(link, "grow") == "leaf_1"
        await eventually_async(
            lambda: LIST_CHANGED["tools"] in [method for method, _ in listener.notifications]
        )
