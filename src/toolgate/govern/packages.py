"""Packages: installed, upgraded and removed, each as one change of the registry.

Installing approves exactly what the manifest declares. What an operator has set since stays: whatever is not
about running the package is the operator's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toolgate.catalog.changes import ToolChanges, diff_definitions
from toolgate.catalog.definitions import check_list
from toolgate.errors import Conflict, InvalidRequest, NotFound
from toolgate.govern.changes import Committed, check_drafts, commit_drafts, warn_of_edits
from toolgate.govern.control import Control
from toolgate.govern.drafts import Draft
from toolgate.govern.planning import ChangePlan, plan_edits
from toolgate.model.packages import Package, PackageRef
from toolgate.model.principals import Principal
from toolgate.model.revisions import Kind, Stored
from toolgate.model.tools import ToolDefinition
from toolgate.packages.artifacts import Artifacts
from toolgate.packages.manifest import Manifest, encode_manifest, parse_manifest, server_body
from toolgate.registry.records import encode_record, parse_record
from toolgate.registry.redaction import redact_server

KEPT: Final = (
    "tool_namespace",
    "allowed_tools",
    "approval_policy",
    "budgets",
    "enabled",
    "sharing",
    "idle_timeout_s",
    "prewarm",
)
"""The members of a server that another version of its package leaves as they are."""
RECORDS: Final[tuple[Kind, ...]] = ("package", "server", "pin")
"""What an installed package is to the registry, all under its one id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A package whose archive was not uploaded: to see what installing it would do."""

    manifest: bytes
    sha256: str
    """Of the archive that it would come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be installed, and how."""

    package_id: str
    version: str | None = None
    """None: what was uploaded last."""
    allow: Sequence[str] | None = None
    """Patterns of the tools to allow. None: what the manifest declares, or what an operator has chosen."""
    pin: bool | None = None
    """Whether the tools are offered only as declared. None: yes, unless an operator took the pin off."""
    if_revision: int | None = None
    """Only if this is the revision of the package's record."""
    offered: Offered | None = None
    """In place of what was uploaded. Such a package can be planned, not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An installation as it would be made."""

    package: Package
    before: Package | None
    """What is installed now."""
    tools: ToolChanges
    """From what is declared now to what would be."""
    drafts: tuple[Draft, ...]
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a change would do."""

    revision: int
    """Of the registry that it was held against."""
    plan: ChangePlan
    warnings: list[str]


async def plan_install(control: Control, actor: Principal, wanted: Wanted) -> tuple[Prepared, Planned]:
    """What installing would do, to records and to tasks. Changes nothing."""
    prepared = await _prepare(control, wanted)
    return prepared, await _plan(control, actor, prepared.drafts)


async def install(
    control: Control, actor: Principal, wanted: Wanted, *, plan_id: str | None = None
) -> tuple[Prepared, Committed]:
    """Make a package's server part of the registry, or another version of it. The catalog knows it then."""
    assert wanted.offered is None
    prepared = await _prepare(control, wanted)
    committed = await commit_drafts(control, actor, prepared.drafts, plan_id=plan_id)
    # What the pin approves of: to be compared with what the server will list.
    declared = [tool for draft in prepared.drafts for tool in (draft.tools or {}).values()]
    await control.store.pinned.save({tool.digest: tool.raw for tool in declared})
    await _update_catalog(control, wanted.package_id)
    return prepared, committed


async def plan_uninstall(control: Control, actor: Principal, package_id: str) -> Planned:
    """What uninstalling would do. Changes nothing."""
    return await _plan(control, actor, await _removals(control, package_id, None))


async def uninstall(
    control: Control,
    actor: Principal,
    package_id: str,
    *,
    if_revision: int | None = None,
    plan_id: str | None = None,
) -> Committed:
    """Remove a package's records and its rows in the catalog. What was uploaded of it stays."""
    drafts = await _removals(control, package_id, if_revision)
    committed = await commit_drafts(control, actor, drafts, plan_id=plan_id)
    await _update_catalog(control, package_id)
    return committed


