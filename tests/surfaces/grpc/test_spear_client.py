"""A client generated from SPEAR's definitions alone works as it is, and costs our fields nothing."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from grpc_tools import protoc

from tests.surfaces.grpc.grpc_house import open_house
from tests.surfaces.rest_house import secret_of, stdio

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent


async def run_client(address: str, generated: Path) -> Any:
    command = [str(HERE / "spear_client.py"), address, secret_of("admin"), str(generated)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 60)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return json.loads(output)


async def test_rep_6_a_client_of_spears_lists_watches_upserts_and_deletes(tmp_path: Path) -> None:
    arguments = [f"-I{HERE}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "spear.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    git = stdio(
        "git",
        stdio={"env": {"API_KEY": "canary"}, "env_from": ["HOME"]},
        tags=["code"],
        enabled=False,
        sharing="per_session",
    )
    async with open_house(trusts_local=False) as house:
        await house.rest.seed(server=[git, stdio("old", enabled=False)])
        saw = await run_client(house.address, tmp_path)
        stored = {one.id: one.body for one in (await house.store.list("server")).records}

    assert saw == {
        "listed": ["git", "old"],
        "env": {"API_KEY": "***"},
        "events": [[[], []], [["git"], []], [["made"], []], [[], ["old"]]],
        "refusals": ["NOT_FOUND", "INVALID_ARGUMENT"],
    }
    assert stored["git"] == git | {"display_name": "changed"}
    assert stored["made"]["budgets"] == {"max_concurrency": 2}
    assert "old" not in stored
