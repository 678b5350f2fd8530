"""`toolgate install`: a package that was published, or one in a file."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.modules import open_progress
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import StepProgress
from toolgate.cli.package_sending import (
    DryRunOption,
    InstallOptions,
    JsonObject,
    hash_file,
    install_package,
    is_archive,
    refresh_server,
    upload_archive,
)
from toolgate.cli.render.packages import render_install_plan, render_installed
from toolgate.packages.archive import normalize_archive
from toolgate.packages.manifest import parse_manifest
from toolgate.surfaces.http.selection import format_scope_url

app = typer.Typer(add_completion=False)


@app.command("install")
@spread_options
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
                client, package_id, {**how.body, **body, "dry_run": is_dry_run}, how.terms
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
        raise CommandError(
            f"`{package}` is a directory",
            hint=f"`toolgate publish {package}` packs, uploads and installs it",
            exit_code=ExitCode.USAGE,
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
        raise CommandError(f"cannot read `{path}`: {exc.strerror}", exit_code=ExitCode.USAGE) from exc
    return str(kept["package_id"]), {"version": kept["version"]}


def _inspect_file(file: Any) -> tuple[str, dict[str, Any]]:
    with tempfile.TemporaryFile() as archive:
        content = normalize_archive(file, archive).manifest
        return parse_manifest(content).id, {"manifest": content.decode(), "sha256": hash_file(archive)}
