"""`toolgate packages` and `uninstall`: what was published and what is installed; how packages get to a
gateway."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import quote

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient, WriteConditions, build_record_path
from toolgate.cli.failure import CommandError
from toolgate.cli.files.modules import ReportProgress, build_upload_path, send_parts
from toolgate.cli.option_groups import add_group, command
from toolgate.cli.options import DryRunOption, GatewayConnection, add_list_commands
from toolgate.cli.record_commands import ConditionOptions, IdArgument, PlanOption
from toolgate.cli.render.changes import render_records
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.packages import (
    render_package,
    render_packages,
    render_removed_version,
    render_uninstalled,
)

PACKAGES: Final = "/api/packages"


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """What of a package to offer, and on what terms."""

    allow: Annotated[
        list[str] | None,
        Option("--allow", help="Pattern of tools to allow, `*` for all. Default: those it declares."),
    ] = None
    is_unpinned: Annotated[
        bool, Option("--no-pin", help="Offer tools as they come, not only as they are declared.")
    ] = False
    plan_id: PlanOption = None

    @property
    def body(self) -> dict[str, Any]:
        """As the gateway is told."""
        allowed = {"allowed_tools": self.allow} if self.allow else {}
        return {**allowed, "pin": False} if self.is_unpinned else allowed

    @property
    def words(self) -> list[str]:
        """As they stand on a command line, but for the plan."""
        allowed = [word for pattern in self.allow or () for word in ("--allow", pattern)]
        return [*allowed, "--no-pin"] if self.is_unpinned else allowed

    @property
    def conditions(self) -> WriteConditions:
        return WriteConditions(plan_id=self.plan_id)


def build_package_path(package_id: str, *more: str) -> str:
    """The path of a package."""
    return "/".join((PACKAGES, *(quote(one, safe="") for one in (package_id, *more))))


def hash_file(file: BinaryIO) -> str:
    """The SHA-256 of all that is in it."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO has readinto


def upload_archive(client: RestClient, file: BinaryIO, sha256: str, tell: ReportProgress) -> JsonObject:
    """Send the missing parts of an archive and have it checked and kept; what the gateway found."""
    count = send_parts(client, file, sha256, tell)
    answer: JsonObject = client.post(build_upload_path(sha256), {"parts": count})
    return answer


def list_versions(client: RestClient, package_id: str) -> Mapping[str, str]:
    """The versions of a package that the gateway has, each with the hash of its archive."""
    try:
        versions = client.get(build_package_path(package_id))["versions"]
    except CommandError as failure:
        if failure.code != "not_found":
            raise
        return {}
    return {one["version"]: one["sha256"] for one in versions}


def check_version(client: RestClient, package_id: str, version: str, sha256: str) -> bool:
    """Whether the gateway has this archive already. Raises CommandError if it has another."""
    known = list_versions(client, package_id).get(version)
    if known not in (None, sha256):
        raise CommandError(
            f"version {version} of `{package_id}` was published with other content, and never changes",
            hint="raise it: `toolgate publish DIR --bump patch`",
            code="conflict",
        )
    return known is not None


def install_package(
    client: RestClient, package_id: str, body: JsonObject, conditions: WriteConditions
) -> JsonObject:
    """Install, or with a dry run ask what that would do."""
    answer: JsonObject = client.post(f"{build_package_path(package_id)}/install", body, conditions=conditions)
    return answer


def refresh_server(client: RestClient, package_id: str) -> JsonObject | None:
    """The server at the gateway, listed again; None if that fails."""
    with suppress(CommandError):
        answer: JsonObject = client.post(f"{build_record_path('server', package_id)}/refresh")
        return answer
    return None


def is_archive(name: str) -> bool:
    """Whether a word on the command line means a file."""
    return name.endswith((".tar.gz", ".tgz", ".mcpb")) or Path(name).is_file()


app = typer.Typer(add_completion=False)
packages_app = add_group(
    app, "packages", "Packages: what was published, and what is installed.", is_command=True
)

VersionArgument = Annotated[str, Argument(help="Its version.", show_default=False)]


add_list_commands(
    packages_app,
    "List the packages: which version is installed, and how many were published.",
    PACKAGES,
    "packages",
    render_packages,
)


@command(packages_app, "show")
def show_command(package_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one package in full: its tools, and every version."""
    connection.print_answer(build_package_path(package_id), render_package)


@command(packages_app, "remove")
def remove_command(package_id: IdArgument, version: VersionArgument, connection: GatewayConnection) -> None:
    """Remove the archive of a version that is not installed."""
    with connection.open() as client:
        answer = client.delete_path(build_package_path(package_id, version))
    connection.output.show(answer, render_removed_version(answer))


@command(app, "uninstall")
def uninstall_command(
    package_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    is_purged: Annotated[bool, Option("--purge", help="Also remove every archive of it.")] = False,
    is_dry_run: DryRunOption = False,
) -> None:
    """Remove a package with its server and its pin. What was uploaded stays, unless --purge is given."""
    query = {"purge": "true"} if is_purged else {}
    if is_dry_run:
        query["dry_run"] = "true"
    with connection.open() as client:
        answer = client.delete_path(build_package_path(package_id), query, conditions=conditions.conditions)
    command = ["uninstall", package_id, *(["--purge"] if is_purged else [])]
    shown = render_records(answer["plan"], command) if is_dry_run else render_uninstalled(answer)
    connection.output.show(answer, shown)
