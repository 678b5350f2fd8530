"""Packages: uploaded and installed versions, installing and uninstalling.

Installing a version approves exactly what its manifest declares. The records of package, server and pin
change together.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec
from pydantic import Field, model_validator

from toolgate.catalog.definitions import ToolChanges
from toolgate.errors import Conflict, NotFound, StorageFailed
from toolgate.govern import packages
from toolgate.govern.control import Control
from toolgate.govern.package_install import Installation, InstallRequest, PackageSource, parse_installed
from toolgate.model.packages import SchemaVersion, Source
from toolgate.model.revisions import StoredRecord
from toolgate.packages.artifacts import PackageVersion
from toolgate.packages.manifest import MAX_MANIFEST_BYTES, build_manifest_schema, parse_manifest
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.fields import Patterns, Sha256, Version, field_error
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import JSON, NextCursor, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import ANYONE, delete, get, post
from toolgate.surfaces.rest.resources.changes import (
    WRITE,
    ApplyResponse,
    ChangeShown,
    PlanResponse,
    show_commit,
    show_plan,
)

_PACKAGES: Final = "/api/packages"
_ONE: Final = f"{_PACKAGES}/{{package_id}}"


class InstallSent(StrictBody):
    """The version to install, and the tools to offer."""

    version: Version | None = None
    """Default: the version uploaded last."""
    allowed_tools: Patterns | None = None
    """Patterns of the tools to allow. Default: the tools that the manifest declares. On an upgrade, changes
    by an operator stay."""
    pin: bool | None = None
    """Whether to offer only the definitions in the manifest. Default: yes, if the manifest has full
    definitions and no operator removed the pin."""
    dry_run: bool = False
    """Report the changes without making them."""
    manifest: Annotated[str, Field(max_length=MAX_MANIFEST_BYTES)] | None = None
    """For a dry run without an upload: the manifest, as text."""
    sha256: Sha256 | None = None
    """For a dry run without an upload: the SHA-256 of the archive."""

    @model_validator(mode="after")
    def _offered_in_whole(self) -> "InstallSent":
        given = {"manifest", "sha256"} & self.model_fields_set
        if given and (len(given) < 2 or not self.dry_run or self.version is not None):
            raise field_error("`manifest` and `sha256` go together, with `dry_run` and without `version`")
        return self


class VersionShown(ResponseShape, frozen=True, kw_only=True):
    """An uploaded version."""

    version: str
    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""
    installed: bool


class PackageShown(ResponseShape, frozen=True, kw_only=True):
    """A package with its installed version and its uploaded versions."""

    package_id: str
    installed: str | None
    """The installed version, if any."""
    revision: Revision | None
    """The revision of the package record."""
    name: str
    description: str
    category: str
    tags: list[str]
    schema_version: SchemaVersion | None
    source: Source | None
    """How completely its manifest describes its tools."""
    tools: list[str]
    """The tools that the installed version declares."""
    attached: bool
    """Whether it only describes a server that is registered separately."""
    versions: list[VersionShown]
    """The uploaded versions, the newest first."""


class PackageList(ResponseShape, frozen=True, kw_only=True):
    """Packages, sorted by id."""

    revision: Revision
    """The registry revision."""
    packages: list[PackageShown]
    next_cursor: NextCursor


class InstallResponse(ResponseShape, frozen=True, kw_only=True):
    """The effect of an installation or a dry run."""

    package_id: str
    version: str
    sha256: str
    before: str | None
    """The version that was installed before."""
    allowed_tools: list[str] | None
    """The patterns allowed from now on. Null: unchanged."""
    pinned: bool
    """Whether the definitions in the manifest are the approved ones from now on."""
    tools: ToolChanges
    declared_tools: int
    """The number of tools that the manifest declares."""
    visible_tools: int
    """The number of these tools that `allowed_tools` lets callers see."""
    revision: Revision
    changes: list[ChangeShown]
    warnings: list[str]
    plan: PlanResponse | None
    """For a dry run: the effect on each task."""


class UninstallResponse(ResponseShape, frozen=True, kw_only=True):
    """The effect of uninstalling, or of a dry run."""

    package_id: str
    revision: Revision
    changes: list[ChangeShown]
    removed_versions: list[str]
    """The deleted archives."""
    warnings: list[str]
    plan: PlanResponse | None
    """For a dry run: the effect on each task."""


class VersionRemoved(ResponseShape, frozen=True, kw_only=True):
    """A deleted archive."""

    package_id: str
    version: str


_NOT_INSTALLED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("installed", "revision", "schema_version", "source")),
    **dict.fromkeys(("name", "description", "category"), ""),
    **dict.fromkeys(("tags", "tools"), ()),
    "attached": False,
}


def _show_package(
    package_id: str, stored: StoredRecord | None, versions: Sequence[PackageVersion]
) -> PackageShown:
    """The installed version with its revision, and all uploaded versions."""
    package = parse_installed(stored)
    sha256 = None if package is None else package.sha256
    shown = [VersionShown.of(one, installed=one.sha256 == sha256) for one in versions]
    if package is None or stored is None:
        return PackageShown.of(package_id=package_id, versions=shown, **_NOT_INSTALLED)
    return PackageShown.of(package, stored, installed=package.version, tools=package.declared, versions=shown)


def _show_install(prepared: Installation, effect: ApplyResponse | PlanResponse) -> InstallResponse:
    bodies = {change.kind: change.sent for change in prepared.changes}
    server = bodies["server"]
    assert server is not None
    return InstallResponse.of(
        prepared.package,
        effect,
        before=None if prepared.before is None else prepared.before.version,
        allowed_tools=server.get("allowed_tools"),
        pinned=bodies.get("pin") is not None,
        tools=prepared.tools,
        declared_tools=len(prepared.package.declared),
        visible_tools=len(prepared.visible),
        warnings=[*prepared.hints, *effect.warnings],
        plan=effect if isinstance(effect, PlanResponse) else None,
    )


@get(_PACKAGES, "viewer", "List the packages", query=PAGING)
async def list_packages(control: Control, call: RestCall[None]) -> PackageList:
    """Installed and uploaded packages, sorted by id."""
    page = call.page()
    listing = await control.store.list("package")
    installed = {one.id: one for one in listing.records}
    uploaded = defaultdict(list)
    for version in await control.artifacts.versions():
        uploaded[version.package_id].append(version)
    ids, next_cursor = page.cut(sorted(installed.keys() | uploaded.keys()), str)
    shown = [_show_package(one, installed.get(one), uploaded[one]) for one in ids]
    return PackageList(revision=listing.revision, packages=shown, next_cursor=next_cursor)


@get(_ONE, "viewer", "Read a package", PackageShown)
async def read_package(control: Control, call: RestCall[None]) -> RestResponse:
    """One package: the installed version and all uploaded versions. The ETag is its revision."""
    package_id = call.ids["package_id"]
    stored = await control.store.get("package", package_id)
    versions = await control.artifacts.versions(package_id)
    if stored is None and not versions:
        raise NotFound(f"no package `{package_id}`", hint="list packages with `toolgate packages list`")
    revision = None if stored is None else stored.revision
    return RestResponse(_show_package(package_id, stored, versions), revision=revision)


@get(f"{_ONE}/{{version}}/manifest", "viewer", "Read the manifest of a package", JSON)
async def read_manifest(control: Control, call: RestCall[None]) -> bytes:
    """The manifest of an uploaded version, in the format of version 2, whatever its original format.

    Secrets in it are masked.
    """
    content = await control.artifacts.manifest(call.ids["package_id"], call.ids["version"])
    return await asyncio.to_thread(lambda: packages.show_manifest(parse_manifest(content)))


_INSTALL: Final[dict[str, Any]] = {**WRITE, "statuses": (200, 201), "is_conditional": True}
_UNINSTALL_QUERY: Final = (
    Parameter("purge", "Also delete all archives of the package.", "flag"),
    Parameter("dry_run", "Report the changes without making them.", "flag"),
)


@post(f"{_ONE}/install", "admin", "Install a package", InstallResponse, **_INSTALL)
async def install_package(control: Control, call: RestCall[InstallSent]) -> InstallResponse | RestResponse:
    """Install an uploaded version, or replace the installed one.

    This approves exactly what the manifest declares. The records of package, server and pin change together
    or not at all. If a server with this id is registered separately, the installation fails.
    """
    sent, source = call.body, None
    if sent.manifest is not None and sent.sha256 is not None:
        source = PackageSource(manifest=sent.manifest.encode(), sha256=sent.sha256)
    request = InstallRequest(
        package_id=call.ids["package_id"],
        version=sent.version,
        allow=sent.allowed_tools,
        pin=sent.pin,
        if_revision=call.if_revision,
        source=source,
    )
    if sent.dry_run:
        prepared, planned = await packages.plan_install(control, call.caller, request)
        return _show_install(prepared, await show_plan(planned))
    prepared, done = await packages.install(control, call.caller, request, plan_id=call.plan_id)
    return RestResponse(_show_install(prepared, await show_commit(done)), 200 if prepared.before else 201)


@delete(_ONE, "admin", "Uninstall a package", query=_UNINSTALL_QUERY, is_conditional=True, **WRITE)
async def uninstall_package(control: Control, call: RestCall[None]) -> UninstallResponse:
    """Delete a package with its server and its pin, in one transaction. Archives stay, unless `purge` is
    set."""
    package_id = call.ids["package_id"]
    if call.flag("dry_run"):
        plan = await show_plan(await packages.plan_uninstall(control, call.caller, package_id))
        return UninstallResponse.of(plan, package_id=package_id, removed_versions=[], plan=plan)
    done = await packages.uninstall(
        control, call.caller, package_id, if_revision=call.if_revision, plan_id=call.plan_id
    )
    stored = await control.artifacts.versions(package_id) if call.flag("purge") else []
    removed = [one.version for one in stored]
    for version in removed:
        await packages.remove_version(control, call.caller, package_id, version)
    shown = await show_commit(done)
    return UninstallResponse.of(shown, package_id=package_id, removed_versions=removed, plan=None)


@delete(f"{_ONE}/{{version}}", "admin", "Delete an archive", errors=(Conflict, StorageFailed))
async def delete_version(control: Control, call: RestCall[None]) -> VersionRemoved:
    """Delete the archive of a version that is not installed."""
    package_id, version = call.ids["package_id"], call.ids["version"]
    await packages.remove_version(control, call.caller, package_id, version)
    return VersionRemoved(package_id=package_id, version=version)


@get("/api/schemas/manifest.v2.json", ANYONE, "Read the manifest schema", JSON)
async def read_schema(_control: Control, _call: RestCall[None]) -> bytes:
    """The JSON Schema of manifests, for editors."""
    return _schema()


@cache
def _schema() -> bytes:
    return msgspec.json.encode(build_manifest_schema())
