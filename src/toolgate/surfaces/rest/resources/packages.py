"""Packages: what was uploaded, what is installed, installing and uninstalling."""

import asyncio
from collections import defaultdict
from functools import cache
from typing import Any, Final

import msgspec

from toolgate.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from toolgate.govern.control import Control
from toolgate.govern.package_install import parse_installed
from toolgate.govern.packages import (
    install,
    plan_install,
    plan_uninstall,
    purge_package,
    remove_version,
    show_manifest,
    uninstall,
)
from toolgate.model.packages import Package
from toolgate.model.revisions import StoredRecord
from toolgate.packages.manifest import build_manifest_schema, parse_manifest
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, Parameter, RestCall, validate_as
from toolgate.surfaces.rest.framework.response import JSON, RestResponse
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint, delete, get, post
from toolgate.surfaces.rest.resources.change_shapes import show_edits, show_plan
from toolgate.surfaces.rest.resources.collection import WRITE_ERRORS
from toolgate.surfaces.rest.resources.package_shapes import (
    InstallAnswer,
    InstallSent,
    PackageList,
    PackageShown,
    UninstallAnswer,
    VersionRemoved,
    show_install,
    show_package,
)

_PACKAGES: Final = "/api/packages"
_ONE: Final = f"{_PACKAGES}/{{package_id}}"


@get(_PACKAGES, "viewer", "List the packages", PackageList, query=PAGING)
async def list_packages(control: Control, call: RestCall[None]) -> RestResponse:
    """What is installed and what was uploaded, sorted by id, page by page."""
    page = parse_page(call)
    listing = await control.store.list("package")
    installed = {one.id: one for one in listing.records}
    uploaded = defaultdict(list)
    for version in await control.artifacts.versions():
        uploaded[version.package_id].append(version)
    ids, next_cursor = page.cut(sorted(installed.keys() | uploaded.keys()), str)
    shown = [show_package(one, _parse_installed(installed.get(one)), uploaded[one]) for one in ids]
    return RestResponse(PackageList(revision=listing.revision, packages=shown, next_cursor=next_cursor))


@get(_ONE, "viewer", "Read a package", PackageShown, errors=(NotFound,))
async def read_package(control: Control, call: RestCall[None]) -> RestResponse:
    """One package: the version that is installed, and all that were uploaded. The ETag is its revision."""
    package_id = call.ids["package_id"]
    stored = await control.store.get("package", package_id)
    versions = await control.artifacts.versions(package_id)
    if stored is None and not versions:
        raise NotFound(f"there is no package `{package_id}`", hint="`toolgate packages` lists them")
    revision = None if stored is None else stored.revision
    return RestResponse(show_package(package_id, _parse_installed(stored), versions), revision=revision)


@get(f"{_ONE}/{{version}}/manifest", "viewer", "Read the manifest of a package", JSON, errors=(NotFound,))
async def read_manifest(control: Control, call: RestCall[None]) -> RestResponse:
    """The manifest of a version that was uploaded, in the form of version 2, whatever form it came in.

    Secrets that stand in it are masked.
    """
    content = await control.artifacts.manifest(call.ids["package_id"], call.ids["version"])
    return RestResponse(await asyncio.to_thread(lambda: show_manifest(parse_manifest(content))))


@post(
    f"{_ONE}/install",
    "admin",
    "Install a package",
    InstallAnswer,
    body=validate_as(InstallSent),
    headers=(PLAN_HEADER,),
    statuses=(200, 201),
    errors=(NotFound, InvalidRequest, *WRITE_ERRORS),
    is_conditional=True,
)
async def install_package(control: Control, call: RestCall[InstallSent]) -> RestResponse:
    """Install a version that was uploaded, or another one in place of what is installed.

    That is the approval of exactly what its manifest declares. The records of package, server and pin change
    together or not at all. A server of this id that was registered by itself is not taken over.
    """
    sent = call.body
    wanted = sent.wanted(call.ids["package_id"], call.if_revision)
    if sent.dry_run:
        prepared, planned = await plan_install(control, call.caller, wanted)
        plan = await show_plan(planned.plan, revision=planned.revision, warnings=planned.warnings)
        return RestResponse(
            show_install(
                prepared,
                revision=planned.revision,
                changes=plan.changes,
                warnings=planned.warnings,
                plan=plan,
            )
        )
    prepared, done = await install(control, call.caller, wanted, plan_id=call.plan_id)
    changes = await asyncio.to_thread(show_edits, done.edits)
    answer = show_install(prepared, revision=done.revision, changes=changes, warnings=done.warnings)
    return RestResponse(answer, 201 if prepared.before is None else 200)


@delete(
    _ONE,
    "admin",
    "Uninstall a package",
    UninstallAnswer,
    query=(
        Parameter("purge", "Also remove every archive of it.", form="flag"),
        Parameter("dry_run", "Say what would change, and change nothing.", form="flag"),
    ),
    headers=(PLAN_HEADER,),
    errors=(NotFound, *WRITE_ERRORS),
    is_conditional=True,
)
async def uninstall_package(control: Control, call: RestCall[None]) -> RestResponse:
    """Remove a package with its server and its pin, together. Archives stay, unless `purge` is set."""
    package_id = call.ids["package_id"]
    if call.flag("dry_run"):
        planned = await plan_uninstall(control, call.caller, package_id)
        plan = await show_plan(planned.plan, revision=planned.revision, warnings=planned.warnings)
        return RestResponse(
            UninstallAnswer(
                package_id=package_id,
                revision=planned.revision,
                changes=plan.changes,
                removed_versions=[],
                warnings=planned.warnings,
                plan=plan,
            )
        )
    done = await uninstall(
        control, call.caller, package_id, if_revision=call.if_revision, plan_id=call.plan_id
    )
    removed = await purge_package(control, call.caller, package_id) if call.flag("purge") else []
    return RestResponse(
        UninstallAnswer(
            package_id=package_id,
            revision=done.revision,
            changes=await asyncio.to_thread(show_edits, done.edits),
            removed_versions=removed,
            warnings=done.warnings,
            plan=None,
        )
    )


@delete(
    f"{_ONE}/{{version}}",
    "admin",
    "Remove an archive",
    VersionRemoved,
    errors=(NotFound, Conflict, StorageFailed),
)
async def delete_version(control: Control, call: RestCall[None]) -> RestResponse:
    """Remove the archive of a version that is not installed."""
    package_id, version = call.ids["package_id"], call.ids["version"]
    await remove_version(control, call.caller, package_id, version)
    return RestResponse(VersionRemoved(package_id=package_id, version=version))


@get("/api/schemas/manifest.v2.json", ANYONE, "Read the schema of manifests", JSON)
async def read_schema(_control: Control, _call: RestCall[None]) -> RestResponse:
    """The JSON Schema of a manifest, for editors."""
    return RestResponse(_schema())


@cache
def _schema() -> bytes:
    return msgspec.json.encode(build_manifest_schema())


def _parse_installed(stored: StoredRecord | None) -> tuple[Package, int] | None:
    package = parse_installed(stored)
    return None if package is None or stored is None else (package, stored.revision)


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    list_packages,
    read_package,
    uninstall_package,
    install_package,
    read_manifest,
    delete_version,
    read_schema,
)
