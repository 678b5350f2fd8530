"""Packages: installed, upgraded and removed, each as one change of the registry."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toolgate.errors import NotFound
from toolgate.govern.changes.commit import Committed, check_drafts, commit_drafts, warn_of_edits
from toolgate.govern.changes.impact import ChangePlan, plan_edits
from toolgate.govern.changes.pending import Draft
from toolgate.govern.changes.permissions import check_removal
from toolgate.govern.control import Control
from toolgate.govern.package_install import (
    RECORDS,
    Offered,
    Prepared,
    Records,
    Wanted,
    installed_package,
    prepare,
)
from toolgate.model.packages import Package
from toolgate.model.principals import Principal
from toolgate.packages.artifacts import Artifacts
from toolgate.packages.manifest import Manifest, encode_manifest
from toolgate.redaction.records import redact_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a change would do."""

    revision: int
    """Of the registry that it was held against."""
    plan: ChangePlan
    warnings: list[str]


async def plan_install(control: Control, actor: Principal, wanted: Wanted) -> tuple[Prepared, Planned]:
    """What installing would do, to records and to tasks. Changes nothing."""
    check_removal(actor, "package", wanted.package_id)
    prepared = await _prepare(control, wanted)
    return prepared, await _plan(control, actor, prepared.drafts)


async def install(
    control: Control, actor: Principal, wanted: Wanted, *, plan_id: str | None = None
) -> tuple[Prepared, Committed]:
    """Make a package's server part of the registry, or another version of it. The catalog knows it then."""
    assert wanted.offered is None
    check_removal(actor, "package", wanted.package_id)
    prepared = await _prepare(control, wanted)
    committed = await commit_drafts(control, actor, prepared.drafts, plan_id=plan_id)
    # What the pin approves of: to be compared with what the server will list.
    declared = [tool for draft in prepared.drafts for tool in (draft.tools or {}).values()]
    await control.store.pinned.save({tool.digest: tool.raw for tool in declared})
    await _update_catalog(control, wanted.package_id)
    return prepared, committed


async def plan_uninstall(control: Control, actor: Principal, package_id: str) -> Planned:
    """What uninstalling would do. Changes nothing."""
    check_removal(actor, "package", package_id)
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
    check_removal(actor, "package", package_id)
    drafts = await _removals(control, package_id, if_revision)
    committed = await commit_drafts(control, actor, drafts, plan_id=plan_id)
    await _update_catalog(control, package_id)
    return committed


def artifacts_of(control: Control) -> Artifacts:
    """Where archives are kept. Raises NotFound on a process without."""
    if control.artifacts is None:
        raise NotFound("this process keeps no packages", hint="set its `data_dir` or `artifacts`")
    return control.artifacts


def show_manifest(manifest: Manifest) -> bytes:
    """A manifest as anyone who may read packages sees it: in our form, its secrets masked."""
    return encode_manifest(replace(manifest, run=redact_server(manifest.run)))


async def _prepare(control: Control, wanted: Wanted) -> Prepared:
    offered = wanted.offered or await _kept(artifacts_of(control), wanted)
    stored = await _records(control, wanted.package_id)
    before = await _manifest_of(control, installed_package(stored["package"]))
    return await asyncio.to_thread(prepare, wanted, offered, stored=stored, manifest_before=before)


async def _kept(artifacts: Artifacts, wanted: Wanted) -> Offered:
    """What was uploaded. Raises NotFound."""
    version = wanted.version or await _newest(artifacts, wanted.package_id)
    stored = await artifacts.get(wanted.package_id, version)
    manifest = await artifacts.manifest(wanted.package_id, version)
    return Offered(manifest=manifest, sha256=stored.sha256)


async def _newest(artifacts: Artifacts, package_id: str) -> str:
    versions = await artifacts.versions(package_id)
    if not versions:
        raise NotFound(
            f"no version of package `{package_id}` was uploaded",
            hint="`toolgate packages` lists what there is; `toolgate publish DIR` uploads one",
        )
    return versions[0].version


async def _records(control: Control, package_id: str) -> Records:
    return {kind: await control.store.get(kind, package_id) for kind in RECORDS}


async def _manifest_of(control: Control, package: Package | None) -> bytes | None:
    """The manifest of what is installed; None where nothing is, or its archive is gone."""
    if package is None:
        return None
    try:
        return await artifacts_of(control).manifest(package.package_id, package.version)
    except NotFound:
        return None


async def _removals(control: Control, package_id: str, if_revision: int | None) -> list[Draft]:
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
