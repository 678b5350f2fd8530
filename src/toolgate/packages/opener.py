"""Starts servers that were installed as packages, from their files. Others are started as ever.

`${PACKAGE_DIR}` stands for the directory of these files in arguments, variables and `cwd`; a command with a
`/` in it that does not begin with one is a program among them.
"""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from toolgate.model.servers import ServerRecord, StdioLaunch
from toolgate.model.tools import Era
from toolgate.packages.unpacked import UnpackedPackages
from toolgate.upstream.link import SHARED_CAPABILITIES, Link, LinkListener, Opener, StartFailed

PACKAGE_DIR: Final = "${PACKAGE_DIR}"


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
