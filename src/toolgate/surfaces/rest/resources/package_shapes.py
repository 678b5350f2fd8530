"""The shapes of packages: what is uploaded, what is installed, and what installing does."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from toolgate.catalog.diff import ToolChanges
from toolgate.govern.package_install import Installation, InstallRequest, PackageSource
from toolgate.model.packages import Package, SchemaVersion, Source
from toolgate.packages.artifacts import PackageVersion
from toolgate.packages.manifest import MAX_MANIFEST_BYTES
from toolgate.packages.uploads import MAX_PARTS
from toolgate.registry.records.fields import Patterns, Sha256, Version, field_error
from toolgate.registry.records.server_bodies import StrictBody
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.resources.change_shapes import ChangeShown, PlanAnswer


class UploadSent(StrictBody):
    """The end of an upload."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """How many parts the archive was sent in."""
    dry_run: bool = False
    """Check the archive, and do not keep it."""


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


class PartAnswer(ResponseShape, frozen=True, kw_only=True):
    """A part that was taken in."""

    part: int


class PartsAnswer(ResponseShape, frozen=True, kw_only=True):
    """The parts of an upload that are there already."""

    parts: list[int]


class UploadAnswer(ResponseShape, frozen=True, kw_only=True):
    """An archive that was found good."""

    package_id: str
    version: str
    sha256: str
    """Of the archive as it is kept; for one in another format, it was packed anew."""
    size: int
    files: int
    unpacked_bytes: int
    schema_version: SchemaVersion
    source: Source
    tools: list[str]
    """Those it declares."""
    kept: bool
    """False: it was only checked."""


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
    next_cursor: str | None


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


class InstallAnswer(ResponseShape, frozen=True, kw_only=True):
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
    plan: PlanAnswer | None
    """Of a dry run: what each task would notice."""


class UninstallAnswer(ResponseShape, frozen=True, kw_only=True):
    """What uninstalling did or, of a dry run, would do."""

    package_id: str
    revision: Revision
    changes: list[ChangeShown]
    removed_versions: list[str]
    """Archives that went, too."""
    warnings: list[str]
    plan: PlanAnswer | None
    """Of a dry run: what each task would notice."""


class VersionRemoved(ResponseShape, frozen=True, kw_only=True):
    """An archive that is gone."""

    package_id: str
    version: str


def show_package(
    package_id: str, package: tuple[Package, int] | None, versions: Sequence[PackageVersion]
) -> PackageShown:
    """A package as answers hold it: the installed one with its revision, and all that was uploaded."""
    record, revision = package or (None, None)
    sha256 = None if record is None else record.sha256
    return PackageShown(
        package_id=package_id,
        installed=None if record is None else record.version,
        revision=revision,
        name=record.name if record else "",
        description=record.description if record else "",
        category=record.category if record else "",
        tags=list(record.tags) if record else [],
        schema_version=record.schema_version if record else None,
        source=record.source if record else None,
        tools=list(record.declared) if record else [],
        attached=record is not None and record.attached,
        versions=[
            VersionShown(
                version=one.version,
                sha256=one.sha256,
                size=one.size,
                at_ms=one.at_ms,
                installed=one.sha256 == sha256,
            )
            for one in versions
        ],
    )


def show_install(
    prepared: Installation,
    *,
    revision: int,
    changes: list[ChangeShown],
    warnings: Sequence[str],
    plan: PlanAnswer | None = None,
) -> InstallAnswer:
    """An installation as answers hold it."""
    bodies: Mapping[str, object] = {change.kind: change.sent for change in prepared.changes}
    server = next(change.sent for change in prepared.changes if change.kind == "server")
    assert server is not None
    return InstallAnswer(
        package_id=prepared.package.package_id,
        version=prepared.package.version,
        sha256=prepared.package.sha256,
        before=None if prepared.before is None else prepared.before.version,
        allowed_tools=server.get("allowed_tools"),
        pinned=bodies.get("pin") is not None,
        tools=_show_tools(prepared.tools),
        declared_tools=len(prepared.package.declared),
        visible_tools=len(prepared.visible),
        revision=revision,
        changes=changes,
        warnings=[*prepared.hints, *warnings],
        plan=plan,
    )


def _show_tools(changes: ToolChanges) -> ToolChangesShown:
    return ToolChangesShown(
        added=list(changes.added),
        removed=list(changes.removed),
        renamed=[RenamedShown(before=before, after=after) for before, after in changes.renamed],
        changed={name: list(lines) for name, lines in changes.changed.items()},
    )
