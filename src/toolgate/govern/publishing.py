"""Archives of packages: taken in, looked through while they are still suspect, kept, and removed."""

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

from toolgate.errors import Conflict, NotFound
from toolgate.govern.changes.commit import note
from toolgate.govern.changes.permissions import check_grant, check_removal
from toolgate.govern.control import Control
from toolgate.govern.package_install import check_describable, package_of
from toolgate.govern.packages import artifacts_of
from toolgate.model.packages import Package, PackageRef
from toolgate.model.principals import Principal
from toolgate.packages.archive import normalise
from toolgate.packages.manifest import parse_manifest, server_body
from toolgate.packages.uploads import Uploads


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """An archive that was found good, in the form in which packages are kept."""

    package: Package
    runs: bool
    """Whether its manifest says how to run it. Otherwise it describes a server that is registered."""
    manifest: bytes
    archive: Path
    size: int
    files: int
    unpacked_bytes: int


async def publish(
    control: Control, actor: Principal, sha256: str, *, parts: int, is_dry_run: bool = False
) -> Looked:
    """Keep what was uploaded as a version of its package. Raises whatever is wrong with it, all at once.

    What a version is never changes: the same again is no news, something else under its name is refused.
    """
    archive = await uploads_of(control).finish(actor.id, sha256, parts=parts)
    kept = archive.with_suffix(".normal")
    try:
        # In a thread: an archive may hold as much as the loop could spend seconds on.
        looked = await asyncio.to_thread(_look, archive, kept)
        check_grant(actor, looked.package)
        if not looked.runs:
            await _check_registered(control, looked)
        if not is_dry_run:
            await _keep(control, actor, looked)
        return looked
    finally:
        for path in (archive, kept):
            path.unlink(missing_ok=True)


async def remove_version(control: Control, actor: Principal, package_id: str, version: str) -> None:
    """Remove an archive that is not installed. Raises NotFound, or Conflict while it is needed."""
    check_removal(actor, "package", package_id)
    async with control.turn:
        for kind in ("package", "server"):
            stored = await control.store.get(kind, package_id)
            body = {} if stored is None else stored.body
            if version in (body.get("version"), (body.get("package") or {}).get("version")):
                raise Conflict(
                    f"version `{version}` of package `{package_id}` is installed",
                    hint="uninstall it, or install another version, and then remove this one",
                )
        await artifacts_of(control).remove(package_id, version)
    note(control, actor, operation="remove", kind="package", record_id=package_id)


async def purge(control: Control, actor: Principal, package_id: str) -> list[str]:
    """Remove all that was uploaded of a package; the versions that went."""
    versions = [one.version for one in await artifacts_of(control).versions(package_id)]
    for version in versions:
        await remove_version(control, actor, package_id, version)
    return versions


def uploads_of(control: Control) -> Uploads:
    """Where parts of archives are collected. Raises NotFound on a process without."""
    if control.uploads is None:
        raise NotFound("this process takes no packages", hint="set its `data_dir` or `artifacts`")
    return control.uploads


def _look(archive: Path, kept: Path) -> Looked:
    with archive.open("rb") as source, kept.open("xb") as target:
        inspected = normalise(source, target)
    with kept.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = parse_manifest(inspected.manifest)
    ref = PackageRef(version=manifest.version, sha256=sha256)
    if manifest.run:
        server_body(manifest, ref)  # what cannot run is of no use
    return Looked(
        runs=bool(manifest.run),
        package=package_of(manifest, sha256),
        manifest=inspected.manifest,
        archive=kept,
        size=kept.stat().st_size,
        files=inspected.files,
        unpacked_bytes=inspected.unpacked_bytes,
    )


async def _check_registered(control: Control, looked: Looked) -> None:
    """Raises InvalidRecord where a manifest without `run` has no server to describe."""
    server = await control.store.get("server", looked.package.package_id)
    check_describable(parse_manifest(looked.manifest), server)


async def _keep(control: Control, actor: Principal, looked: Looked) -> None:
    package = looked.package
    await artifacts_of(control).put(
        package.package_id,
        package.version,
        looked.archive,
        manifest=looked.manifest,
        sha256=package.sha256,
    )
    note(control, actor, operation="publish", kind="package", record_id=package.package_id)
