"""Packages: what there is, what installing did or would do, and what to do next."""

from collections.abc import Iterator, Sequence
from shlex import quote

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_records
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.up import url_option


def render_new_package(made: JsonObject) -> RenderableType:
    """A new package, and what to do with it."""
    directory = made["directory"]
    return ui.stack_parts(
        Group(
            ui.done("package ", ui.bold(made["package_id"]), " in ", ui.cell(directory)),
            ui.indent(ui.join_names(made["files"])),
        ),
        Group(
            Text("Next: edit `server.py`, then", style=ui.DIM),
            ui.copyable(f"toolgate publish {quote(directory)}"),
        ),
    )


def render_packages(packages: Sequence[JsonObject]) -> RenderableType:
    """One line a package."""
    if not packages:
        return Text("no packages yet: make one with `toolgate init`, then `toolgate publish DIR`")
    table = ui.grid("PACKAGE", "INSTALLED", "VERSIONS", "TOOLS", "NAME*")
    for one in packages:
        table.add_row(
            ui.bold(one["package_id"]),
            ui.cell(one["installed"] or "-"),
            ui.cell(len(one["versions"])),
            ui.cell(len(one["tools"]) if one["installed"] else "-"),
            ui.cell(one["name"]),
        )
    return table


def render_package(package: JsonObject) -> RenderableType:
    """One package in full."""
    about = ui.unheaded_grid(2)
    for label, value in (
        ("name", package["name"]),
        ("description", package["description"]),
        ("category", package["category"]),
        ("tags", ", ".join(package["tags"])),
        ("installed", package["installed"] or "no"),
        ("tools", ", ".join(package["tools"])),
    ):
        if value:
            about.add_row(ui.cell(label, ui.DIM), ui.cell(value))
    table = ui.grid("VERSION", "PUBLISHED", "BYTES", "SHA-256*")
    for one in package["versions"]:
        table.add_row(
            ui.cell(one["version"], "bold" if one["installed"] else ""),
            ui.cell(ui.render_time(one["at_ms"], ui.MINUTE_FORMAT)),
            ui.cell(f"{one['size']:,}"),
            ui.cell(one["sha256"][:16], ui.DIM),
        )
    return ui.stack_parts(ui.bold(package["package_id"]), about, table if package["versions"] else None)


def render_published(shown: JsonObject, *, gateway: str) -> RenderableType:
    """What became of a directory."""
    head = ui.sentence(
        Text("✓ ", style=ui.OK),
        ui.bold(f"{shown['package_id']} {shown['version']}"),
        f": {ui.count_of(shown['files'], 'file')}, {shown['size']:,} bytes",
        "" if shown["uploaded"] else ", published before",
    )
    if shown["install"] is None:
        wanted = f"{shown['package_id']}@{shown['version']}"
        hint = ui.copyable(f"toolgate install {wanted}{url_option(gateway)}")
        return ui.stack_parts(head, Group(Text("It is not installed. To do that:", style=ui.DIM), hint))
    return ui.stack_parts(
        head, render_installed(shown["install"], shown["server"], shown["url"], gateway=gateway)
    )


def render_installed(
    answer: JsonObject, server: JsonObject | None, url: str, *, gateway: str
) -> RenderableType:
    """An installation at `gateway`, the health of its server, and its URL."""
    head = Group(_headline(answer, "is installed"), *map(ui.indent, _tool_changes(answer["tools"])))
    return ui.stack_parts(
        head,
        ui.render_warnings(answer["warnings"]),
        _render_server(server),
        _render_url(answer["package_id"], url, gateway),
    )


