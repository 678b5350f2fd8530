"""`toolgate packages`: what was published and what is installed, and how packages get to a gateway.

What `init`, `publish` and `install` do is in `publish`, which starts servers and packs archives.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument

from toolgate.cli.command import CommandError, DryRunOption, JsonOption, add_group, command
from toolgate.cli.contexts import url_option
from toolgate.cli.options import GatewayConnection, add_list_commands
from toolgate.cli.record_commands import ConditionOptions, PlanOption
from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_plan
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import RestClient, build_conditions, build_path, build_record_path
from toolgate.lazy_modules import load_lazily

PACKAGES: Final = "/api/packages"

VersionBump = Literal["patch", "minor", "major"]
"""Which part of a version to raise."""


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """Which tools of a package to allow, and whether to pin them."""

    allow: Annotated[
        list[str] | None,
        "--allow PATTERN",
        "Tools to allow, `*` for all. Default: the declared ones. Repeatable.",
    ] = None
    is_unpinned: Annotated[bool, "--no-pin", "Expose tools as listed, not only as declared."] = False
    plan_id: PlanOption = None

    @property
    def body(self) -> dict[str, Any]:
        """The options in a request."""
        allowed = {"allowed_tools": self.allow} if self.allow else {}
        return {**allowed, "pin": False} if self.is_unpinned else allowed

    @property
    def words(self) -> list[str]:
        """The options on a command line, without the plan."""
        allowed = [word for pattern in self.allow or () for word in ("--allow", pattern)]
        return [*allowed, "--no-pin"] if self.is_unpinned else allowed


def hash_file(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO has readinto


def check_version(client: RestClient, package_id: str, version: str, sha256: str) -> bool:
    """Whether the gateway has this archive already. Raises CommandError if it has another."""
    published = client.find(build_path(PACKAGES, package_id))
    versions = published["versions"] if published else ()
    known = next((one["sha256"] for one in versions if one["version"] == version), None)
    if known not in (None, sha256):
        raise CommandError(
            f"version {version} of `{package_id}` is already published with other content",
            hint="raise it: `toolgate packages publish DIR --bump patch`",
            code="conflict",
        )
    return known is not None


def install_package(client: RestClient, package_id: str, how: InstallOptions, body: JsonObject) -> JsonObject:
    """Install a package, or plan that in a dry run."""
    path = build_path(PACKAGES, package_id, "install")
    return client.post(path, {**how.body, **body}, headers=build_conditions(plan_id=how.plan_id))


def refresh_server(client: RestClient, package_id: str) -> JsonObject | None:
    """The server at the gateway, listed again; None if that fails."""
    with suppress(CommandError):
        return client.post(build_record_path("server", package_id, "refresh"))
    return None


def render_packages(packages: Sequence[JsonObject]) -> RenderableType:
    if not packages:
        return Text(
            "no packages: create one with `toolgate packages init`, then `toolgate packages publish DIR`"
        )
    table = ui.grid("PACKAGE", "INSTALLED", "VERSIONS", "TOOLS", "NAME*")
    for one in packages:
        installed, tools = (one["installed"], len(one["tools"])) if one["installed"] else ("-", "-")
        table.add_row(ui.bold(one["package_id"]), installed, len(one["versions"]), tools, one["name"])
    return table


def render_package(package: JsonObject) -> RenderableType:
    about = {
        "name": package["name"],
        "description": package["description"],
        "category": package["category"],
        "tags": ", ".join(package["tags"]),
        "installed": package["installed"] or "no",
        "tools": ", ".join(package["tools"]),
    }
    table = ui.grid("VERSION", "PUBLISHED", "BYTES", "SHA-256*")
    for one in package["versions"]:
        version = ui.cell(one["version"], "bold" if one["installed"] else "")
        published = ui.render_time(one["at_ms"], ui.MINUTE_FORMAT)
        table.add_row(version, published, f"{one['size']:,}", ui.cell(one["sha256"][:16], ui.DIM))
    head = ui.bold(package["package_id"])
    return ui.stack_parts(head, ui.fact_table(about, ui.DIM), table if package["versions"] else None)


def render_installed(
    response: JsonObject, server: JsonObject | None, url: str, *, gateway: str
) -> RenderableType:
    """An installation at `gateway`, the status of its server, and its URL."""
    head = Group(_headline(response, "is installed"), *map(ui.indent, _tool_changes(response["tools"])))
    paste = "Paste this URL into a client, or run:"
    connect = f"toolgate connect claude-code --servers {response['package_id']} --write{url_option(gateway)}"
    return ui.stack_parts(
        head,
        ui.render_warnings(response["warnings"]),
        None if server is None else _render_server(server),
        ui.copyable(f"{url}\n{connect}", paste, ui.DIM),
    )


def render_install_plan(response: JsonObject, command: Sequence[str]) -> RenderableType:
    """The plan of an installation: how tools and records would change, and the effect on tasks."""
    changes = list(_tool_changes(response["tools"]))
    shown = []
    for change in response["changes"]:
        # Only fields that add to the difference between the tools.
        fields = change["fields"] if change["kind"] == "server" else ()
        telling = [one for one in fields if one["field"] != "package.sha256"]
        shown.append({**change, "fields": telling})
    return ui.stack_parts(
        Group(
            _headline(response, "would be installed"),
            *map(ui.indent, changes or [Text("the same tools", ui.DIM)]),
        ),
        ui.render_warnings(one for one in response["warnings"] if one not in response["plan"]["warnings"]),
        render_plan({**response["plan"], "changes": shown}, command, has_fields=True),
    )


def render_uninstalled(response: JsonObject) -> RenderableType:
    removed: Sequence[str] = response["removed_versions"]
    archives = ui.indent(ui.sentence("deleted archives: ", ui.join_names(removed))) if removed else None
    head = ui.group_parts(ui.done("package ", ui.bold(response["package_id"]), " uninstalled"), archives)
    return ui.stack_parts(head, ui.render_warnings(response["warnings"]))


def _headline(response: JsonObject, verb: str) -> Text:
    before = f" (was {response['before']})" if response["before"] not in (None, response["version"]) else ""
    if not response["changes"] and verb == "is installed":
        verb = "was installed already: nothing to do"
    return ui.sentence(
        Text("✓ ", style=ui.OK) if verb.startswith("is") else Text(""),
        ui.bold(f"{response['package_id']} {response['version']}"),
        f" {verb}{before}",
        Text(f"  revision {response['revision']}", style=ui.DIM),
    )


def _tool_changes(tools: JsonObject) -> Iterator[RenderableType]:
    """A line for added and removed tools, and a diff of each changed one."""
    for sign, style, names in (("+ ", ui.OK, tools["added"]), ("- ", ui.BAD, tools["removed"])):
        if names:
            yield ui.sentence(Text(sign, style=style), ui.join_names(names))
    mark = Text("~ ", style=ui.WARN)
    for one in tools["renamed"]:
        yield ui.sentence(mark, ui.cell(one["before"]), " is now ", ui.cell(one["after"]))
    for name, lines in tools["changed"].items():
        yield Group(ui.sentence(mark, ui.cell(name)), *map(ui.render_diff_line, lines))


def _render_server(server: JsonObject) -> RenderableType:
    """Whether the server is connected, and how many of its tools are visible."""
    health = ui.health_of(server)
    if health.get("state") != "connected":
        hint = f"; see `toolgate servers get {server['server_id']}`"
        why = ui.cell(health.get("last_error") or health.get("state", "unknown"))
        return ui.failed("server not connected: ", why, Text(hint, style=ui.DIM))
    known = len(server["tools"])
    visible = len(server.get("visible", server["tools"]))
    shown = f"server connected: {visible:,} of {ui.count_of(known, 'tool')} visible"
    if visible or not known:
        return ui.done(shown)
    hint = f"; see `toolgate explain --servers {server['server_id']}`"
    return ui.failed(shown, Text(hint, style=ui.DIM))


app = typer.Typer(add_completion=False)
packages_app = add_group(app, "packages", is_command=True)

PackageArgument = Annotated[str, "PACKAGE", "Package id, as in `toolgate packages list`."]
VersionArgument = Annotated[str, Argument(help="Published version, as in `toolgate packages get`.")]

add_list_commands(
    packages_app,
    "List the packages with their installed and published versions.",
    PACKAGES,
    "packages",
    render_packages,
)


@command(packages_app, "init")
def init_command(
    directory: Annotated[
        Path, Argument(help="Directory of the package, created if it does not exist.")
    ] = Path(),
    *,
    package_id: Annotated[
        str | None, "--id", "Package id, in every URL and policy. Default: the directory's name."
    ] = None,
    name: Annotated[str | None, "Name for people. Default: the id."] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a package with one working tool. No existing file is changed."""
    load_lazily("toolgate.cli.commands.publish").make_package(
        directory, package_id=package_id, name=name, as_json=as_json
    )


