"""`toolgate init`, `publish` and `install`: from a directory or file to a running package."""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.commands.packages import (
    InstallOptions,
    check_version,
    hash_file,
    install_package,
    is_archive,
    refresh_server,
    upload_archive,
)
from toolgate.cli.failure import CommandError, UsageError
from toolgate.cli.files.modules import open_progress
from toolgate.cli.files.packages import PackageDirectory, VersionBump
from toolgate.cli.option_groups import command
from toolgate.cli.options import DryRunOption, GatewayConnection
from toolgate.cli.output import CommandOutput, StepProgress, open_console
from toolgate.cli.render.layout import JsonObject, encode_json, escape_block
from toolgate.cli.render.packages import (
    render_install_plan,
    render_installed,
    render_new_package,
    render_published,
)
from toolgate.errors import InvalidRecord
from toolgate.model.names import parse_server_id, slugify_server_id
from toolgate.model.servers import PackageRef, ServerRecord
from toolgate.model.tools import ToolDefinition
from toolgate.packages.archive import IGNORE_NAME, PackedArchive, normalize_archive
from toolgate.packages.connector import resolve_launch
from toolgate.packages.manifest import MANIFEST_NAME, Manifest, build_server_body, parse_manifest
from toolgate.registry.records.codec import parse_server
from toolgate.surfaces.http.selection import format_scope_url
from toolgate.upstream.connection.contract import DEFAULT_LIMITS
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

_UNPUBLISHED = PackageRef(version="0", sha256="0" * 64)


def list_package_tools(manifest: Manifest, directory: Path) -> Sequence[ToolDefinition]:
    """Every tool that the server lists. Raises CommandError where it does not start, or one is not right."""
    report = asyncio.run(_try(_record(manifest, directory)))
    if report.error:
        raise CommandError(
            f"the server of `{manifest.id}` does not run: {report.error}",
            hint="run its command by hand in the package's directory, with the variables of `run.env` alone",
            data={"stderr_tail": report.stderr_tail},
        )
    if report.quarantined:
        wrong = "; ".join(f"`{name}`: {why}" for name, why in report.quarantined.items())
        raise CommandError(
            f"tools of `{manifest.id}` cannot be offered: {wrong}",
            hint="mend their definitions in the server",
        )
    return tuple(report.tools.values())


def _record(manifest: Manifest, directory: Path) -> ServerRecord:
    record = replace(parse_server(build_server_body(manifest, _UNPUBLISHED)), package=None)
    if record.stdio is None:
        return record
    return replace(record, stdio=resolve_launch(record.stdio, directory.resolve()))


async def _try(record: ServerRecord) -> TrialReport:
    secrets, egress = Secrets(os.environ), Egress(allow_private=True)
    warden = Warden(max_children=1)
    try:
        openers = Connectors(
            {
                "stdio": StdioConnector(warden, secrets),
                "streamable_http": StreamableConnector(secrets, egress),
                "http_sse_legacy": SseLegacyConnector(secrets, egress),
            },
            DEFAULT_LIMITS,
        )
        return await try_server(record, openers, DEFAULT_LIMITS)
    finally:
        await warden.aclose()


FILES: Final = {"server.py": "server.py", "README.md": "README.md", "toolgateignore": IGNORE_NAME}
"""Of the template: its name there, and in the package."""

app = typer.Typer(add_completion=False)


