"""What `toolgate packages init`, `publish` and `install` do, from a directory to a running package."""

import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, Final

import msgspec
from rich.console import Group, RenderableType

from toolgate.cli.command import CommandError, StepProgress, UsageError, open_console, print_output
from toolgate.cli.commands import packages
from toolgate.cli.commands.packages import InstallOptions, VersionBump
from toolgate.cli.contexts import url_option
from toolgate.cli.files import open_progress, upload
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import RestClient
from toolgate.disk import replace_file
from toolgate.errors import InvalidRecord
from toolgate.model.names import parse_server_id, slugify_server_id
from toolgate.model.servers import PackageRef, ServerRecord
from toolgate.model.tools import ToolDefinition
from toolgate.packages.archive import IGNORE_NAME, PackedArchive, normalize_archive, pack_directory
from toolgate.packages.connector import resolve_launch
from toolgate.packages.manifest import (
    MANIFEST_NAME,
    Manifest,
    build_server_body,
    encode_manifest,
    parse_manifest,
    replace_tools,
)
from toolgate.registry.records.codec import parse_server
from toolgate.surfaces.http.parsing import format_scope_url
from toolgate.upstream.connection.contract import DEFAULT_LIMITS
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

_UNPUBLISHED = PackageRef(version="0", sha256="0" * 64)
_DERIVED = ("tools", "toolsSummary")
"""What the running server lists."""
_SEMANTIC = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+].*)?")


class PackageDirectory:
    """A directory with a manifest in it."""

    def __init__(self, path: Path, *, bump: VersionBump | None = None) -> None:
        self.path = path
        self._file = path / MANIFEST_NAME
        try:
            self._content = self.content = self._file.read_bytes()
            self._document = msgspec.json.decode(self._content, type=dict[str, Any])
        except OSError as exc:
            hint = "give the directory of a package; `toolgate packages init` creates one"
            raise UsageError(f"cannot read `{self._file}`: {exc.strerror}", hint=hint) from exc
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise UsageError(f"`{self._file}` is not a JSON object: {exc}") from exc
        if bump is not None:
            self._document["version"] = bump_version(str(self._document.get("version", "0.0.0")), bump)
            self.content = _encode_document(self._document)
        own = {name: value for name, value in self._document.items() if name not in _DERIVED}
        self.manifest: Manifest = parse_manifest(msgspec.json.encode(own))

    def complete(self, tools: Sequence[ToolDefinition]) -> bytes:
        """The manifest with these tools. Other members keep their order, except before version 2."""
        if self.manifest.schema_version == "v2":
            document = {name: value for name, value in self._document.items() if name not in _DERIVED}
            document["tools"] = [msgspec.Raw(tool.raw) for tool in tools]
            content = _encode_document(document)
        else:
            content = encode_manifest(replace_tools(self.manifest, tools))
        parse_manifest(content)
        return content

    def write(self, content: bytes) -> None:
        """Replace the manifest, whole or not at all."""
        if content == self._content:
            return
        try:
            replace_file(self._file, content, keeps_mode=True)
        except OSError as exc:
            raise CommandError(f"cannot write `{self._file}`: {exc.strerror}") from exc

    def pack(self, content: bytes, target: BinaryIO) -> PackedArchive:
        """Everything that belongs to the package, with this manifest; without `run`, the manifest alone."""
        if self.manifest.run:
            return pack_directory(self.path, content, target)
        with tempfile.TemporaryDirectory() as empty:
            return pack_directory(Path(empty), content, target)


def _encode_document(document: JsonObject) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def bump_version(version: str, bump: VersionBump) -> str:
    """The next version, without what may follow the three numbers."""
    found = _SEMANTIC.fullmatch(version)
    if found is None:
        hint = f"write the new `version` into `{MANIFEST_NAME}` yourself"
        raise UsageError(f"cannot raise version `{version}`: it is not of the form 1.2.3", hint=hint)
    numbers = [int(one) for one in found.groups()]
    at = ("major", "minor", "patch").index(bump)
    return ".".join(map(str, [*numbers[:at], numbers[at] + 1, 0, 0][:3]))


