"""Packages: what was uploaded, what is installed, installing and uninstalling.

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
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall, parse_page
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
    """Which version to install, and what of it to offer."""

    version: Version | None = None
    """Left out: what was uploaded last."""
    allowed_tools: Patterns | None = None
    """Patterns of the tools to allow. Left out: those that the manifest declares; on an upgrade, what an
    operator has chosen stays."""
    pin: bool | None = None
    """Whether tools are offered only as the manifest defines them. Left out: yes, where it defines them in
    full and no operator took the pin off."""
    dry_run: bool = False
    """Say what would change, and change nothing."""
    manifest: Annotated[str, Field(max_length=MAX_MANIFEST_BYTES)] | None = None
    """For a dry run: the manifest, as text, of an archive that was not uploaded."""
    sha256: Sha256 | None = None
    """Of that archive."""

    @model_validator(mode="after")
    def _offered_in_whole(self) -> "InstallSent":
        given = {"manifest", "sha256"} & self.model_fields_set
        if given and (len(given) < 2 or not self.dry_run or self.version is not None):
            raise field_error("`manifest` and `sha256` go together, with `dry_run` and without `version`")
        return self

    def wanted(self, package_id: str, if_revision: int | None) -> InstallRequest:
        offered = None
        if self.manifest is not None and self.sha256 is not None:
            offered = PackageSource(manifest=self.manifest.encode(), sha256=self.sha256)
        return InstallRequest(
            package_id=package_id,
            version=self.version,
            allow=self.allowed_tools,
            pin=self.pin,
            if_revision=if_revision,
            source=offered,
        )


class VersionShown(ResponseShape, frozen=True, kw_only=True):
    """A version that was uploaded."""

    version: str
    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""
    installed: bool


class PackageShown(ResponseShape, frozen=True, kw_only=True):
    """A package: what is installed of it, and what was uploaded."""

    package_id: str
    installed: str | None
    """The version, where one is installed."""
    revision: Revision | None
    """Of the record that says so."""
    name: str
    description: str
    category: str
    tags: list[str]
    schema_version: SchemaVersion | None
    source: Source | None
    """How far its manifest describes its tools."""
    tools: list[str]
    """Those that the installed version declares."""
    attached: bool
    """Whether it only describes its server, which is registered by itself."""
    versions: list[VersionShown]
    """Newest first."""


class PackageList(ResponseShape, frozen=True, kw_only=True):
    """Packages, sorted by id."""

    revision: Revision
    """Of the registry."""
    packages: list[PackageShown]
    next_cursor: NextCursor


class RenamedShown(ResponseShape, frozen=True, kw_only=True):
    """A tool that is the same under another name."""

    before: str
    after: str


class ToolChangesShown(ResponseShape, frozen=True, kw_only=True):
    """How the declared tools differ from those of the version before."""

    added: list[str]
    removed: list[str]
    renamed: list[RenamedShown]
    changed: dict[str, list[str]]
    """Tool to the lines of a diff."""


class InstallResponse(ResponseShape, frozen=True, kw_only=True):
    """What installing did or, of a dry run, would do."""

    package_id: str
    version: str
    sha256: str
    before: str | None
    """The version that was installed."""
    allowed_tools: list[str] | None
    """What is allowed from now on; null: what was allowed before."""
    pinned: bool
    """Whether the definitions in the manifest are the approved ones from now on."""
    tools: ToolChangesShown
    declared_tools: int
    """How many tools the manifest declares."""
    visible_tools: int
    """How many of those `allowed_tools` lets callers see."""
    revision: Revision
    changes: list[ChangeShown]
    warnings: list[str]
    plan: PlanResponse | None
    """Of a dry run: what each task would notice."""


class UninstallResponse(ResponseShape, frozen=True, kw_only=True):
    """What uninstalling did or, of a dry run, would do."""

    package_id: str
    revision: Revision
    changes: list[ChangeShown]
    removed_versions: list[str]
    """Archives that went, too."""
    warnings: list[str]
    plan: PlanResponse | None
    """Of a dry run: what each task would notice."""


class VersionRemoved(ResponseShape, frozen=True, kw_only=True):
    """An archive that is gone."""

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
    """The installed one with its revision, and all that was uploaded."""
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
    renamed = [RenamedShown(before=before, after=after) for before, after in prepared.tools.renamed]
    return InstallResponse.of(
        prepared.package,
        effect,
        before=None if prepared.before is None else prepared.before.version,
        allowed_tools=server.get("allowed_tools"),
        pinned=bodies.get("pin") is not None,
        tools=ToolChangesShown.of(prepared.tools, renamed=renamed),
        declared_tools=len(prepared.package.declared),
        visible_tools=len(prepared.visible),
        warnings=[*prepared.hints, *effect.warnings],
        plan=effect if isinstance(effect, PlanResponse) else None,
    )


@get(_PACKAGES, "viewer", "List the packages", query=PAGING)
async def list_packages(control: Control, call: RestCall[None]) -> PackageList:
    """What is installed and what was uploaded, sorted by id, page by page."""
    page = parse_page(call)
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
    """One package: the version that is installed, and all that were uploaded. The ETag is its revision."""
    package_id = call.ids["package_id"]
    stored = await control.store.get("package", package_id)
    versions = await control.artifacts.versions(package_id)
    if stored is None and not versions:
        raise NotFound(f"there is no package `{package_id}`", hint="`toolgate packages` lists them")
    revision = None if stored is None else stored.revision
    return RestResponse(_show_package(package_id, stored, versions), revision=revision)


@get(f"{_ONE}/{{version}}/manifest", "viewer", "Read the manifest of a package", JSON)
async def read_manifest(control: Control, call: RestCall[None]) -> bytes:
    """The manifest of a version that was uploaded, in the form of version 2, whatever form it came in.

    Secrets that stand in it are masked.
    """
    content = await control.artifacts.manifest(call.ids["package_id"], call.ids["version"])
    return await asyncio.to_thread(lambda: packages.show_manifest(parse_manifest(content)))


_INSTALL: Final[dict[str, Any]] = {**WRITE, "statuses": (200, 201), "is_conditional": True}
_UNINSTALL_QUERY: Final = (
    Parameter("purge", "Also remove every archive of it.", "flag"),
    Parameter("dry_run", "Say what would change, and change nothing.", "flag"),
)


@post(f"{_ONE}/install", "admin", "Install a package", InstallResponse, **_INSTALL)
async def install_package(control: Control, call: RestCall[InstallSent]) -> InstallResponse | RestResponse:
    """Install a version that was uploaded, or another one in place of what is installed.

    That is the approval of exactly what its manifest declares. The records of package, server and pin change
    together or not at all. A server of this id that was registered by itself is not taken over.
    """
    sent = call.body
    wanted = sent.wanted(call.ids["package_id"], call.if_revision)
    if sent.dry_run:
        prepared, planned = await packages.plan_install(control, call.caller, wanted)
        return _show_install(prepared, await show_plan(planned.plan, planned.revision, planned.warnings))
    prepared, done = await packages.install(control, call.caller, wanted, plan_id=call.plan_id)
    return RestResponse(_show_install(prepared, await show_commit(done)), 200 if prepared.before else 201)


@delete(_ONE, "admin", "Uninstall a package", query=_UNINSTALL_QUERY, is_conditional=True, **WRITE)
async def uninstall_package(control: Control, call: RestCall[None]) -> UninstallResponse:
    """Remove a package with its server and its pin, together. Archives stay, unless `purge` is set."""
    package_id = call.ids["package_id"]
    if call.flag("dry_run"):
        planned = await packages.plan_uninstall(control, call.caller, package_id)
        plan = await show_plan(planned.plan, planned.revision, planned.warnings)
        return UninstallResponse.of(plan, package_id=package_id, removed_versions=[], plan=plan)
    done = await packages.uninstall(
        control, call.caller, package_id, if_revision=call.if_revision, plan_id=call.plan_id
    )
    removed = await packages.purge_package(control, call.caller, package_id) if call.flag("purge") else []
    shown = await show_commit(done)
    return UninstallResponse.of(shown, package_id=package_id, removed_versions=removed, plan=None)


@delete(f"{_ONE}/{{version}}", "admin", "Remove an archive", errors=(Conflict, StorageFailed))
async def delete_version(control: Control, call: RestCall[None]) -> VersionRemoved:
    """Remove the archive of a version that is not installed."""
    package_id, version = call.ids["package_id"], call.ids["version"]
    await packages.remove_version(control, call.caller, package_id, version)
    return VersionRemoved(package_id=package_id, version=version)


@get("/api/schemas/manifest.v2.json", ANYONE, "Read the schema of manifests", JSON)
async def read_schema(_control: Control, _call: RestCall[None]) -> bytes:
    """The JSON Schema of a manifest, for editors."""
    return _schema()


@cache
def _schema() -> bytes:
    return msgspec.json.encode(build_manifest_schema())