@app.command("init")
def init_command(
    directory: Annotated[Path, Argument(help="Where to put it; made if it is not there.")] = Path(),
    *,
    package_id: Annotated[
        str | None, Option("--id", help="Its id, in every URL and policy. Default: the directory's name.")
    ] = None,
    name: Annotated[str | None, Option("--name", help="Its name for people. Default: the id.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Make a package with one tool that runs at once. Nothing that is there is touched."""
    chosen = _choose_package_id(directory, package_id)
    contents = {MANIFEST_NAME: _build_manifest(chosen, name or chosen)}
    template = files("toolgate.cli") / "package_template"
    for source, target in FILES.items():
        text = (template / source).read_text("utf-8")
        contents[target] = text.replace("NAME", name or chosen) if target == "README.md" else text
    _check_free(directory, contents)
    directory.mkdir(parents=True, exist_ok=True)
    for target, text in contents.items():
        with (directory / target).open("x", encoding="utf-8") as file:
            file.write(text)
    made = {"package_id": chosen, "directory": str(directory), "files": sorted(contents)}
    CommandOutput(as_json=as_json).show(made, render_new_package(made))


def _choose_package_id(directory: Path, given: str | None) -> str:
    try:
        return parse_server_id(slugify_server_id(directory.resolve().name) if given is None else given)
    except InvalidRecord as exc:
        hint = "give one with --id" if given is None else exc.hint
        raise UsageError(str(exc), hint=hint) from exc


def _build_manifest(package_id: str, name: str) -> str:
    document: dict[str, Any] = {
        "manifestSchemaVersion": "v2",
        "id": package_id,
        "name": name,
        "version": "0.1.0",
        "description": "",
        "category": "",
        "tags": [],
        "run": {"transport": "stdio", "command": "python3", "args": ["server.py"]},
    }
    return encode_json(document, indent=2) + "\n"


def _check_free(directory: Path, contents: dict[str, str]) -> None:
    occupied = [name for name in contents if (directory / name).exists() or (directory / name).is_symlink()]
    if directory.is_file() or occupied:
        what = ", ".join(f"`{directory / name}`" for name in occupied) or f"`{directory}`"
        raise UsageError(
            f"{what} is there already, and nothing is overwritten",
            hint="choose another directory, or move what is there",
        )


@command(app, "install")
def install_command(
    package: Annotated[
        str, Argument(help="`ID`, `ID@VERSION`, or an archive: `.tar.gz` or `.mcpb`.", show_default=False)
    ],
    connection: GatewayConnection,
    how: InstallOptions,
    *,
    is_dry_run: DryRunOption = False,
) -> None:
    """Install a package, or another version of it. That approves exactly what its manifest declares.

    What an operator has set on its server stays as it is. Without a version, it is the one that was
    uploaded last.
    """
    progress = open_progress(as_json=connection.as_json)
    with connection.open() as client:
        package_id, body = _parse_package(package)
        if is_archive(package):
            package_id, body = _upload_file(client, Path(package), progress, is_dry_run=is_dry_run)
        with progress.step("asking" if is_dry_run else "installing"):
            answer = install_package(
                client, package_id, {**how.body, **body, "dry_run": is_dry_run}, how.conditions
            )
        if is_dry_run:
            connection.output.show(answer, render_install_plan(answer, ["install", package, *how.words]))
            return
        with progress.step("starting it at the gateway"):
            server = refresh_server(client, package_id)
    url = format_scope_url(connection.url, {"servers": package_id})
    connection.output.show(
        {**answer, "server": server, "url": url},
        render_installed(answer, server, url, gateway=connection.url),
    )


def _parse_package(package: str) -> tuple[str, dict[str, Any]]:
    if "/" in package and Path(package).is_dir():
        raise UsageError(
            f"`{package}` is a directory", hint=f"`toolgate publish {package}` packs, uploads and installs it"
        )
    package_id, _, version = package.partition("@")
    return package_id, {"version": version} if version else {}


def _upload_file(
    client: RestClient, path: Path, progress: StepProgress, *, is_dry_run: bool
) -> tuple[str, dict[str, Any]]:
    """The id of the package in a file, and which version of it to install: uploaded now, or only offered."""
    try:
        with path.open("rb") as file:
            if is_dry_run:
                return _inspect_file(file)
            with progress.step("uploading") as tell:
                kept: JsonObject = upload_archive(client, file, hash_file(file), tell)
    except OSError as exc:
        raise UsageError(f"cannot read `{path}`: {exc.strerror}") from exc
    return str(kept["package_id"]), {"version": kept["version"]}


def _inspect_file(file: Any) -> tuple[str, dict[str, Any]]:
    with tempfile.TemporaryFile() as archive:
        content = normalize_archive(file, archive).manifest
        return parse_manifest(content).id, {"manifest": content.decode(), "sha256": hash_file(archive)}


@command(app, "publish")
def publish_command(
    directory: Annotated[Path, Argument(help="The package: a directory with a `manifest.json`.")],
    connection: GatewayConnection,
    how: InstallOptions,
    *,
    is_dry_run: DryRunOption = False,
    bump: Annotated[
        VersionBump | None, Option("--bump", help="Raise the version first, and write it into the manifest.")
    ] = None,
    is_only_kept: Annotated[
        bool, Option("--no-install", help="Upload it, and install it another time.")
    ] = False,
) -> None:
    """Start a package's server once, write all its tools into the manifest, pack, upload and install it.

    What was published as one version never changes: after a change, raise it with --bump. A dry run shows
    how the tools and what each task sees would differ from what is installed, and sends no archive.

    A manifest without `run` describes a server that is registered already: nothing is started, and the
    server gets its name, category, tags and tool definitions.
    """
    progress = open_progress(as_json=connection.as_json)
    package = PackageDirectory(directory, bump=bump)
    manifest = package.manifest
    content = package.content
    if manifest.run:
        with progress.step("reading the tools of the server"), _show_stderr(connection):
            content = package.complete(list_package_tools(manifest, directory))
    with tempfile.TemporaryFile() as archive, connection.open() as client:
        with progress.step("packing"):
            packed = package.pack(content, archive)
        if is_dry_run:
            offered = {"manifest": content.decode(), "sha256": packed.sha256, "dry_run": True}
            answer = install_package(client, manifest.id, {**how.body, **offered}, how.conditions)
            raised = [] if bump is None else ["--bump", bump]
            command = ["publish", str(directory), *raised, *how.words]
            connection.output.show(answer, render_install_plan(answer, command))
            return
        is_there = check_version(client, manifest.id, manifest.version, packed.sha256)
        if not is_there:
            with progress.step("uploading") as tell:
                upload_archive(client, archive, packed.sha256, tell)
        package.write(content)
        shown = _build_result(packed, package, is_new=not is_there)
        if not is_only_kept:
            shown |= _install(client, package, how, progress)
    shown["url"] = format_scope_url(connection.url, {"servers": manifest.id})
    connection.output.show(shown, render_published(shown, gateway=connection.url))


@contextmanager
def _show_stderr(connection: GatewayConnection) -> Iterator[None]:
    """Where the server does not run, what it wrote to standard error is shown before the failure is."""
    try:
        yield
    except CommandError as failure:
        tail = str(failure.data.get("stderr_tail", ""))
        if tail and not connection.as_json:
            open_console(to_stderr=True).print(escape_block(tail), style="dim", soft_wrap=True)
        raise


def _install(
    client: RestClient, package: PackageDirectory, how: InstallOptions, progress: StepProgress
) -> dict[str, object]:
    manifest = package.manifest
    with progress.step("installing"):
        done = install_package(client, manifest.id, {**how.body, "version": manifest.version}, how.conditions)
    with progress.step("starting it at the gateway"):
        return {"install": done, "server": refresh_server(client, manifest.id)}


def _build_result(packed: PackedArchive, package: PackageDirectory, *, is_new: bool) -> dict[str, object]:
    return {
        "package_id": package.manifest.id,
        "version": package.manifest.version,
        "sha256": packed.sha256,
        "size": packed.size,
        "files": packed.files,
        "uploaded": is_new,
        "install": None,
        "server": None,
    }
