"""Packages: what there is, what installing did or would do, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.changes import render_records
from toolgate.cli.render.layout import (
    BAD,
    DIM,
    MINUTE_FORMAT,
    OK,
    WARN,
    cell,
    copyable,
    count_of,
    diff_line,
    fact_table,
    grid,
    health_of,
    indent,
    join_names,
    render_time,
    render_warnings,
    sentence,
    stack_parts,
)
from toolgate.cli.render.up import url_option

JsonObject = Mapping[str, Any]


def render_new_package(made: JsonObject) -> RenderableType:
    """A new package, and what to do with it."""
    directory = made["directory"]
    return stack_parts(
        Group(
            sentence(
                Text("✓ ", style=OK), "package ", cell(made["package_id"], "bold"), " in ", cell(directory)
            ),
            indent(join_names(made["files"])),
        ),
        Group(
            Text("Next: edit `server.py`, then", style=DIM),
            copyable(f"toolgate publish {quote(directory)}"),
        ),
    )


def render_packages(packages: Sequence[JsonObject]) -> RenderableType:
    """One line a package."""
    if not packages:
        return Text("no packages yet: make one with `toolgate init`, then `toolgate publish DIR`")
    table = grid("PACKAGE", "INSTALLED", "VERSIONS", "TOOLS", "NAME", flexible={"NAME"})
    for one in packages:
        table.add_row(
            cell(one["package_id"], "bold"),
            cell(one["installed"] or "-"),
            cell(len(one["versions"])),
            cell(len(one["tools"]) if one["installed"] else "-"),
            cell(one["name"]),
        )
    return table


def render_package(package: JsonObject) -> RenderableType:
    """One package in full."""
    about = fact_table(2)
    for label, value in (
        ("name", package["name"]),
        ("description", package["description"]),
        ("category", package["category"]),
        ("tags", ", ".join(package["tags"])),
        ("installed", package["installed"] or "no"),
        ("tools", ", ".join(package["tools"])),
    ):
        if value:
            about.add_row(cell(label, DIM), cell(value))
    table = grid("VERSION", "PUBLISHED", "BYTES", "SHA-256", flexible={"SHA-256"})
    for one in package["versions"]:
        table.add_row(
            cell(one["version"], "bold" if one["installed"] else ""),
            cell(render_time(one["at_ms"], MINUTE_FORMAT)),
            cell(f"{one['size']:,}"),
            cell(one["sha256"][:16], DIM),
        )
    return stack_parts(cell(package["package_id"], "bold"), about, table if package["versions"] else None)


def render_published(shown: JsonObject, *, gateway: str) -> RenderableType:
    """What became of a directory."""
    head = sentence(
        Text("✓ ", style=OK),
        cell(f"{shown['package_id']} {shown['version']}", "bold"),
        f": {count_of(shown['files'], 'file')}, {shown['size']:,} bytes",
        "" if shown["uploaded"] else ", published before",
    )
    if shown["install"] is None:
        wanted = f"{shown['package_id']}@{shown['version']}"
        hint = copyable(f"toolgate install {wanted}{url_option(gateway)}")
        return stack_parts(head, Group(Text("It is not installed. To do that:", style=DIM), hint))
    return stack_parts(
        head, render_installed(shown["install"], shown["server"], shown["url"], gateway=gateway)
    )


def render_installed(
    answer: JsonObject, server: JsonObject | None, url: str, *, gateway: str
) -> RenderableType:
    """An installation that was made at `gateway`, how its server fares, and the URL to call it at."""
    head = Group(_headline(answer, "is installed"), *map(indent, _tool_changes(answer["tools"])))
    return stack_parts(
        head,
        render_warnings(answer["warnings"]),
        _render_server(server),
        _render_url(answer["package_id"], url, gateway),
    )


def render_install_plan(answer: JsonObject, command: Sequence[str]) -> RenderableType:
    """An installation that was not made: how the tools differ, the records, and what tasks would notice."""
    changes = list(_tool_changes(answer["tools"]))
    shown = {**answer["plan"], "changes": [_without_hashes(one) for one in answer["changes"]]}
    return stack_parts(
        Group(
            _headline(answer, "would be installed"), *map(indent, changes or [Text("the same tools", DIM)])
        ),
        render_warnings(one for one in answer["warnings"] if one not in answer["plan"]["warnings"]),
        render_records(shown, command),
    )


def _without_hashes(change: JsonObject) -> JsonObject:
    """A change as far as it says more than the difference between the tools does."""
    fields = change["fields"] if change["kind"] == "server" else ()
    return {**change, "fields": [one for one in fields if one["field"] != "package.sha256"]}


def render_uninstalled(answer: JsonObject) -> RenderableType:
    """A package that is gone."""
    removed: Sequence[str] = answer["removed_versions"]
    head = sentence(Text("✓ ", style=OK), "package ", cell(answer["package_id"], "bold"), " is gone")
    archives = [indent(sentence("archives removed: ", join_names(removed)))] if removed else []
    return stack_parts(Group(head, *archives), render_warnings(answer["warnings"]))


def render_removed_version(answer: JsonObject) -> RenderableType:
    """An archive that is gone."""
    named = cell(f"{answer['package_id']} {answer['version']}", "bold")
    return sentence(Text("✓ ", style=OK), "the archive of ", named, " is gone")


def _headline(answer: JsonObject, verb: str) -> Text:
    before = f" (was {answer['before']})" if answer["before"] not in (None, answer["version"]) else ""
    if not answer["changes"] and verb == "is installed":
        verb = "was installed already: nothing to do"
    return sentence(
        Text("✓ ", style=OK) if verb.startswith("is") else Text(""),
        cell(f"{answer['package_id']} {answer['version']}", "bold"),
        f" {verb}{before}",
        Text(f"  revision {answer['revision']}", style=DIM),
    )


def _tool_changes(tools: JsonObject) -> Iterator[RenderableType]:
    """A line for tools that came and went, and a diff of each that is another now. Signs as in a diff."""
    if tools["added"]:
        yield sentence(Text("+ ", style=OK), join_names(tools["added"]))
    if tools["removed"]:
        yield sentence(Text("- ", style=BAD), join_names(tools["removed"]))
    for one in tools["renamed"]:
        yield sentence(Text("~ ", style=WARN), cell(one["before"]), " is now ", cell(one["after"]))
    for name, lines in tools["changed"].items():
        yield Group(sentence(Text("~ ", style=WARN), cell(name)), *map(indent, map(diff_line, lines)))


def _render_server(server: JsonObject | None) -> RenderableType | None:
    if server is None:
        return None
    health = health_of(server)
    if health.get("state") == "connected":
        return _render_visible_tools(server)
    hint = f"`toolgate servers get {server['server_id']}` says more"
    return sentence(
        Text("✗ ", style=BAD),
        "it does not run yet: ",
        cell(health.get("last_error") or health.get("state", "not known")),
        Text(f"; {hint}", style=DIM),
    )


def _render_visible_tools(server: JsonObject) -> RenderableType:
    """How many of its tools callers can see."""
    known = len(server["tools"])
    visible = len(server.get("visible", server["tools"]))
    shown = f"it runs: {visible:,} of {count_of(known, 'tool')} visible"
    if visible or not known:
        return sentence(Text("✓ ", style=OK), shown)
    why = f"; `toolgate explain --servers {server['server_id']}` says why"
    return sentence(Text("✗ ", style=BAD), shown, Text(why, style=DIM))


def _render_url(package_id: str, url: str, gateway: str) -> RenderableType:
    connect = f"toolgate connect claude-code --servers {package_id} --write{url_option(gateway)}"
    return Group(
        Text("Paste this URL into a client, or let it be written there:", style=DIM),
        copyable(f"{url}\n{connect}"),
    )