def list_package_tools(manifest: Manifest, directory: Path, *, as_json: bool) -> Sequence[ToolDefinition]:
    """Every tool that the server lists. Raises CommandError if it does not start or lists an invalid tool."""
    record = replace(parse_server(build_server_body(manifest, _UNPUBLISHED)), package=None)
    if record.stdio is not None:
        record = replace(record, stdio=resolve_launch(record.stdio, directory.resolve()))
    report = asyncio.run(_try(record))
    if report.error:
        if report.stderr_tail and not as_json:
            tail = ui.escape_block(report.stderr_tail)
            open_console(to_stderr=True).print(tail, style="dim", soft_wrap=True)
        hint = "run its command yourself in the package's directory, with only the variables of `run.env`"
        raise CommandError(f"the server of `{manifest.id}` failed: {report.error}", hint=hint)
    if report.quarantined:
        wrong = "; ".join(f"`{name}`: {why}" for name, why in report.quarantined.items())
        hint = "correct their definitions in the server"
        raise CommandError(f"`{manifest.id}` lists invalid tools: {wrong}", hint=hint)
    return tuple(report.tools.values())


async def _try(record: ServerRecord) -> TrialReport:
    secrets = Secrets(os.environ)
    resolver = EndpointResolver(secrets, Egress(allow_private=True))
    warden = Warden(max_children=1)
    try:
        openers = Connectors(
            {
                "stdio": StdioConnector(warden, secrets),
                "streamable_http": StreamableConnector(resolver),
                "http_sse_legacy": SseLegacyConnector(resolver),
            },
            DEFAULT_LIMITS,
        )
        return await try_server(record, openers, DEFAULT_LIMITS)
    finally:
        await warden.aclose()


FILES: Final = {"server.py": "server.py", "README.md": "README.md", "toolgateignore": IGNORE_NAME}
"""File of the template → its name in the package."""


def make_package(directory: Path, *, package_id: str | None, name: str | None, as_json: bool) -> None:
    """Write the template of a package into a directory, over no file that is there."""
    try:
        chosen = parse_server_id(
            slugify_server_id(directory.resolve().name) if package_id is None else package_id
        )
    except InvalidRecord as exc:
        hint = "give one with --id" if package_id is None else exc.hint
        raise UsageError(str(exc), hint=hint) from exc
    document: dict[str, Any] = {
        "manifestSchemaVersion": "v2",
        "id": chosen,
        "name": name or chosen,
        "version": "0.1.0",
        "description": "",
        "category": "",
        "tags": [],
        "run": {"transport": "stdio", "command": "python3", "args": ["server.py"]},
    }
    contents = {MANIFEST_NAME: ui.encode_json(document, indent=2) + "\n"}
    template = files("toolgate.cli") / "package_template"
    for source, target in FILES.items():
        text = (template / source).read_text("utf-8")
        contents[target] = text.replace("NAME", name or chosen) if target == "README.md" else text
    occupied = [name for name in contents if (directory / name).exists() or (directory / name).is_symlink()]
    if directory.is_file() or occupied:
        what = ", ".join(f"`{directory / name}`" for name in occupied) or f"`{directory}`"
        hint = "choose another directory, or move the files away"
        raise UsageError(f"{what} already exists", hint=hint)
    directory.mkdir(parents=True, exist_ok=True)
    for target, text in contents.items():
        with (directory / target).open("x", encoding="utf-8") as file:
            file.write(text)
    made = {"package_id": chosen, "directory": str(directory), "files": sorted(contents)}
    rendered = ui.stack_parts(
        Group(
            ui.done("package ", ui.bold(chosen), " in ", ui.cell(directory)),
            ui.indent(ui.join_names(sorted(contents))),
        ),
        ui.copyable(
            f"toolgate packages publish {quote(str(directory))}", "Next: edit `server.py`, then run", ui.DIM
        ),
    )
    print_output(made, rendered, as_json=as_json)


def install(package: str, connection: GatewayConnection, how: InstallOptions, *, is_dry_run: bool) -> None:
    """Install an uploaded version or an archive, and show the server that comes with it."""
    progress = open_progress(as_json=connection.as_json)
    with connection.open() as client:
        if "/" in package and Path(package).is_dir():
            hint = f"`toolgate packages publish {package}` packs, uploads and installs it"
            raise UsageError(f"`{package}` is a directory", hint=hint)
        package_id, _, version = package.partition("@")
        body = {"version": version} if version else {}
        if package.endswith((".tar.gz", ".tgz", ".mcpb")) or Path(package).is_file():
            package_id, body = _upload_file(client, Path(package), progress, is_dry_run=is_dry_run)
        with progress.step("planning" if is_dry_run else "installing"):
            response = packages.install_package(client, package_id, how, {**body, "dry_run": is_dry_run})
        if is_dry_run:
            connection.show(
                response, packages.render_install_plan(response, ["packages", "install", package, *how.words])
            )
            return
        with progress.step("starting the server at the gateway"):
            server = packages.refresh_server(client, package_id)
    url = format_scope_url(connection.url, {"servers": package_id})
    rendered = packages.render_installed(response, server, url, gateway=connection.url)
    connection.show({**response, "server": server, "url": url}, rendered)