@command(packages_app, "publish")
def publish_command(
    directory: Annotated[Path, Argument(help="Directory of the package, with its `manifest.json`.")],
    connection: GatewayConnection,
    how: InstallOptions,
    *,
    is_dry_run: DryRunOption = False,
    bump: Annotated[VersionBump | None, "Raise the version first, and write it into the manifest."] = None,
    is_only_kept: Annotated[bool, "--no-install", "Upload the archive without installing it."] = False,
) -> None:
    """Pack and upload a package, and install it.

    The command starts the package's server once and writes all its tools into the manifest. A published
    version never changes: after a change, raise it with --bump. A dry run shows how the tools and what each
    task sees would differ from what is installed, and sends no archive.

    A manifest without `run` describes a server that is registered already: nothing is started, and the
    server gets its name, category, tags and tool definitions.
    """
    load_lazily("toolgate.cli.commands.publish").publish(
        directory, connection, how, bump=bump, is_dry_run=is_dry_run, is_only_kept=is_only_kept
    )


@command(packages_app, "install")
def install_command(
    package: Annotated[str, Argument(help="Package id, `ID@VERSION`, or an archive: `.tar.gz`, `.mcpb`.")],
    connection: GatewayConnection,
    how: InstallOptions,
    *,
    is_dry_run: DryRunOption = False,
) -> None:
    """Install a package, or another version of it.

    Installing approves exactly the tools that the manifest declares. Fields that an operator set on the
    server stay. Without a version, the gateway installs the last one that was uploaded.
    """
    load_lazily("toolgate.cli.commands.publish").install(package, connection, how, is_dry_run=is_dry_run)


