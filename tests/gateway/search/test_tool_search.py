"""The index of a node's tools follows the snapshot once a caller searches, and does no needless work."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import msgspec
import pytest

from tests.upstream.memory_link import definition, record
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.find_tools import MAX_DESCRIPTION_CHARS, SearchArguments
from toolgate.catalog.word_search import SearchEntry
from toolgate.errors import CallTimedOut, ServerBusy
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View, ViewSettings
from toolgate.gateway.search import INDEX_BATCH, MAX_WAITING, MAX_WAITING_EACH, HybridIndex, ToolSearch
from toolgate.model.principals import Principal
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.resolve import ScopeInputs

pytestmark = pytest.mark.anyio

ADMIN = Principal(id="admin", role="admin")


# On a busy machine, indexing a few tools may take seconds.
PATIENT_S = 60.0


def patient() -> ToolSearch:
    return ToolSearch(HybridIndex(), index_wait_s=PATIENT_S)


def offer(server_id: str, *tools: bytes, of: ServerRecord | None = None) -> ServerTools:
    kept, _ = check_tools(server_id, tools)
    return ServerTools(
        record=of or record(server_id, allowed_tools=("*",)), state="ready", tools=kept, features=frozenset()
    )


def snapshot(*offers: ServerTools, serial: int = 1) -> Snapshot:
    return Snapshot(serial=serial, servers={one.record.server_id: one for one in offers})


def view(platform: Snapshot, principal: Principal = ADMIN) -> View:
    caller = Caller(principal, mode="find")
    scope = compose(ScopeInputs(platform, principal.ceiling))
    return View(
        caller,
        scope,
        platform,
        ViewSettings(page_size=10, decide=unasked, on_growth=lambda _view, _grown: None),
    )


def unasked(*_: object) -> NoReturn:
    raise AssertionError("no resource is looked for")


def result(members: Mapping[str, msgspec.Raw]) -> Any:
    return msgspec.json.decode(members["structuredContent"])


async def found(by: ToolSearch, platform: Snapshot, query: str, **options: Any) -> list[str]:
    members = await by.search(view(platform), platform, SearchArguments(query=query, **options))
    return [tool["name"] for tool in result(members)["tools"]]


class Watched(HybridIndex):
    """Notes what is put into it, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[str] = []
        self.threads: set[int] = set()

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        self.puts.append(group)
        self.threads.add(threading.get_ident())
        super().put(group, entries)


ONE = offer("one", definition("read", description="read a page"))
TWO = offer("two", definition("write", description="write a page"))


async def test_only_what_changed_is_indexed_again_and_never_in_the_loops_thread() -> None:
    searching = Watched()
    by = ToolSearch(searching, index_wait_s=PATIENT_S)
    await found(by, snapshot(ONE, TWO), "page")
    await found(by, snapshot(ONE, TWO), "page")
    other = offer("two", definition("scribble", description="scribble on a page"))
    changed = await found(by, snapshot(ONE, other, serial=2), "page")

    assert searching.puts == ["one", "two", "two"]
    assert sorted(changed) == ["one.read", "two.scribble"]
    assert threading.get_ident() not in searching.threads


async def test_a_server_whose_health_alone_changed_is_not_indexed_again() -> None:
    searching = Watched()
    by = ToolSearch(searching, index_wait_s=PATIENT_S)
    await found(by, snapshot(ONE), "page")
    stale = ServerTools(record=ONE.record, state="list_failed", tools=ONE.tools, is_stale=True)

    assert await found(by, snapshot(stale, serial=2), "page") == ["one.read"]
    assert searching.puts == ["one"]


async def test_a_server_that_left_is_not_found() -> None:
    searching = Watched()
    by = ToolSearch(searching, index_wait_s=PATIENT_S)
    await found(by, snapshot(ONE, TWO), "page")

    assert await found(by, snapshot(ONE, serial=2), "page") == ["one.read"]
    await by.settled()
    assert searching.groups() == {"one"}


