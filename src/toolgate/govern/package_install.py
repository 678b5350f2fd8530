"""What installing a package makes of the records there are. Nothing here reads or writes anything.

Installing approves exactly what the manifest declares. What an operator has set since stays: whatever is not
about running the package is the operator's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate.catalog.definitions import check_tools
from toolgate.catalog.diff import ToolChanges, diff_definitions
from toolgate.errors import Conflict, InvalidRequest
from toolgate.govern.changes.records import PendingChange
from toolgate.model.effects import UNSTATED
from toolgate.model.names import ToolRef
from toolgate.model.packages import Package, PackageRef
from toolgate.model.revisions import Body, Kind, StoredRecord
from toolgate.model.tools import ToolDefinition
from toolgate.packages.manifest import Manifest, build_server_body, parse_manifest
from toolgate.policy.patterns import Patterns
from toolgate.registry.records.codec import BODIES, encode_record, parse_record

KEPT_MEMBERS: Final = (
    "tool_namespace",
    "allowed_tools",
    "approval_policy",
    "budgets",
    "redaction",
    "enabled",
    "sharing",
    "idle_timeout_s",
    "start_timeout_s",
    "list_ttl_s",
    "prewarm",
    "protocol",
)
"""The members of a server that another version of its package leaves as they are."""
OPERATOR_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "stdio": ("env",),
    "http": ("headers", "auth_ref", "oauth"),
}
"""What of running a package an operator sets where it is installed: variables, headers, credentials."""
PACKAGE_KINDS: Final[tuple[Kind, ...]] = ("package", "server", "pin")
"""What an installed package is to the registry, all under its one id."""

PackageRecords = Mapping[Kind, StoredRecord | None]
"""Those of one package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSource:
    """A package whose archive was not uploaded: to see what installing it would do."""

    manifest: bytes
    sha256: str
    """Of the archive that it would come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
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
    offered: PackageSource | None = None
    """In place of what was uploaded. Such a package can be planned, not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installation as it would be made."""

    package: Package
    before: Package | None
    """What is installed now."""
    tools: ToolChanges
    """From what is declared now to what would be."""
    drafts: tuple[PendingChange, ...]
    visible: tuple[str, ...]
    """Those of the declared tools that the server may offer."""
    hints: tuple[str, ...]


def prepare_installation(
    wanted: InstallRequest, offered: PackageSource, *, stored: PackageRecords, manifest_before: bytes | None
) -> Installation:
    """The installation of `offered` over the records `stored`. Raises what keeps it from being made.

    It takes a while where a package has thousands of tools: callers give it a thread.
    """
    manifest = parse_manifest(offered.manifest)
    if manifest.id != wanted.package_id:
        raise InvalidRequest(f"the manifest is of package `{manifest.id}`, not of `{wanted.package_id}`")
    if manifest.run:
        _check_ownership(stored["server"])
    else:
        check_describable(manifest, stored["server"])
    package, before = package_of(manifest, offered.sha256), installed_package(stored["package"])
    earlier = None if manifest_before is None else parse_manifest(manifest_before)
    drafting = _InstallationBuilder(
        manifest=manifest, earlier=earlier, package=package, before=before, stored=stored, wanted=wanted
    )
    server, pins = drafting.server_draft(), tuple(drafting.pin_drafts())
    declared = {} if earlier is None else _definitions(earlier)
    return Installation(
        package=package,
        before=before,
        tools=diff_definitions(declared, _definitions(manifest)),
        drafts=(drafting.package_draft(), server, *pins),
        visible=_visible(package, server, stored["server"]),
        hints=tuple(_hints(manifest, server)),
    )


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
        attached=not manifest.run,
    )


def _check_ownership(server: StoredRecord | None) -> None:
    """Raises Conflict for a server that somebody registered: it is not taken over silently."""
    if server is not None and server.body.get("package") is None:
        raise Conflict(
            f"there is a server `{server.id}` that was not installed as a package",
            hint=f"leave `run` out of the manifest to describe that server; or delete it "
            f"(`toolgate servers delete {server.id}`), or give the package another id",
        )


def check_describable(manifest: Manifest, server: StoredRecord | None) -> None:
    """Raises InvalidRecord where a manifest without `run` has no registered server to describe."""
    if server is None or server.body.get("package") is not None:
        build_server_body(manifest, PackageRef(version=manifest.version, sha256=""))  # says what is missing


def installed_package(stored: StoredRecord | None) -> Package | None:
    """The package that a record says is installed."""
    if stored is None:
        return None
    record = parse_record("package", stored.id, stored.body, strict=False)
    assert isinstance(record, Package)
    return record


def _visible(package: Package, server: PendingChange, stored: StoredRecord | None) -> tuple[str, ...]:
    kept = [] if stored is None else stored.body.get("allowed_tools", [])
    allowed = Patterns.of((server.sent or {}).get("allowed_tools", kept))
    tools = server.tools or {}
    refs = (ToolRef(package.package_id, name) for name in package.declared)
    return tuple(
        ref.name
        for ref in refs
        if allowed.first_match(
            ref, effects=tools[ref.name].effects if ref.name in tools else UNSTATED, is_deny=False
        )
    )


def _definitions(manifest: Manifest) -> Mapping[str, bytes]:
    return {tool.name: tool.raw for tool in manifest.tools}


def _hints(manifest: Manifest, server: PendingChange) -> Iterator[str]:
    assert server.sent is not None
    if manifest.run and not manifest.tools and not server.sent.get("allowed_tools"):
        yield "the manifest declares no tool, so none is allowed: choose with `--allow`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstallationBuilder:
    """One installation, from the records there are to those there shall be."""

    manifest: Manifest
    earlier: Manifest | None
    """Of what is installed, where it is still there."""
    package: Package
    before: Package | None
    stored: PackageRecords
    wanted: InstallRequest

    def package_draft(self) -> PendingChange:
        condition = self.wanted.if_revision
        return PendingChange(
            kind="package",
            id=self.package.package_id,
            sent=encode_record(self.package),
            if_revision=self._seen("package") if condition is None else condition,
            # A condition is to be checked where nothing changes, too.
            is_declared=condition is None,
        )

    def server_draft(self) -> PendingChange:
        if self.package.attached:
            return self._described_server()
        ref = PackageRef(version=self.package.version, sha256=self.package.sha256)
        body = build_server_body(self.manifest, ref)
        if self.earlier is not None and (server := self.stored["server"]) is not None:
            body |= _keep_operator_settings(body, server.body, self.earlier.run)
        if (allowed := self._allowed()) is not None:
            body["allowed_tools"] = list(allowed)
        return self._draft("server", body, keeping=KEPT_MEMBERS, tools=self._tools())

    def _described_server(self) -> PendingChange:
        """The registered server, with the words of the manifest where no operator has chosen others."""
        server = self.stored["server"]
        assert server is not None  # else there is nothing to describe
        said, earlier = (
            _manifest_texts(self.package),
            {} if self.before is None else _manifest_texts(self.before),
        )
        chosen: dict[str, Any] = {
            name: value
            for name, value in said.items()
            if value and server.body.get(name) in (None, "", [], earlier.get(name))
        }
        if self.wanted.allow is not None:
            chosen["allowed_tools"] = list(self.wanted.allow)
        return self._draft(
            "server",
            {"server_id": server.id, **chosen},
            keeping=tuple(BODIES["server"].model_fields),
            tools=self._tools() if self.wanted.pin else None,
        )

    def pin_drafts(self) -> Iterator[PendingChange]:
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
        if self.package.attached:
            return bool(self.wanted.pin)  # it grants nothing and takes nothing away unless asked to
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
        return check_tools(self.package.package_id, [tool.raw for tool in self.manifest.tools])[0]

    def _draft(
        self,
        kind: Kind,
        sent: Mapping[str, Any] | None,
        *,
        keeping: tuple[str, ...] = (),
        tools: Mapping[str, ToolDefinition] | None = None,
    ) -> PendingChange:
        return PendingChange(
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


def _manifest_texts(package: Package) -> dict[str, Any]:
    """What a manifest says of its server, as a server's record has it."""
    return {"display_name": package.name, "category": package.category, "tags": list(package.tags)}


def _keep_operator_settings(body: Body, now: Body, declared: Body) -> dict[str, Any]:
    """How `body` is run, with the settings that an operator has made since `declared` was installed."""
    kept: dict[str, Any] = {}
    for launch, members in OPERATOR_SETTINGS.items():
        if launch in body and launch in now and launch in declared:
            kept[launch] = {**body[launch]}
            for member in members:
                chosen = _changed_by_operator(now[launch].get(member), declared[launch].get(member))
                if isinstance(chosen, Mapping):
                    chosen = {**body[launch].get(member, {}), **chosen}
                if chosen:
                    kept[launch][member] = chosen
    return kept


def _changed_by_operator(now: Any, declared: Any) -> Any:
    """What of `now` is another than was declared."""
    if isinstance(now, Mapping) and isinstance(declared, Mapping | None):
        return {name: value for name, value in now.items() if (declared or {}).get(name) != value}
    return None if now == declared else now
