"""When a process tells a program of calls that wait, and when it does not start."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.rest_world import RestWorld, open_rest
from toolgate.app.control_plane import open_webhook
from toolgate.errors import StartRefused
from toolgate.govern.approvals import ApprovalWebhook
from toolgate.settings import Settings

pytestmark = pytest.mark.anyio

HOOK = "https://bot.example/approvals"
SECRET = "0123456789abcdef" * 3


async def opened(
    world: RestWorld, path: Path, url: str = HOOK, secret: str = SECRET, **settings: Any
) -> ApprovalWebhook | None:
    (path / "secret").write_text(secret)
    config: Any = {"url": url, "secret_file": path / "secret"}
    chosen = Settings(approval_webhook=config, **settings)
    async with open_webhook(chosen, world.store, world.control.gateway) as webhook:
        return webhook


async def test_without_a_receiver_there_is_no_webhook() -> None:
    async with (
        open_rest() as world,
        open_webhook(Settings(), world.store, world.control.gateway) as webhook,
    ):
        assert webhook is None


async def test_a_receiver_on_this_machine_may_be_reached_in_clear(tmp_path: Path) -> None:
    async with open_rest() as world:
        assert await opened(world, tmp_path, "http://127.0.0.1:9/") is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://bot.example/"}, "must be reached by `https`"),
        ({"url": "ftp://bot.example/"}, "the scheme `ftp`"),
        ({"url": "https://169.254.169.254/"}, "a link-local address"),
        ({"url": "https://127.0.0.1/", "allow_private_upstreams": False}, "a loopback address"),
        ({"allowed_upstream_hosts": ("*.corp.example",)}, "not among the `allowed_upstream_hosts`"),
        ({"secret": "short"}, "too short or too simple"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_unsafe_receiver_keeps_it_from_starting(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    async with open_rest() as world:
        with pytest.raises(StartRefused, match=message) as refused:
            await opened(world, tmp_path, **options)

    assert SECRET not in str(refused.value)


async def test_who_can_name_no_way_back_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_rest() as world:
        with caplog.at_level(logging.WARNING):
            await opened(world, tmp_path, listen="0.0.0.0:0")
            await opened(world, tmp_path, listen="0.0.0.0:0", public_url="https://gate.example")

    assert [one.message for one in caplog.records if "public_url" in one.message] == [
        "`approval_webhook` gets no URL for decisions: set `public_url` to the URL of this gateway"
    ]