async def test_searches_at_once_share_one_catching_up_and_one_that_gives_up_does_not_end_it() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Watched):
        def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
            begun.set()
            assert go_on.wait(60)
            super().put(group, entries)

    searching = Slow()
    by = ToolSearch(searching, index_wait_s=PATIENT_S)
    first, *others = (asyncio.create_task(found(by, snapshot(ONE), "page")) for _ in range(3))
    assert await asyncio.to_thread(begun.wait, 5)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go_on.set()
    async with asyncio.timeout(60):
        responses = await asyncio.gather(*others)

    assert responses == [["one.read"]] * 2
    assert searching.puts == ["one"]


async def test_a_search_waits_for_so_long_and_what_it_waited_for_goes_on() -> None:
    go_on = threading.Event()

    class Slow(Watched):
        def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
            assert go_on.wait(60)
            super().put(group, entries)

    by = ToolSearch(Slow(), timeout_s=1.0, index_wait_s=PATIENT_S)
    with pytest.raises(CallTimedOut):
        await found(by, snapshot(ONE), "page")
    go_on.set()
    await by.settled()

    assert await found(by, snapshot(ONE), "page") == ["one.read"]


async def test_a_catching_up_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Watched):
        def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
            super().put(group, entries)
            if len(self.puts) == 1:
                raise MemoryError

    by, platform = ToolSearch(Failing(), index_wait_s=PATIENT_S), snapshot(ONE)
    members = await by.search(view(platform), platform, SearchArguments(query="page"))

    assert result(members)["note"].startswith("The tools of 1 of 1 servers are still being indexed")
    assert "cannot index all tools for search" in caplog.text
    assert await found(by, platform, "page") == ["one.read"]


async def test_a_search_answers_with_what_is_indexed_and_says_how_much_is_not() -> None:
    go_on, has_one = threading.Event(), threading.Event()

    class Slow(Watched):
        def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
            assert group == "one" or go_on.wait(60)
            super().put(group, entries)
            has_one.set()

    by, platform = ToolSearch(Slow(), index_wait_s=0.5, index_batch=1), snapshot(ONE, TWO)
    by.prepare(platform)
    assert await asyncio.to_thread(has_one.wait, 60)
    early = result(await by.search(view(platform), platform, SearchArguments(query="page")))
    go_on.set()
    await by.settled()
    late = result(await by.search(view(platform), platform, SearchArguments(query="page")))

    assert [tool["name"] for tool in early["tools"]] == ["one.read"]
    assert early["note"] == (
        "The tools of 1 of 2 servers are still being indexed: search again in a moment to find them, too."
    )
    assert sorted(tool["name"] for tool in late["tools"]) == ["one.read", "two.write"]
    assert "note" not in late


async def test_a_search_waits_for_the_servers_of_its_caller_and_not_for_all() -> None:
    go_on = threading.Event()
    many = [offer(f"s{n:03}", definition("read", description="read a page")) for n in range(100)]

    class Slow(Watched):
        def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
            super().put(group, entries)
            assert len(self.puts) < 3 * INDEX_BATCH or go_on.wait(60)

    searching = Slow()
    by, platform = ToolSearch(searching, index_wait_s=PATIENT_S), snapshot(*many)
    by.prepare(platform)  # the first servers are on their way
    members = await by.search(view(snapshot(many[99])), platform, SearchArguments(query="page"))
    indexed = len(searching.puts)
    go_on.set()
    await by.settled()

    assert [tool["name"] for tool in result(members)["tools"]] == ["s099.read"]
    assert indexed <= 3 * INDEX_BATCH
    assert sorted(searching.puts) == [one.record.server_id for one in many]


async def test_too_many_searches_are_busy() -> None:
    by, platform = patient(), snapshot(ONE)
    people = [Principal(id=str(number), role="agent") for number in range(5)]

    assert await turned_away(by, platform, people * MAX_WAITING_EACH) == 5 * MAX_WAITING_EACH - MAX_WAITING
    assert await turned_away(by, platform, people * 2) == 0


async def test_too_many_searches_of_one_principal_leave_room_for_others() -> None:
    by, platform = patient(), snapshot(ONE)
    other = Principal(id="other", role="agent")

    assert await turned_away(by, platform, [*[ADMIN] * (MAX_WAITING_EACH + 3), other]) == 3


