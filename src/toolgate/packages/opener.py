"""Starts servers that were installed as packages, from their files. Others are started as ever.

`${PACKAGE_DIR}` stands for the directory of these files in arguments, variables and `cwd`; a command with a
`/` in it that does not begin with one is a program among them.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.servers import ServerRecord, StdioLaunch
from toolgate.model.tools import Era
from toolgate.packages.connector import UnpackedPackages
from toolgate.packages.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, parse_manifest
from toolgate.upstream.connection.contract import SHARED_CAPABILITIES, Link, LinkListener, Opener, StartFailed

PACKAGE_DIR: Final = "${PACKAGE_DIR}"

_log: Final = logging.getLogger(__name__)


class PackagedOpener(Opener):
    """An opener of records with and without a package, over that of their transport."""

    def __init__(self, opener: Opener, packages: UnpackedPackages) -> None:
        self._opener = opener
        self._packages = packages

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> Link:
        if record.package is not None and record.stdio is not None:
            directory = await self._packages.open(record.server_id, record.package)
            record = replace(record, stdio=launch_within(record.stdio, directory))
        return await self._opener(record, listener, known_era=known_era, capabilities=capabilities)


def launch_within(launch: StdioLaunch, directory: Path) -> StdioLaunch:
    """`launch` as it is for a package whose files are in `directory`. Raises StartFailed."""

    def put_in(text: str) -> str:
        return text.replace(PACKAGE_DIR, str(directory))

    return replace(
        launch,
        command=_command(launch.command, directory),
        args=tuple(map(put_in, launch.args)),
        env=MappingProxyType({name: put_in(value) for name, value in launch.env.items()}),
        cwd=str(directory / put_in(launch.cwd or "")),
    )


def _command(command: str, directory: Path) -> str:
    """A program of the package by its path; others stay what they are."""
    if "/" not in command or command.startswith(("/", "${")):
        return command
    if ".." in command.split("/"):
        raise StartFailed(f"`{command[:80]}` leads out of its package", fatal=True)
    return str(directory / command)


class DeclaredTools:
    """The tools that the manifests of packages define in full: known before their servers ever ran."""

    def __init__(self, packages: UnpackedPackages) -> None:
        self._packages = packages

    async def __call__(self, record: ServerRecord) -> Sequence[bytes]:
        """The definitions; nothing if the manifest only names tools, or cannot be read."""
        if record.package is None:
            return ()
        try:
            directory = await self._packages.open(record.server_id, record.package)
            return await asyncio.to_thread(_declared_in, directory / MANIFEST_NAME)
        except (StartFailed, InvalidRecord, OSError) as exc:
            _log.info("server `%s` is started to learn its tools: %s", record.server_id, exc)
            return ()


def _declared_in(path: Path) -> Sequence[bytes]:
    with path.open("rb") as file:
        manifest = parse_manifest(file.read(MAX_MANIFEST_BYTES + 1))
    return [tool.raw for tool in manifest.tools] if manifest.source == "manifest" else ()
