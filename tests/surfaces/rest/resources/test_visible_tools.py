"""What an installation says of the tools that callers can see."""

import pytest

from tests.package_kit import manifest, pack, upload
from tests.surfaces.rest.resources.test_packages import install
from tests.surfaces.rest_world import SERVERS, open_rest

pytestmark = pytest.mark.anyio


async def test_an_installation_and_a_refresh_say_how_many_tools_callers_can_see() -> None:
    async with open_rest() as world:
        await upload(world.request, pack(manifest(), {"server.py": b"pass"}))
        hidden = (await install(world, allowed_tools=["read_*"])).json()
        refreshed = await world.post(f"{SERVERS}/notes/refresh")
        allowed = (await install(world, allowed_tools=["*"])).json()
        await world.served()
        again = await world.post(f"{SERVERS}/notes/refresh")

    assert [(one["visible_tools"], one["declared_tools"]) for one in (hidden, allowed)] == [(0, 1), (1, 1)]
    assert (refreshed["tools"], refreshed["visible"]) == (["echo"], [])
    assert (again["tools"], again["visible"]) == (["echo"], ["echo"])
