"""What servers offered in an earlier run, on disk: whole or not at all, bounded, checked, for its owner."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.upstream.memory_link import definition, record
from toolgate.catalog.listings import check_lists
from toolgate.model.servers import HttpEndpoint, ServerRecord, StdioLaunch
from toolgate.model.tools import ServerTools
from toolgate.upstream.pool.kept_definitions import KeptDefinitions, compute_launch_digest

pytestmark = pytest.mark.anyio


def offer_of(one: ServerRecord, *tools: bytes) -> ServerTools:
    lists = check_lists(one.server_id, tools=tools, prompts=(), resources=(), templates=())
    return ServerTools(record=one, state="ready", features=frozenset({"tools"}), **lists._asdict())


async def keep(directory: Path, *records: ServerRecord) -> None:
    async with KeptDefinitions(directory, clock_ms=lambda: 5) as known:
        for one in records:
            known.save(offer_of(one, definition("echo"), definition("a b")))


async def found(directory: Path, one: ServerRecord) -> list[str] | None:
    async with KeptDefinitions(directory) as known:
        offer, _ = known.find(one)
        return None if offer is None else list(offer.tools)


async def test_what_was_saved_is_found_by_the_next_run_with_names_calls_and_time(tmp_path: Path) -> None:
    offer = replace(offer_of(record(), definition("a b")), era="legacy", instructions="Be brief.")
    offer = replace(offer, quarantined={"bad": "no schema"})
    async with KeptDefinitions(tmp_path, clock_ms=lambda: 7) as known:
        known.save(offer)
    async with KeptDefinitions(tmp_path) as known:
        kept, verified_ms = known.find(record())

    assert (kept, verified_ms) == (offer, 7)
    assert kept is not None
    assert [tool.native_name for tool in kept.tools.values()] == ["a b"]


async def test_files_are_for_their_owner_and_hold_no_value_of_a_variable_or_header(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    stdio = ServerRecord(
        server_id="one", transport="stdio", stdio=StdioLaunch(command="x", env={"TOKEN": "hidden-1"})
    )
    endpoint = HttpEndpoint(url="http://127.0.0.1/mcp", headers={"X-Key": "hidden-2"})
    await keep(directory, stdio, ServerRecord(server_id="two", transport="streamable_http", http=endpoint))

    files = list(directory.iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert not any(b"hidden" in path.read_bytes() for path in files)
    assert compute_launch_digest(stdio) == compute_launch_digest(
        replace(stdio, stdio=StdioLaunch(command="x", env={"TOKEN": "other"}))
    )


def damage_content(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != "index.json":
            path.write_bytes(path.read_bytes().replace(b"echo", b"evil"))


def remove_content(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != "index.json":
            path.unlink()


def cut_index(directory: Path) -> None:
    index = directory / "index.json"
    index.write_bytes(index.read_bytes()[:-5])


def name_another_file(directory: Path) -> None:
    index = directory / "index.json"
    (directory.parent / "outside").write_text("{}")
    entries = json.loads(index.read_text())
    entries["servers"]["one"]["content"] = "../outside"
    index.write_text(json.dumps(entries))


def be_of_a_later_version(directory: Path) -> None:
    index = directory / "index.json"
    index.write_text(index.read_text().replace('"version":1', '"version":2'))


def link_content(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != "index.json":
            moved = path.rename(directory.parent / "moved")
            path.symlink_to(moved)


@pytest.mark.parametrize(
    "spoil",
    [
        damage_content,
        remove_content,
        cut_index,
        name_another_file,
        be_of_a_later_version,
        link_content,
    ],
)
async def test_what_is_damaged_or_foreign_is_not_known_and_learned_again(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "kept"
    await keep(directory, record())
    spoil(directory)
    with caplog.at_level(logging.WARNING):
        lost, warnings = await found(directory, record()), len(caplog.records)
    await keep(directory, record())

    assert (lost, warnings) == (None, 1)
    assert len(await found(directory, record()) or ()) == 2


async def test_another_command_argument_variable_url_or_package_is_another_server(tmp_path: Path) -> None:
    await keep(tmp_path, record())
    launch = StdioLaunch(command="serve")
    others = [
        replace(record(), stdio=replace(launch, args=("x",))),
        replace(record(), stdio=replace(launch, env={"A": ""})),
        replace(record(), stdio=replace(launch, cwd="/")),
        replace(record(), sharing="per_session"),
        record("two"),
    ]

    assert [await found(tmp_path, one) for one in others] == [None] * 5
    assert await found(tmp_path, replace(record(), allowed_tools=("*",), tags=("a",))) is not None


async def test_the_oldest_are_forgotten_where_there_are_too_many(tmp_path: Path) -> None:
    clock_ms = iter(range(1, 100)).__next__
    names = [f"s{number}" for number in range(6)]
    async with KeptDefinitions(tmp_path, clock_ms=clock_ms, max_servers=4) as known:
        for name in names:
            known.save(offer_of(record(name), definition(name)))

    assert [await found(tmp_path, record(name)) for name in names] == [
        None,
        None,
        *([name] for name in names[2:]),
    ]
    assert len(list(tmp_path.iterdir())) == 5


async def test_a_directory_that_cannot_be_written_costs_nothing_but_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    await keep(tmp_path / "file", record())

    assert "cannot be written to" in caplog.text
