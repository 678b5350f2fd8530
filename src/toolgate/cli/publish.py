"""`toolgate publish`: a directory becomes a package that runs at the gateway."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError
from toolgate.cli.files.modules import open_progress
from toolgate.cli.files.packages import PackageDirectory, VersionBump
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import StepProgress, open_console
from toolgate.cli.package_sending import (
    DryRunOption,
    InstallOptions,
    check_version,
    install_package,
    refresh_server,
    upload_archive,
)
from toolgate.cli.package_trial import list_package_tools
from toolgate.cli.render.layout import escape_block
from toolgate.cli.render.packages import render_install_plan, render_published
from toolgate.packages.packing import PackedArchive
from toolgate.surfaces.http.selection import format_scope_url

app = typer.Typer(add_completion=False)


@app.command("publish")
@spread_options
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
        bool, Option("--no-install", help="Upload it, and install_package it another time.")
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
            answer = install_package(client, manifest.id, {**how.body, **offered}, how.terms)
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
        done = install_package(client, manifest.id, {**how.body, "version": manifest.version}, how.terms)
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
