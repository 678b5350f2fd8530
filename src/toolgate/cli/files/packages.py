"""A package's directory: its manifest read, completed with what the server lists, written back; packed."""

import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from toolgate.cli.failure import CommandError, UsageError
from toolgate.model.tools import ToolDefinition
from toolgate.packages.archive import PackedArchive, pack_directory
from toolgate.packages.manifest import MANIFEST_NAME, Manifest, encode_manifest, parse_manifest, replace_tools

_DERIVED = ("tools", "toolsSummary")
"""What the server itself says."""
_SEMANTIC = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+].*)?")


class VersionBump(StrEnum):
    """Which part of a version to raise."""

    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"


class PackageDirectory:
    """A directory with a manifest in it."""

    def __init__(self, path: Path, *, bump: VersionBump | None = None) -> None:
        self.path = path
        self._content = _read(path)
        self._document = _parse(self._content, path)
        if bump is not None:
            self._document["version"] = bump_version(str(self._document.get("version", "0.0.0")), bump)
        own = {name: value for name, value in self._document.items() if name not in _DERIVED}
        self.manifest: Manifest = parse_manifest(msgspec.json.encode(own))

    @property
    def content(self) -> bytes:
        """The manifest as it was written, but for a raised version."""
        document = msgspec.json.decode(self._content, type=dict[str, Any])
        if document == self._document:
            return self._content
        return msgspec.json.format(msgspec.json.encode(self._document), indent=2) + b"\n"

    def complete(self, tools: Iterable[ToolDefinition]) -> bytes:
        """The manifest with all that the server lists. Other members stay, in their order.

        One from before version 2 is rewritten.
        """
        listed = tuple(tools)
        if self.manifest.schema_version == "v2":
            document = {name: value for name, value in self._document.items() if name not in _DERIVED}
            document["tools"] = [msgspec.Raw(tool.raw) for tool in listed]
            content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        else:
            content = encode_manifest(replace_tools(self.manifest, listed))
        parse_manifest(content)
        return content

    def write(self, content: bytes) -> None:
        """Replace the manifest, whole or not at all."""
        if content == self._content:
            return
        file = self.path / MANIFEST_NAME
        descriptor, name = tempfile.mkstemp(dir=self.path, prefix=".toolgate-")
        try:
            with os.fdopen(descriptor, "wb") as target:
                os.fchmod(target.fileno(), file.stat().st_mode & 0o777)
                target.write(content)
            Path(name).replace(file)
        except OSError as exc:
            with suppress(OSError):
                Path(name).unlink()
            raise CommandError(f"cannot write `{file}`: {exc.strerror}") from exc

    def pack(self, content: bytes, target: BinaryIO) -> PackedArchive:
        """Everything that belongs to the package, with this manifest; without `run`, the manifest alone."""
        if self.manifest.run:
            return pack_directory(self.path, content, target)
        with tempfile.TemporaryDirectory() as empty:
            return pack_directory(Path(empty), content, target)


def bump_version(version: str, bump: VersionBump) -> str:
    """The next version, without what may follow the three numbers."""
    found = _SEMANTIC.fullmatch(version)
    if found is None:
        raise UsageError(
            f"`{version}` is not of the form 1.2.3, so there is no next one",
            hint=f"write the new `version` into `{MANIFEST_NAME}` yourself",
        )
    major, minor, patch = map(int, found.groups())
    match bump:
        case VersionBump.MAJOR:
            return f"{major + 1}.0.0"
        case VersionBump.MINOR:
            return f"{major}.{minor + 1}.0"
        case VersionBump.PATCH:
            return f"{major}.{minor}.{patch + 1}"


def _read(directory: Path) -> bytes:
    try:
        return (directory / MANIFEST_NAME).read_bytes()
    except OSError as exc:
        raise UsageError(
            f"cannot read `{directory / MANIFEST_NAME}`: {exc.strerror}",
            hint="give the directory of a package; `toolgate init` makes one",
        ) from exc


def _parse(content: bytes, directory: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UsageError(f"`{directory / MANIFEST_NAME}` is not a JSON object: {exc}") from exc