def _upload_file(
    client: RestClient, path: Path, progress: StepProgress, *, is_dry_run: bool
) -> tuple[str, dict[str, Any]]:
    """The id of the package in a file, and the version to install. A dry run uploads nothing."""
    try:
        with path.open("rb") as file:
            if is_dry_run:
                with tempfile.TemporaryFile() as archive:
                    content = normalize_archive(file, archive).manifest
                    offered = {"manifest": content.decode(), "sha256": packages.hash_file(archive)}
                return parse_manifest(content).id, offered
            with progress.step("uploading") as report:
                sha256 = packages.hash_file(file)
                kept = upload(client, file, sha256, f"/api/uploads/{sha256}", report)
    except OSError as exc:
        raise UsageError(f"cannot read `{path}`: {exc.strerror}") from exc
    return str(kept["package_id"]), {"version": kept["version"]}


def publish(
    directory: Path,
    connection: GatewayConnection,
    how: InstallOptions,
    *,
    bump: VersionBump | None,
    is_dry_run: bool,
    is_only_kept: bool,
) -> None:
    """Complete the manifest from the running server, then pack, upload and install."""
    progress = open_progress(as_json=connection.as_json)
    package = PackageDirectory(directory, bump=bump)
    manifest = package.manifest
    content = package.content
    if manifest.run:
        with progress.step("listing the tools of the server"):
            tools = list_package_tools(manifest, directory, as_json=connection.as_json)
            content = package.complete(tools)
    with tempfile.TemporaryFile() as archive, connection.open() as client:
        with progress.step("packing"):
            packed = package.pack(content, archive)
        if is_dry_run:
            offered = {"manifest": content.decode(), "sha256": packed.sha256, "dry_run": True}
            response = packages.install_package(client, manifest.id, how, offered)
            raised = [] if bump is None else ["--bump", bump]
            command = ["packages", "publish", str(directory), *raised, *how.words]
            connection.show(response, packages.render_install_plan(response, command))
            return
        is_there = packages.check_version(client, manifest.id, manifest.version, packed.sha256)
        if not is_there:
            with progress.step("uploading") as report:
                upload(client, archive, packed.sha256, f"/api/uploads/{packed.sha256}", report)
        package.write(content)
        shown: dict[str, Any] = {
            "package_id": manifest.id,
            "version": manifest.version,
            "sha256": packed.sha256,
            "size": packed.size,
            "files": packed.files,
            "uploaded": not is_there,
            "install": None,
            "server": None,
        }
        if not is_only_kept:
            with progress.step("installing"):
                shown["install"] = packages.install_package(
                    client, manifest.id, how, {"version": manifest.version}
                )
            with progress.step("starting the server at the gateway"):
                shown["server"] = packages.refresh_server(client, manifest.id)
    shown["url"] = format_scope_url(connection.url, {"servers": manifest.id})
    connection.show(shown, render_published(shown, gateway=connection.url))


def render_published(shown: JsonObject, *, gateway: str) -> RenderableType:
    head = ui.done(
        ui.bold(f"{shown['package_id']} {shown['version']}"),
        f": {ui.count_of(shown['files'], 'file')}, {shown['size']:,} bytes",
        "" if shown["uploaded"] else ", already published",
    )
    if shown["install"] is None:
        wanted = f"{shown['package_id']}@{shown['version']}"
        install = f"toolgate packages install {wanted}{url_option(gateway)}"
        return ui.stack_parts(
            head, ui.copyable(install, "The package is not installed. To install it, run:", ui.DIM)
        )
    installed, server, url = shown["install"], shown["server"], shown["url"]
    return ui.stack_parts(head, packages.render_installed(installed, server, url, gateway=gateway))
