"""Nodes get the archives of packages over the line, and exactly those their records name."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Final

import pytest

from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world
from tests.surfaces.rest_world import secret_of
from toolgate.errors import ControlUnavailable, Forbidden, NotFound, ToolgateError, Unauthenticated
from toolgate.model.servers import PackageRef
from toolgate.packages.artifacts import ArtifactStore
from toolgate.registry.replication.connection import ControlAddress, open_control_connection

pytestmark = pytest.mark.anyio

CONTENT: Final = os.urandom(5 * 1024 * 1024 + 1)
REF: Final = PackageRef(version="1.0.0", sha256=hashlib.sha256(CONTENT).hexdigest())
DEADLINE_S: Final = 240


async def publish(artifacts: ArtifactStore | None, directory: Path) -> None:
    assert artifacts is not None
    archive = directory / "archive"
    archive.write_bytes(CONTENT)
    await artifacts.put("pkg", REF.version, archive, manifest=b"{}", sha256=REF.sha256)


async def read(
    address: str, package_id: str = "pkg", ref: PackageRef = REF, *, role: str = "node"
) -> list[bytes]:
    """The pieces that a node gets."""
    control = ControlAddress(targets=(address,), key=secret_of(role))
    async with asyncio.timeout(DEADLINE_S), open_control_connection(control) as link:
        return [piece async for piece in link.read_artifact(package_id, ref)]


async def refusal(
    world: GrpcWorld, package_id: str = "pkg", ref: PackageRef = REF, *, role: str = "node"
) -> type:
    with pytest.raises(ToolgateError) as raised:
        await read(world.address, package_id, ref, role=role)
    return raised.type


async def test_an_archive_comes_in_pieces_and_is_the_one_that_was_published(tmp_path: Path) -> None:
    async with open_grpc_world() as world:
        await publish(world.rest.control.artifacts, tmp_path)
        pieces = await read(world.address)

    assert b"".join(pieces) == CONTENT
    assert max(map(len, pieces)) < len(CONTENT)


async def test_what_is_not_kept_under_that_name_and_hash_is_not_found(tmp_path: Path) -> None:
    async with open_grpc_world() as world:
        await publish(world.rest.control.artifacts, tmp_path)
        found = [
            await refusal(world, "other"),
            await refusal(world, ref=PackageRef(version="2.0.0", sha256=REF.sha256)),
            await refusal(world, ref=PackageRef(version="1.0.0", sha256="0" * 64)),
        ]

    assert found == [NotFound] * 3


async def test_a_name_that_leads_elsewhere_reaches_no_file(tmp_path: Path) -> None:
    """FIL-3"""
    async with open_grpc_world() as world:
        await publish(world.rest.control.artifacts, tmp_path)

        assert await refusal(world, "..") is ControlUnavailable
        assert (
            await refusal(world, ref=PackageRef(version="../1.0.0", sha256=REF.sha256)) is ControlUnavailable
        )


async def test_archives_are_for_nodes_alone(tmp_path: Path) -> None:
    async with open_grpc_world(trusts_local=False) as world:
        await publish(world.rest.control.artifacts, tmp_path)

        assert await refusal(world, role="admin") is Forbidden
        assert await refusal(world, role="no one") is Unauthenticated


async def test_a_control_that_is_gone_is_stated_to_be() -> None:
    with pytest.raises(ControlUnavailable, match=r"127\.0\.0\.1:9"):
        await read("127.0.0.1:9")