@command(packages_app, "get")
def show_command(package_id: PackageArgument, connection: GatewayConnection) -> None:
    """Show one package in full: its tools and every version."""
    connection.print_result(build_path(PACKAGES, package_id), render_package)


@command(packages_app, "delete")
def delete_command(
    package_id: PackageArgument, version: VersionArgument, connection: GatewayConnection
) -> None:
    """Delete the archive of a version that is not installed."""
    shown = ui.done("deleted the archive of ", ui.bold(f"{package_id} {version}"))
    connection.send("DELETE", build_path(PACKAGES, package_id, version), lambda _: shown)


@command(packages_app, "uninstall")
def uninstall_command(
    package_id: PackageArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    is_purged: Annotated[bool, "--purge", "Also delete all archives of the package."] = False,
    is_dry_run: DryRunOption = False,
) -> None:
    """Uninstall a package: its server and its pin are deleted, its archives stay."""
    query = {"purge": "true"} if is_purged else {}
    if is_dry_run:
        query["dry_run"] = "true"
    command = ["packages", "uninstall", package_id, *(["--purge"] if is_purged else [])]
    connection.send(
        "DELETE",
        build_path(PACKAGES, package_id),
        lambda response: (
            render_plan(response["plan"], command, has_fields=True)
            if is_dry_run
            else render_uninstalled(response)
        ),
        query=query,
        headers=conditions.headers,
    )
