"""Builds the changes of records that install a package. Pure: never reads or writes anything.

An install approves exactly the tools that the manifest declares. It keeps an operator's settings: the
manifest decides only how the package runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from toolgate.catalog.definitions import ToolChanges, diff_definitions
from toolgate.errors import Conflict, InvalidRequest
from toolgate.govern.changes.records import PendingChange
from toolgate.model.names import ToolRef
from toolgate.model.packages import Package
from toolgate.model.revisions import Body, Kind, StoredRecord
from toolgate.model.servers import PackageRef
from toolgate.model.tools import UNSTATED, ToolDefinition
from toolgate.packages.manifest import Manifest, build_server_body, parse_manifest
from toolgate.policy.patterns import Patterns
from toolgate.registry.records.codec import BODIES, encode_record, parse_record

KEPT_MEMBERS: Final = (
    *("tool_namespace", "allowed_tools", "approval_policy", "budgets", "redaction", "enabled", "sharing"),
    *("idle_timeout_s", "start_timeout_s", "list_ttl_s", "prewarm", "protocol"),
)
"""The members of a server that a new version of its package does not change."""
OPERATOR_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "stdio": ("env",),
    "http": ("headers", "auth_ref", "oauth"),
}
"""The settings of an operator for running a package: variables, headers, credentials."""
PACKAGE_KINDS: Final[tuple[Kind, ...]] = ("package", "server", "pin")
"""The records of an installed package, all under its one id."""

PackageRecords = Mapping[Kind, StoredRecord | None]
"""The records of one package."""


class PackageSource(NamedTuple):
    manifest: bytes
    sha256: str
    """Hash of the package's archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    package_id: str
    version: str | None = None
    """None: the last uploaded version."""
    allow: Sequence[str] | None = None
    """Patterns of the tools to allow. None: those that an operator chose, or else the declared ones."""
    pin: bool | None = None
    """Whether to pin the tools as declared. None: yes, unless an operator removed the pin."""
    if_revision: int | None = None
    """Install only if the package's record has this revision."""
    source: PackageSource | None = None
    """A package that is not uploaded. It can be planned, not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    package: Package
    before: Package | None
    """The installed package."""
    tools: ToolChanges
    """Changes of the declared tools."""
    changes: tuple[PendingChange, ...]
    visible: tuple[str, ...]
    """The declared tools that the server may offer."""
    hints: Sequence[str]


def prepare_installation(
    request: InstallRequest,
    source: PackageSource,
    stored: PackageRecords,
    *,
    before: Package | None,
    manifest_before: bytes | None,
) -> Installation:
    """The installation of `source` over `stored`. Run it in a thread: packages can have thousands of
    tools."""
    manifest = parse_manifest(source.manifest)
    if manifest.id != request.package_id:
        raise InvalidRequest(f"the manifest has the id `{manifest.id}`, not `{request.package_id}`")
    server = stored["server"]
    if not manifest.run:
        check_describable(manifest, server)
    elif server is not None and server.body.get("package") is None:
        raise Conflict(
            f"there is a server `{server.id}` already that no package installed",
            hint=f"leave `run` out of the manifest to describe that server, delete it "
            f"(`toolgate servers delete {server.id}`), or give the package another id",
        )
    earlier = None if manifest_before is None else parse_manifest(manifest_before)
    package = read_package(manifest, source.sha256)
    builder = _InstallationBuilder(manifest, earlier, package, before, stored, request)
    change = builder.build_server_change()
    assert change.sent is not None
    declared = {} if earlier is None else {tool.name: tool.raw for tool in earlier.tools}
    hints = ["the manifest declares no tool, so none is allowed: allow tools with `--allow PATTERN`"]
    return Installation(
        package=package,
        before=before,
        tools=diff_definitions(declared, {tool.name: tool.raw for tool in manifest.tools}),
        changes=(builder.build_package_change(), change, *builder.build_pin_changes()),
        visible=_list_visible(package, change, server),
        hints=hints if manifest.run and not manifest.tools and not change.sent.get("allowed_tools") else [],
    )


def read_package(manifest: Manifest, sha256: str) -> Package:
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


def check_describable(manifest: Manifest, server: StoredRecord | None) -> None:
    """Raises InvalidRecord if a manifest without `run` has no registered server to describe."""
    if server is None or server.body.get("package") is not None:
        build_server_body(manifest, PackageRef(version=manifest.version, sha256=""))  # raises: no `run`


def parse_installed(stored: StoredRecord | None) -> Package | None:
    if stored is None:
        return None
    record = parse_record("package", stored.id, stored.body, strict=False)
    assert isinstance(record, Package)
    return record


def _list_visible(package: Package, change: PendingChange, stored: StoredRecord | None) -> tuple[str, ...]:
    kept = [] if stored is None else stored.body.get("allowed_tools", [])
    allowed, tools = Patterns((change.sent or {}).get("allowed_tools", kept)), change.tools or {}

    def is_allowed(name: str) -> bool:
        effects = tools[name].effects if name in tools else UNSTATED
        ref = ToolRef(package.package_id, name)
        return allowed.first_match(ref, effects=effects, is_deny=False) is not None

    return tuple(filter(is_allowed, package.declared))


@dataclass(frozen=True, slots=True)
class _InstallationBuilder:
    manifest: Manifest
    earlier: Manifest | None
    """The manifest of the installed version, if its archive still exists."""
    package: Package
    before: Package | None
    stored: PackageRecords
    request: InstallRequest

    def build_package_change(self) -> PendingChange:
        change = self._change("package", encode_record(self.package))
        if self.request.if_revision is None:
            return change
        # The transaction must check `if_revision` even if nothing changes.
        return replace(change, if_revision=self.request.if_revision, is_declared=False)

    def build_server_change(self) -> PendingChange:
        server = self.stored["server"]
        if not self.package.attached:
            ref = PackageRef(version=self.package.version, sha256=self.package.sha256)
            body = build_server_body(self.manifest, ref)
            if self.earlier is not None and server is not None:
                body |= _keep_operator_settings(body, server.body, self.earlier.run)
            if (allowed := self._allowed()) is not None:
                body["allowed_tools"] = list(allowed)
            return replace(self._change("server", body), keeping=KEPT_MEMBERS, tools=self._definitions())
        # The registered server, with the manifest's texts unless an operator set others.
        assert server is not None  # see `check_describable`
        earlier = {} if self.before is None else _manifest_texts(self.before)
        chosen: dict[str, Any] = {
            name: value
            for name, value in _manifest_texts(self.package).items()
            if value and server.body.get(name) in (None, "", [], earlier.get(name))
        }
        if self.request.allow is not None:
            chosen["allowed_tools"] = list(self.request.allow)
        return replace(
            self._change("server", {"server_id": server.id, **chosen}),
            keeping=tuple(BODIES["server"].model_fields),
            tools=self._definitions() if self.request.pin else None,
        )

    def build_pin_changes(self) -> Iterator[PendingChange]:
        if self.request.pin is False:
            if self.stored["pin"] is not None:
                yield self._change("pin", None)
        elif self._needs_pin():
            digests = {tool.name: tool.digest for tool in self.manifest.tools}
            yield self._change("pin", {"server_id": self.package.package_id, "tools": digests})

    def _needs_pin(self) -> bool:
        if self.manifest.source != "manifest":
            return False  # the manifest declares no full definition, so the earlier approval stays valid
        if self.package.attached:
            return bool(self.request.pin)  # describing a server changes its pin only on request
        if self.request.pin or self.before is None:
            return True
        if self.before.sha256 == self.package.sha256:
            return False  # the same package has the same approved definitions
        return self.stored["pin"] is not None or self.before.source != "manifest"

    def _allowed(self) -> Sequence[str] | None:
        """The allowed tools after the install. None: unchanged."""
        if self.request.allow is not None:
            return self.request.allow
        server = self.stored["server"]
        if server is None or self.before is None:
            return self.package.declared
        is_as_declared = set(server.body.get("allowed_tools", ())) == set(self.before.declared)
        return self.package.declared if is_as_declared else None

    def _definitions(self) -> Mapping[str, ToolDefinition] | None:
        """The definitions that the server will list, if the manifest declares them in full."""
        if self.manifest.source != "manifest":
            return None
        return {tool.name: tool for tool in self.manifest.tools}

    def _change(self, kind: Kind, sent: Mapping[str, Any] | None) -> PendingChange:
        stored = self.stored[kind]
        # Replace only the revision that was read.
        seen = 0 if stored is None else stored.revision
        package_id = self.package.package_id
        return PendingChange(kind=kind, id=package_id, sent=sent, if_revision=seen, is_declared=True)


def _manifest_texts(package: Package) -> dict[str, Any]:
    """A manifest's texts, as members of a server record."""
    return {"display_name": package.name, "category": package.category, "tags": list(package.tags)}


def _keep_operator_settings(body: Body, now: Body, declared: Body) -> dict[str, Any]:
    """`body`'s launch, with the settings that an operator changed since `declared` was installed."""
    kept: dict[str, Any] = {}
    for launch, members in OPERATOR_SETTINGS.items():
        if launch in body and launch in now and launch in declared:
            kept[launch] = {**body[launch]}
            for member in members:
                chosen, before = now[launch].get(member), declared[launch].get(member)
                if isinstance(chosen, Mapping):
                    known = before if isinstance(before, Mapping) else {}
                    own = {name: value for name, value in chosen.items() if known.get(name) != value}
                    chosen = {**body[launch].get(member, {}), **own}
                if chosen and chosen != before:
                    kept[launch][member] = chosen
    return kept
