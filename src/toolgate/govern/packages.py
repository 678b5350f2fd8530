"""Packages and modules: checks uploaded archives, and installs and removes packages.

Installing, upgrading or removing a package is one transaction of the registry. Never runs anything from an
archive, and never keeps an archive that failed a check.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
    parse_installed,
    prepare_installation,
    read_package,
)
from toolgate.model.packages import Package
from toolgate.model.principals import Principal
from toolgate.model.servers import PackageRef
from toolgate.packages.archive import ArchiveSummary, normalize_archive
from toolgate.packages.artifacts import check_module_size
from toolgate.packages.manifest import Manifest, build_server_body, encode_manifest, parse_manifest
from toolgate.redaction.records import redact_server
from toolgate.wasm.compiling import ModuleFacts, compile_module


async def plan_install(
    control: Control, actor: Principal, request: InstallRequest
) -> tuple[Installation, PlannedChange]:
    """Plan an install: its effect on records and tasks. Changes nothing."""
    installation = await _prepare(control, actor, request)
    return installation, await plan_changes(control, actor, installation.changes)


async def install(
    control: Control, actor: Principal, request: InstallRequest, *, plan_id: str | None = None
) -> tuple[Installation, CommittedChange]:
    """Install a package's server, or another version of it. Returns once the catalog shows it."""
    assert request.source is None
    installation = await _prepare(control, actor, request)
    committed = await commit_changes(control, actor, installation.changes, plan_id=plan_id)
    # The definitions that the pin approves, to compare the server's list with.
    declared = [tool for change in installation.changes for tool in (change.tools or {}).values()]
    await control.store.pinned.save({tool.digest: tool.raw for tool in declared})
    await control.catalog.refresh_package(request.package_id)
    return installation, committed


async def plan_uninstall(control: Control, actor: Principal, package_id: str) -> PlannedChange:
    return await plan_changes(control, actor, await _build_removals(control, actor, package_id, None))


async def uninstall(
    control: Control,
    actor: Principal,
    package_id: str,
    *,
    if_revision: int | None = None,
    plan_id: str | None = None,
) -> CommittedChange:
    """Remove a package's records and its catalog rows. Its uploaded versions stay."""
    removals = await _build_removals(control, actor, package_id, if_revision)
    committed = await commit_changes(control, actor, removals, plan_id=plan_id)
    await control.catalog.refresh_package(package_id)
    return committed


def show_manifest(manifest: Manifest) -> bytes:
    """A manifest in Toolgate's form and without its secrets, for all who may read packages."""
    return encode_manifest(replace(manifest, run=redact_server(manifest.run)))


async def _prepare(control: Control, actor: Principal, request: InstallRequest) -> Installation:
    check_removal(actor, "package", request.package_id)
    source = request.source or await _read_upload(control, request.package_id, request.version)
    stored = await _read_records(control, request.package_id)
    before, manifest = parse_installed(stored["package"]), None
    if before is not None:
        with suppress(NotFound):  # its archive may be deleted
            manifest = await control.artifacts.manifest(before.package_id, before.version)
    return await asyncio.to_thread(
        prepare_installation, request, source, stored, before=before, manifest_before=manifest
    )


async def _read_upload(control: Control, package_id: str, version: str | None) -> PackageSource:
    if version is None:
        versions = await control.artifacts.versions(package_id)
        if not versions:
            raise NotFound(
                f"package `{package_id}` has no uploaded version",
                hint="run `toolgate packages list` for all packages, or upload one: "
                "`toolgate packages publish DIR`",
            )
        version = versions[0].version
    stored = await control.artifacts.get(package_id, version)
    return PackageSource(await control.artifacts.manifest(package_id, version), stored.sha256)


async def _read_records(control: Control, package_id: str) -> PackageRecords:
    return {kind: await control.store.get(kind, package_id) for kind in PACKAGE_KINDS}


async def _build_removals(
    control: Control, actor: Principal, package_id: str, if_revision: int | None
) -> list[PendingChange]:
    check_removal(actor, "package", package_id)
    stored = await _read_records(control, package_id)
    package, server = stored["package"], stored["server"]
    if package is None:
        raise NotFound(
            f"no package `{package_id}` is installed", hint="run `toolgate packages list` for all packages"
        )
    if server is not None and server.body.get("package") is None:
        stored = {"package": package}  # an operator registered the server, so the server and its pin stay
    seen = {kind: one.revision for kind, one in stored.items() if one is not None}
    if if_revision is not None:
        seen["package"] = if_revision
    return [
        PendingChange(kind=kind, id=package_id, sent=None, if_revision=revision)
        for kind, revision in seen.items()
    ]