def render_install_plan(answer: JsonObject, command: Sequence[str]) -> RenderableType:
    """An installation that was not made: how the tools differ, the records, and what tasks would notice."""
    changes = list(_tool_changes(answer["tools"]))
    shown = {**answer["plan"], "changes": [_without_hashes(one) for one in answer["changes"]]}
    return ui.stack_parts(
        Group(
            _headline(answer, "would be installed"),
            *map(ui.indent, changes or [Text("the same tools", ui.DIM)]),
        ),
        ui.render_warnings(one for one in answer["warnings"] if one not in answer["plan"]["warnings"]),
        render_records(shown, command),
    )


def _without_hashes(change: JsonObject) -> JsonObject:
    """A change as far as it says more than the difference between the tools does."""
    fields = change["fields"] if change["kind"] == "server" else ()
    return {**change, "fields": [one for one in fields if one["field"] != "package.sha256"]}


def render_uninstalled(answer: JsonObject) -> RenderableType:
    """A package that is gone."""
    removed: Sequence[str] = answer["removed_versions"]
    head = ui.done("package ", ui.bold(answer["package_id"]), " is gone")
    archives = [ui.indent(ui.sentence("archives removed: ", ui.join_names(removed)))] if removed else []
    return ui.stack_parts(Group(head, *archives), ui.render_warnings(answer["warnings"]))


def render_removed_version(answer: JsonObject) -> RenderableType:
    """An archive that is gone."""
    named = ui.bold(f"{answer['package_id']} {answer['version']}")
    return ui.done("the archive of ", named, " is gone")


def _headline(answer: JsonObject, verb: str) -> Text:
    before = f" (was {answer['before']})" if answer["before"] not in (None, answer["version"]) else ""
    if not answer["changes"] and verb == "is installed":
        verb = "was installed already: nothing to do"
    return ui.sentence(
        Text("✓ ", style=ui.OK) if verb.startswith("is") else Text(""),
        ui.bold(f"{answer['package_id']} {answer['version']}"),
        f" {verb}{before}",
        Text(f"  revision {answer['revision']}", style=ui.DIM),
    )


def _tool_changes(tools: JsonObject) -> Iterator[RenderableType]:
    """A line for tools that came and went, and a diff of each that is another now. Signs as in a diff."""
    if tools["added"]:
        yield ui.sentence(Text("+ ", style=ui.OK), ui.join_names(tools["added"]))
    if tools["removed"]:
        yield ui.sentence(Text("- ", style=ui.BAD), ui.join_names(tools["removed"]))
    for one in tools["renamed"]:
        yield ui.sentence(
            Text("~ ", style=ui.WARN), ui.cell(one["before"]), " is now ", ui.cell(one["after"])
        )
    for name, lines in tools["changed"].items():
        yield Group(ui.sentence(Text("~ ", style=ui.WARN), ui.cell(name)), *map(ui.render_diff_line, (lines)))


def _render_server(server: JsonObject | None) -> RenderableType | None:
    if server is None:
        return None
    health = ui.health_of(server)
    if health.get("state") == "connected":
        return _render_visible_tools(server)
    hint = f"`toolgate servers get {server['server_id']}` says more"
    return ui.sentence(
        Text("✗ ", style=ui.BAD),
        "it does not run yet: ",
        ui.cell(health.get("last_error") or health.get("state", "not known")),
        Text(f"; {hint}", style=ui.DIM),
    )


def _render_visible_tools(server: JsonObject) -> RenderableType:
    """How many of its tools callers can see."""
    known = len(server["tools"])
    visible = len(server.get("visible", server["tools"]))
    shown = f"it runs: {visible:,} of {ui.count_of(known, 'tool')} visible"
    if visible or not known:
        return ui.done(shown)
    why = f"; `toolgate explain --servers {server['server_id']}` says why"
    return ui.failed(shown, Text(why, style=ui.DIM))


def _render_url(package_id: str, url: str, gateway: str) -> RenderableType:
    connect = f"toolgate connect claude-code --servers {package_id} --write{url_option(gateway)}"
    return Group(
        Text("Paste this URL into a client, or let it be written there:", style=ui.DIM),
        ui.copyable(f"{url}\n{connect}"),
    )
