"""Packages: installed, upgraded and removed, each as one change of the registry.

Archives of packages: taken in, looked through while they are still suspect, kept, and removed.

Modules of workloads: taken in, checked while they are still suspect, kept, and removed.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolgate.errors import Conflict, NotFound
from toolgate.govern.changes.commit import (
    CommittedChange,
    PlannedChange,
    audit_change,
    commit_changes,
    plan_changes,
)
from toolgate.govern.changes.permissions import check_grant, check_removal, check_unbounded
from toolgate.govern.changes.records import PendingChange, read_module
from toolgate.govern.control import Control
from toolgate.govern.package_install import (
    PACKAGE_KINDS,
    Installation,
    InstallRequest,
    PackageRecords,
    PackageSource,
    check_describable,
    installed_package,
    package_of,
    prepare_installation,
)
from toolgate.model.packages import Package, PackageRef
from toolgate.model.principals import Principal
from toolgate.packages.archive import normalize_archive
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.manifest import Manifest, build_server_body, encode_manifest, parse_manifest
from toolgate.packages.modules import StoredModule, check_module_size
from toolgate.redaction.records import redact_server
from toolgate.wasm.compiling import ModuleFacts, check_module


async def plan_install(
    control: Control, actor: Principal, wanted: InstallRequest
) -> tuple[Installation, PlannedChange]:
    """What installing would do, to records and to tasks. Changes nothing."""
    check_removal(actor, "package", wanted.package_id)
    prepared = await _prepare(control, wanted)
    return prepared, await plan_changes(control, actor, prepared.drafts)


async def install(
    control: Control, actor: Principal, wanted: InstallRequest, *, plan_id: str | None = None
) -> tuple[Installation, CommittedChange]:
    """Make a package's server part of the registry, or another version of it. The catalog knows it then."""
    assert wanted.offered is None
    check_removal(actor, "package", wanted.package_id)
    prepared = await _prepare(control, wanted)
    committed = await commit_changes(control, actor, prepared.drafts, plan_id=plan_id)
    # What the pin approves of: to be compared with what the server will list.
    declared = [tool for draft in prepared.drafts for tool in (draft.tools or {}).values()]
    await control.store.pinned.save({tool.digest: tool.raw for tool in declared})
    await _refresh_catalog(control, wanted.package_id)
    return prepared, committed


async def plan_uninstall(control: Control, actor: Principal, package_id: str) -> PlannedChange:
    """What uninstalling would do. Changes nothing."""
    check_removal(actor, "package", package_id)
    return await plan_changes(control, actor, await _removals(control, package_id, None))


async def uninstall(
    control: Control,
    actor: Principal,
    package_id: str,
    *,
    if_revision: int | None = None,
    plan_id: str | None = None,
) -> CommittedChange:
    """Remove a package's records and its rows in the catalog. What was uploaded of it stays."""
    check_removal(actor, "package", package_id)
    drafts = await _removals(control, package_id, if_revision)
    committed = await commit_changes(control, actor, drafts, plan_id=plan_id)
    await _refresh_catalog(control, package_id)
    return committed


def show_manifest(manifest: Manifest) -> bytes:
    """A manifest as anyone who may read packages sees it: in our form, its secrets masked."""
    return encode_manifest(replace(manifest, run=redact_server(manifest.run)))


async def _prepare(control: Control, wanted: InstallRequest) -> Installation:
    offered = wanted.offered or await _read_upload(control.artifacts, wanted)
    stored = await _records(control, wanted.package_id)
    before = await _manifest_of(control, installed_package(stored["package"]))
    return await asyncio.to_thread(
        prepare_installation, wanted, offered, stored=stored, manifest_before=before
    )


async def _read_upload(artifacts: ArtifactStore, wanted: InstallRequest) -> PackageSource:
    """What was uploaded. Raises NotFound."""
    version = wanted.version or await _newest(artifacts, wanted.package_id)
    stored = await artifacts.get(wanted.package_id, version)
    manifest = await artifacts.manifest(wanted.package_id, version)
    return PackageSource(manifest=manifest, sha256=stored.sha256)