def artifacts_of(control: Control) -> Artifacts:
    """Where archives are kept. Raises NotFound on a process without."""
    if control.artifacts is None:
        raise NotFound("this process keeps no packages", hint="set its `data_dir` or `artifacts`")
    return control.artifacts


def package_of(manifest: Manifest, sha256: str) -> Package:
    """The package that a manifest describes."""
    return Package(
        package_id=manifest.id,
        version=manifest.version,
        sha256=sha256,
        name=manifest.name,
        description=manifest.description,
        category=manifest.category,
        tags=manifest.tags,
        schema_version=manifest.schema_version,
        source=manifest.source,
        declared=tuple(tool.name for tool in manifest.tools),
    )


def show_manifest(manifest: Manifest) -> bytes:
    """A manifest as anyone who may read packages sees it: in our form, its secrets masked."""
    return encode_manifest(replace(manifest, run=redact_server(manifest.run)))


async def _prepare(control: Control, wanted: Wanted) -> Prepared:
    manifest, sha256 = await _wanted_manifest(control, wanted)
    if manifest.id != wanted.package_id:
        raise InvalidRequest(f"the manifest is of package `{manifest.id}`, not of `{wanted.package_id}`")
    stored = {kind: await control.store.get(kind, manifest.id) for kind in RECORDS}
    before = _installed(stored["package"])
    _check_ownership(stored["server"])
    package = package_of(manifest, sha256)
    draft = _Drafting(manifest=manifest, package=package, before=before, stored=stored, wanted=wanted)
    drafts = (draft.package_draft(), draft.server_draft(), *draft.pin_drafts())
    return Prepared(
        package=package,
        before=before,
        tools=diff_definitions(await _declared(control, before), _definitions(manifest)),
        drafts=drafts,
        hints=tuple(_hints(manifest, drafts[1])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drafting:
    """One installation, from the records there are to those there shall be."""

    manifest: Manifest
    package: Package
    before: Package | None
    stored: Mapping[Kind, Stored | None]
    wanted: Wanted

    def package_draft(self) -> Draft:
        condition = self.wanted.if_revision
        return Draft(
            kind="package",
            id=self.package.package_id,
            sent=encode_record(self.package),
            if_revision=self._seen("package") if condition is None else condition,
            # A condition is to be checked where nothing changes, too.
            is_declared=condition is None,
        )

    def server_draft(self) -> Draft:
        ref = PackageRef(version=self.package.version, sha256=self.package.sha256)
        allowed = self._allowed()
        rules = {} if allowed is None else {"allowed_tools": list(allowed)}
        return self._draft(
            "server", {**server_body(self.manifest, ref), **rules}, keeping=KEPT, tools=self._tools()
        )

    def pin_drafts(self) -> Iterator[Draft]:
        """The pin, where there is something to say about it."""
        if self.wanted.pin is False:
            if self.stored["pin"] is not None:
                yield self._draft("pin", None)
        elif self._is_to_be_pinned():
            digests = {tool.name: tool.digest for tool in self.manifest.tools}
            yield self._draft("pin", {"server_id": self.package.package_id, "tools": digests})

    def _is_to_be_pinned(self) -> bool:
        if self.manifest.source != "manifest":
            return False  # what was approved before stays so: nothing new is declared in full
        if self.wanted.pin or self.before is None:
            return True
        if self.before.sha256 == self.package.sha256:
            return False  # it is what it was, and so is what was approved
        return self.stored["pin"] is not None or self.before.source != "manifest"

    def _allowed(self) -> Sequence[str] | None:
        """What is allowed from now on. None: what is allowed now."""
        if self.wanted.allow is not None:
            return self.wanted.allow
        server = self.stored["server"]
        if server is None or self.before is None:
            return self.package.declared
        is_as_declared = set(server.body.get("allowed_tools", ())) == set(self.before.declared)
        return self.package.declared if is_as_declared else None

    def _tools(self) -> Mapping[str, ToolDefinition] | None:
        """What the server will list, where its manifest says so in full."""
        if self.manifest.source != "manifest":
            return None
        return check_list(self.package.package_id, [tool.raw for tool in self.manifest.tools])[0]

    def _draft(
        self,
        kind: Kind,
        sent: Mapping[str, Any] | None,
        *,
        keeping: tuple[str, ...] = (),
        tools: Mapping[str, ToolDefinition] | None = None,
    ) -> Draft:
        return Draft(
            kind=kind,
            id=self.package.package_id,
            sent=sent,
            if_revision=self._seen(kind),
            keeping=keeping,
            is_declared=True,
            tools=tools,
        )

    def _seen(self, kind: Kind) -> int:
        """What was looked at is what is replaced."""
        stored = self.stored[kind]
        return 0 if stored is None else stored.revision


async def _wanted_manifest(control: Control, wanted: Wanted) -> tuple[Manifest, str]:
    if wanted.offered is not None:
        return parse_manifest(wanted.offered.manifest), wanted.offered.sha256
    artifacts = artifacts_of(control)
    version = wanted.version or await _newest(artifacts, wanted.package_id)
    stored = await artifacts.get(wanted.package_id, version)
    return parse_manifest(await artifacts.manifest(wanted.package_id, version)), stored.sha256


async def _newest(artifacts: Artifacts, package_id: str) -> str:
    versions = await artifacts.versions(package_id)
    if not versions:
        raise NotFound(
            f"no version of package `{package_id}` was uploaded",
            hint="`toolgate packages` lists what there is; `toolgate publish DIR` uploads one",
        )
    return versions[0].version


def _check_ownership(server: Stored | None) -> None:
    """Raises Conflict for a server that somebody registered: it is not taken over silently."""
    if server is not None and server.body.get("package") is None:
        raise Conflict(
            f"there is a server `{server.id}` that was not installed as a package",
            hint=f"delete it first (`toolgate servers delete {server.id}`), or give the package another id",
        )


def _installed(stored: Stored | None) -> Package | None:
    if stored is None:
        return None
    record = parse_record("package", stored.id, stored.body, strict=False)
    assert isinstance(record, Package)
    return record


async def _declared(control: Control, package: Package | None) -> Mapping[str, bytes]:
    """The definitions that a package's manifest has; nothing where it is gone."""
    if package is None:
        return {}
    try:
        content = await artifacts_of(control).manifest(package.package_id, package.version)
    except NotFound:
        return {}
    return _definitions(parse_manifest(content))


def _definitions(manifest: Manifest) -> Mapping[str, bytes]:
    return {tool.name: tool.raw for tool in manifest.tools}


def _hints(manifest: Manifest, server: Draft) -> Iterator[str]:
    assert server.sent is not None
    if not manifest.tools and not server.sent.get("allowed_tools"):
        yield "the manifest declares no tool, so none is allowed: choose with `--allow`"


async def _removals(control: Control, package_id: str, if_revision: int | None) -> list[Draft]:
    stored = {kind: await control.store.get(kind, package_id) for kind in RECORDS}
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
        Draft(kind=kind, id=package_id, sent=None, if_revision=revision) for kind, revision in seen.items()
    ]


async def _plan(control: Control, actor: Principal, drafts: Sequence[Draft]) -> Planned:
    served = control.gateway.snapshot
    edits, listing = await check_drafts(control, actor, drafts)
    return Planned(
        revision=listing.revision,
        plan=await plan_edits(control, edits),
        warnings=await warn_of_edits(served, edits),
    )


async def _update_catalog(control: Control, package_id: str) -> None:
    if control.keeper is not None:
        await control.keeper.package_changed(package_id)