# Archives


class InspectedArchive(NamedTuple):
    """An archive that passed every check, in the normal form for storage."""

    package: Package
    manifest: Manifest
    summary: ArchiveSummary
    size: int


async def publish_package(
    control: Control, actor: Principal, sha256: str, *, parts: int, is_dry_run: bool = False
) -> InspectedArchive:
    """Store an upload as a version of its package. Raises all faults of the archive at once.

    A version never changes: publishing the same archive again succeeds, another archive is rejected.
    """
    archive = await control.uploads.finish(actor.id, sha256, parts=parts)
    normal = archive.with_suffix(".normal")
    try:
        # In a thread: checking a large archive takes seconds.
        inspected = await asyncio.to_thread(_inspect_archive, archive, normal)
        package, manifest = inspected.package, inspected.summary.manifest
        package_id = package.package_id
        check_grant(actor, package)
        if not inspected.manifest.run:
            check_describable(inspected.manifest, await control.store.get("server", package_id))
        if not is_dry_run:
            version, sha256 = package.version, package.sha256
            await control.artifacts.put(package_id, version, normal, manifest=manifest, sha256=sha256)
            audit_change(control, actor, operation="publish", kind="package", record_id=package_id)
        return inspected
    finally:
        for path in (archive, normal):
            path.unlink(missing_ok=True)


def _inspect_archive(archive: Path, normal: Path) -> InspectedArchive:
    with archive.open("rb") as source, normal.open("xb") as target:
        summary = normalize_archive(source, target)
    with normal.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = parse_manifest(summary.manifest)
    if manifest.run:  # raises if the server could not run
        build_server_body(manifest, PackageRef(version=manifest.version, sha256=sha256))
    return InspectedArchive(read_package(manifest, sha256), manifest, summary, normal.stat().st_size)


async def remove_version(control: Control, actor: Principal, package_id: str, version: str) -> None:
    """Remove an archive that is not installed. Raises NotFound, and Conflict while it is installed."""
    check_removal(actor, "package", package_id)
    async with control.write_lock:
        for stored in (await _read_records(control, package_id)).values():
            body = {} if stored is None else stored.body
            if version in (body.get("version"), (body.get("package") or {}).get("version")):
                raise Conflict(
                    f"version `{version}` of package `{package_id}` is installed",
                    hint="uninstall the package or install another version, then remove this one",
                )
        await control.artifacts.remove(package_id, version)
    audit_change(control, actor, operation="remove", kind="package", record_id=package_id)


# Modules


async def finish_module(
    control: Control, actor: Principal, sha256: str, *, parts: int
) -> tuple[ModuleFacts, bool]:
    """Store a module from its uploaded parts. Returns whether it is new. Raises InvalidModule."""
    path = await control.uploads.finish(actor.id, sha256, parts=parts)
    try:
        check_module_size((await asyncio.to_thread(path.stat)).st_size)
        facts = await compile_module(path)
        is_new = await control.modules.put(path, sha256=sha256)
    finally:
        path.unlink(missing_ok=True)
    if is_new:
        audit_change(control, actor, operation="upload", kind="module", record_id=sha256)
    return facts, is_new


async def remove_module(control: Control, actor: Principal, sha256: str) -> None:
    """Remove a module that no task runs. Raises NotFound, and Conflict while a task runs it."""
    check_unbounded(actor, "any caller may use a module")
    async with control.write_lock:
        if users := (await find_module_users(control)).get(sha256):
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise Conflict(
                f"task `{users[0]}`{more} runs module `{sha256}`",
                hint="set another `workload.module` in these tasks, or delete them",
                data={"tasks": users},
            )
        await control.modules.remove(sha256)
    audit_change(control, actor, operation="remove", kind="module", record_id=sha256)


async def find_module_users(control: Control) -> Mapping[str, list[str]]:
    """Ids of the tasks that run a module, by its hash."""
    users: dict[str, list[str]] = defaultdict(list)
    for task in (await control.store.list("task")).records:
        if (module := read_module(task.body)) is not None:
            users[module].append(task.id)
    return users