async def _newest(artifacts: ArtifactStore, package_id: str) -> str:
    versions = await artifacts.versions(package_id)
    if not versions:
        raise NotFound(
            f"no version of package `{package_id}` was uploaded",
            hint="`toolgate packages` lists what there is; `toolgate publish DIR` uploads one",
        )
    return versions[0].version


async def _records(control: Control, package_id: str) -> PackageRecords:
    return {kind: await control.store.get(kind, package_id) for kind in PACKAGE_KINDS}


async def _manifest_of(control: Control, package: Package | None) -> bytes | None:
    """The manifest of what is installed; None where nothing is, or its archive is gone."""
    if package is None:
        return None
    try:
        return await control.artifacts.manifest(package.package_id, package.version)
    except NotFound:
        return None


async def _removals(control: Control, package_id: str, if_revision: int | None) -> list[PendingChange]:
    stored = await _records(control, package_id)
    package, server = stored["package"], stored["server"]
    if package is None:
        raise NotFound(
            f"no package `{package_id}` is installed", hint="`toolgate packages` lists those that are"
        )
    if server is not None and server.body.get("package") is None:
        stored = {"package": package}  # the server is somebody's own by now, and so is its pin
    seen = {kind: one.revision for kind, one in stored.items() if one is not None}
    if if_revision is not None:
        seen["package"] = if_revision
    return [
        PendingChange(kind=kind, id=package_id, sent=None, if_revision=revision)
        for kind, revision in seen.items()
    ]