async def turned_away(by: ToolSearch, platform: Snapshot, callers: Sequence[Principal]) -> int:
    """How many of these searches at once are."""
    searches = [by.search(view(platform, one), platform, SearchArguments(query="page")) for one in callers]
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*searches, return_exceptions=True)
    return sum(isinstance(end, ServerBusy) for end in ends)


async def test_what_a_view_of_an_older_snapshot_shows_is_what_it_holds() -> None:
    """The index may be ahead: what is said of a tool is what the caller's own view has of it."""
    by = patient()
    newer = offer(
        "one", definition("read", description="read a page, or all", annotations={"readOnlyHint": True})
    )
    await found(by, snapshot(newer, serial=2), "page")
    members = await by.search(view(snapshot(ONE)), snapshot(newer, serial=2), SearchArguments(query="page"))
    reading = await by.search(
        view(snapshot(ONE)), snapshot(newer, serial=2), SearchArguments(query="page", read_only=True)
    )

    [tool] = result(members)["tools"]
    assert (tool["description"], "readOnly" in tool) == ("read a page", False)
    assert result(reading)["tools"] == []


async def test_a_server_that_left_meanwhile_passes_no_filter() -> None:
    by = patient()
    members = await by.search(view(snapshot(ONE)), snapshot(serial=2), SearchArguments(server="one"))

    assert result(members)["total"] == 0


async def test_a_server_that_is_described_otherwise_is_found_by_the_new_words() -> None:
    by, before = patient(), offer("one", definition("a"))
    tagged = replace(before, record=replace(before.record, tags=("spreadsheet",)))
    await found(by, snapshot(before), "spreadsheet")
    members = await by.search(
        view(snapshot(tagged, serial=2)), snapshot(tagged, serial=2), SearchArguments(query="spreadsheet")
    )

    assert "note" not in result(members)


async def test_a_server_without_a_category_is_uncategorized_as_in_the_catalog() -> None:
    named = offer("two", definition("b"), of=record("two", allowed_tools=("*",), category="x"))
    by, platform = (
        patient(),
        snapshot(offer("one", definition("a")), named),
    )

    assert await found(by, platform, "", category="uncategorized") == ["one.a"]


async def test_a_tool_is_shown_with_its_title_and_the_beginning_of_a_long_description() -> None:
    long = offer("one", definition("read", title="Reader", description="page " * 100))
    platform = snapshot(long)
    members = await patient().search(view(platform), platform, SearchArguments(query="page"))

    [tool] = result(members)["tools"]
    assert tool["title"] == "Reader"
    assert len(tool["description"]) == MAX_DESCRIPTION_CHARS
    assert tool["description"].endswith("…")


async def test_a_tool_is_found_by_its_title_its_arguments_and_what_its_server_is_tagged_with() -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string", "description": "postal code"}}}
    by_title = offer("one", definition("a", annotations={"title": "Weather"}))
    by_argument = offer("two", definition("b", inputSchema=schema))
    by_tag = offer(
        "three",
        definition("c"),
        of=record("three", allowed_tools=("*",), tags=("spreadsheet",), category="x"),
    )
    by, platform = patient(), snapshot(by_title, by_argument, by_tag)

    queries = ("weather", "postal code", "spreadsheet")
    assert [await found(by, platform, query) for query in queries] == [["one.a"], ["two.b"], ["three.c"]]


async def test_lod_1_a_view_that_is_searched_weighs_more() -> None:
    platform, grown = snapshot(ONE, TWO), list[int]()
    caller = Caller(ADMIN, mode="find")
    scope = compose(ScopeInputs(platform, ADMIN.ceiling))
    settings = ViewSettings(page_size=10, decide=unasked, on_growth=lambda _, size: grown.append(size))
    large = View(caller, scope, platform, settings)
    before = large.size
    for _ in range(2):
        await patient().search(large, platform, SearchArguments(query="page"))

    assert large.size - before == sum(grown) > 0
    assert len(grown) == 1
