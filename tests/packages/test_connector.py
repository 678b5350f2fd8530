"""A server that was installed as a package is started from its files; others are started as ever."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.contract.links import Ears
from tests.packages.archive_samples import tar_of
from tests.packages.test_package_cache import ref_of
from toolgate.model.servers import PackageRef, ServerRecord, StdioLaunch
from toolgate.packages.connector import PackageCache, PackageConnector, resolve_launch
from toolgate.upstream.connection.contract import ConnectionListener, ServerConnection, StartFailed

pytestmark = pytest.mark.anyio

DIRECTORY: Final = Path("/cache/abc")


def test_the_directory_is_filled_into_arguments_variables_and_cwd_only() -> None:
    launch = StdioLaunch(
        command="${PACKAGE_DIR}python3",
        args=("-u", "${PACKAGE_DIR}/a:${PACKAGE_DIR}/b", "${ENV:HOME}"),
        env=MappingProxyType({"PYTHONPATH": "${PACKAGE_DIR}/lib", "${PACKAGE_DIR}": "x"}),
        env_from=("TOKEN",),
        cwd="${PACKAGE_DIR}/run",
    )

    assert resolve_launch(launch, DIRECTORY) == StdioLaunch(
        command="${PACKAGE_DIR}python3",
        args=("-u", "/cache/abc/a:/cache/abc/b", "${ENV:HOME}"),
        env={"PYTHONPATH": "/cache/abc/lib", "${PACKAGE_DIR}": "x"},
        env_from=("TOKEN",),
        cwd="/cache/abc/run",
    )


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        pytest.param(None, "/cache/abc", id="its files unless it says otherwise"),
        pytest.param("run", "/cache/abc/run", id="among them"),
        pytest.param("/srv", "/srv", id="elsewhere"),
    ],
)
def test_a_package_runs_where_its_files_are(cwd: str | None, expected: str) -> None:
    assert resolve_launch(StdioLaunch(command="python3", cwd=cwd), DIRECTORY).cwd == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("python3", "python3", id="on the PATH"),
        pytest.param("/usr/bin/env", "/usr/bin/env", id="elsewhere"),
        pytest.param("./server", "/cache/abc/server", id="its own"),
        pytest.param("bin/server", "/cache/abc/bin/server", id="its own, further down"),
        pytest.param("${ENV:HOME}/bin/x", "${ENV:HOME}/bin/x", id="what the node says"),
    ],
)
def test_a_relative_command_is_a_program_of_the_package(command: str, expected: str) -> None:
    assert resolve_launch(StdioLaunch(command=command), DIRECTORY).command == expected


def test_no_command_leads_out_of_the_package() -> None:
    with pytest.raises(StartFailed, match="is outside of") as raised:
        resolve_launch(StdioLaunch(command="./../../bin/sh"), DIRECTORY)

    assert raised.value.fatal


async def test_only_a_server_of_a_package_is_given_one(tmp_path: Path) -> None:
    opened: list[ServerRecord] = []

    async def fetch(package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        assert package_id == "pkg"
        yield tar_of([])

    async def opener(record: ServerRecord, listener: ConnectionListener, **_: object) -> ServerConnection:
        opened.append(record)
        raise StartFailed("enough")

    plain = ServerRecord(
        server_id="pkg", transport="stdio", stdio=StdioLaunch(command="./server", args=("${PACKAGE_DIR}",))
    )
    packaged = replace(plain, package=ref_of(tar_of([])))
    async with asyncio.timeout(60), PackageCache(tmp_path, fetch, named=lambda: None) as packages:
        directory = await packages.open("pkg", ref_of(tar_of([])))
        for record in (plain, packaged):
            with pytest.raises(StartFailed, match="enough"):
                await PackageConnector(opener, packages)(record, Ears(), known_revision=None)

    launch = StdioLaunch(
        command=f"{directory}/server", args=(str(directory),), env=MappingProxyType({}), cwd=str(directory)
    )
    assert opened == [plain, replace(packaged, stdio=launch)]