async def _refresh_catalog(control: Control, package_id: str) -> None:
    await control.catalog.refresh_package(package_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedArchive:
    """An archive that was found good, in the form in which packages are kept."""

    package: Package
    runs: bool
    """Whether its manifest says how to run it. Otherwise it describes a server that is registered."""
    manifest: bytes
    archive: Path
    size: int
    files: int
    unpacked_bytes: int


async def publish_package(
    control: Control, actor: Principal, sha256: str, *, parts: int, is_dry_run: bool = False
) -> InspectedArchive:
    """Keep what was uploaded as a version of its package. Raises whatever is wrong with it, all at once.

    What a version is never changes: the same again is no news, something else under its name is refused.
    """
    archive = await control.uploads.finish(actor.id, sha256, parts=parts)
    kept = archive.with_suffix(".normal")
    try:
        # In a thread: an archive may hold as much as the loop could spend seconds on.
        looked = await asyncio.to_thread(_inspect_archive, archive, kept)
        check_grant(actor, looked.package)
        if not looked.runs:
            await _check_registered(control, looked)
        if not is_dry_run:
            await _store_version(control, actor, looked)
        return looked
    finally:
        for path in (archive, kept):
            path.unlink(missing_ok=True)


async def remove_version(control: Control, actor: Principal, package_id: str, version: str) -> None:
    """Remove an archive that is not installed. Raises NotFound, or Conflict while it is needed."""
    check_removal(actor, "package", package_id)
    async with control.write_lock:
        for kind in ("package", "server"):
            stored = await control.store.get(kind, package_id)
            body = {} if stored is None else stored.body
            if version in (body.get("version"), (body.get("package") or {}).get("version")):
                raise Conflict(
                    f"version `{version}` of package `{package_id}` is installed",
                    hint="uninstall it, or install another version, and then remove this one",
                )
        await control.artifacts.remove(package_id, version)
    audit_change(control, actor, operation="remove", kind="package", record_id=package_id)


async def purge_package(control: Control, actor: Principal, package_id: str) -> list[str]:
    """Remove all that was uploaded of a package; the versions that went."""
    versions = [one.version for one in await control.artifacts.versions(package_id)]
    for version in versions:
        await remove_version(control, actor, package_id, version)
    return versions


def _inspect_archive(archive: Path, kept: Path) -> InspectedArchive:
    with archive.open("rb") as source, kept.open("xb") as target:
        inspected = normalize_archive(source, target)
    with kept.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = parse_manifest(inspected.manifest)
    ref = PackageRef(version=manifest.version, sha256=sha256)
    if manifest.run:
        build_server_body(manifest, ref)  # what cannot run is of no use
    return InspectedArchive(
        runs=bool(manifest.run),
        package=package_of(manifest, sha256),
        manifest=inspected.manifest,
        archive=kept,
        size=kept.stat().st_size,
        files=inspected.files,
        unpacked_bytes=inspected.unpacked_bytes,
    )


async def _check_registered(control: Control, looked: InspectedArchive) -> None:
    """Raises InvalidRecord where a manifest without `run` has no server to describe."""
    server = await control.store.get("server", looked.package.package_id)
    check_describable(parse_manifest(looked.manifest), server)


async def _store_version(control: Control, actor: Principal, looked: InspectedArchive) -> None:
    package = looked.package
    await control.artifacts.put(
        package.package_id,
        package.version,
        looked.archive,
        manifest=looked.manifest,
        sha256=package.sha256,
    )
    audit_change(control, actor, operation="publish", kind="package", record_id=package.package_id)


ModuleUsers = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedModule:
    """A module that was found good, and is kept."""

    sha256: str
    facts: ModuleFacts
    is_new: bool
    """False: it was there before."""


async def upload_module(control: Control, actor: Principal, content: bytes) -> UploadedModule:
    """Keep a module that came in one piece. Raises whatever is wrong with it."""
    sha256 = hashlib.sha256(content).hexdigest()
    await control.uploads.put_part(actor.id, sha256, 1, content)
    return await finish_module(control, actor, sha256, parts=1)


async def finish_module(control: Control, actor: Principal, sha256: str, *, parts: int) -> UploadedModule:
    """Keep a module whose parts were uploaded. Raises whatever is wrong with it."""
    path = await control.uploads.finish(actor.id, sha256, parts=parts)
    try:
        return await _store_module(control, actor, path, sha256)
    finally:
        path.unlink(missing_ok=True)


async def _store_module(control: Control, actor: Principal, path: Path, sha256: str) -> UploadedModule:
    check_module_size((await asyncio.to_thread(path.stat)).st_size)
    facts = await check_module(path)
    is_new = await control.modules.put(path, sha256=sha256)
    if is_new:
        audit_change(control, actor, operation="upload", kind="module", record_id=sha256)
    return UploadedModule(sha256=sha256, facts=facts, is_new=is_new)


async def list_modules(control: Control) -> tuple[list[StoredModule], ModuleUsers]:
    """All that are kept, the newest first, and who uses which."""
    return await control.modules.list(), await _find_all_users(control)


async def find_module(control: Control, sha256: str) -> tuple[StoredModule, list[str]]:
    """One of them, and the tasks that run it. Raises NotFound."""
    module = await control.modules.get(sha256)
    return module, await _find_users(control, sha256)


async def remove_module(control: Control, actor: Principal, sha256: str) -> None:
    """Remove one that no task runs. Raises NotFound, or Conflict while one does."""
    check_unbounded(actor, "a module may be any caller's")
    async with control.write_lock:
        if users := await _find_users(control, sha256):
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise Conflict(
                f"module `{sha256}` is run by task `{users[0]}`{more}",
                hint="give these tasks another module, or remove them",
                data={"tasks": users},
            )
        await control.modules.remove(sha256)
    audit_change(control, actor, operation="remove", kind="module", record_id=sha256)


async def _find_users(control: Control, sha256: str) -> list[str]:
    return (await _find_all_users(control)).get(sha256, [])


async def _find_all_users(control: Control) -> ModuleUsers:
    users: dict[str, list[str]] = defaultdict(list)
    for task in (await control.store.list("task")).records:
        if (module := read_module(task.body)) is not None:
            users[module].append(task.id)
    return users
