"""Finding tools by words."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.word_search import MAX_QUERY_CHARS, MAX_QUERY_TERMS, SearchEntry, SearchIndex


def tool(key: str, description: str = "", **more: object) -> SearchEntry:
    server, _, name = key.partition(".")
    return replace(
        SearchEntry(key=key, name=name, server=server, server_name=server, description=description),
        **more,  # type: ignore[arg-type]
    )


TOOLS = [
    tool("excel.create_workbook", "创建新的 Excel 工作簿", server_name="Excel 工具集", tags=("spreadsheet",)),
    tool("excel.delete_sheet", "Remove a sheet from a workbook", category="office"),
    tool("sheets.createSpreadsheet", "Create a new spreadsheet with a title", parameters="title folder"),
    tool("files.read_file", "Read the complete contents of a file", parameters="path encoding of the file"),
    tool("files.list_directory", "List what is in a directory"),
    tool("weather.forecast", "天气预报：查询城市未来几天的天气", title="Weather forecast"),
    tool("github.search_issues", "Search issues and pull requests on GitHub"),
    tool("mail.send", "Envoyer un courriel à quelqu'un"),
    tool("jp.kensaku", "ファイルを検索する"),
    tool("kr.find", "파일을 검색합니다"),
]


def index_of(entries: Sequence[SearchEntry]) -> SearchIndex:
    index = SearchIndex()
    for server in dict.fromkeys(entry.server for entry in entries):
        index.put(server, [entry for entry in entries if entry.server == server])
    return index


def found(index: SearchIndex, query: str, limit: int = 10, within: frozenset[str] | None = None) -> list[str]:
    return index.search(query, limit=limit, within=within)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        pytest.param("create spreadsheet", "sheets.createSpreadsheet", id="English"),
        pytest.param("创建 表格 工作簿", "excel.create_workbook", id="Chinese"),
        pytest.param("创建一个新的excel文件", "excel.create_workbook", id="mixed"),
        pytest.param("城市天气", "weather.forecast", id="Chinese without a space"),
        pytest.param("簿", "excel.create_workbook", id="one character"),
        pytest.param("ファイル検索", "jp.kensaku", id="Japanese"),
        pytest.param("파일 검색", "kr.find", id="Korean"),
        pytest.param("envoyer courriel", "mail.send", id="French"),
        pytest.param("READ_FILE", "files.read_file", id="a name, in another case"),
        pytest.param("files.list_directory", "files.list_directory", id="a full name"),
        pytest.param("encoding", "files.read_file", id="an argument"),
        pytest.param("office", "excel.delete_sheet", id="a category"),
        pytest.param("issue", "github.search_issues", id="another form of a word"),
        pytest.param("show folder", "files.list_directory", id="other words for it"),
        pytest.param("Please help me to find a GitHub issue", "github.search_issues", id="a sentence"),
    ],
)
def test_what_suits_is_found_first(query: str, best: str) -> None:
    assert found(index_of(TOOLS), query)[0] == best


@pytest.mark.parametrize("query", ["", "???", "zzz", "\ud800", "\0"])
def test_what_suits_nothing_finds_nothing(query: str) -> None:
    assert found(index_of(TOOLS), query) == []


def test_what_changed_finds_the_log_and_the_differences() -> None:
    """The README's own example, over the tools of the git server."""
    git = {
        "git_add": "Adds file contents to the staging area",
        "git_branch": "List Git branches",
        "git_checkout": "Switches branches",
        "git_commit": "Records changes to the repository",
        "git_create_branch": "Creates a new branch from an optional base branch",
        "git_diff": "Shows differences between branches or commits",
        "git_diff_staged": "Shows changes that are staged for commit",
        "git_diff_unstaged": "Shows changes in the working directory that are not yet staged",
        "git_log": "Shows the commit logs",
        "git_reset": "Unstages all staged changes",
        "git_show": "Shows the contents of a commit, or of a file or directory given as <revision>:<path>",
        "git_status": "Shows the working tree status",
    }
    index = index_of([tool(f"git.{name}", description) for name, description in git.items()] + TOOLS)

    found = index.search("what changed", limit=10)

    assert {"git.git_log", "git.git_diff", "git.git_diff_staged", "git.git_diff_unstaged"} <= set(found)


def test_a_word_counts_more_than_its_synonym() -> None:
    index = index_of([tool("a.delete_it", "x"), tool("b.remove_it", "x")])

    assert found(index, "remove") == ["b.remove_it", "a.delete_it"]
    assert found(index, "delete") == ["a.delete_it", "b.remove_it"]


def test_a_name_counts_more_than_a_description_and_that_more_than_parameters() -> None:
    index = index_of([tool("a.x", parameters="chart"), tool("b.x", "chart"), tool("c.chart")])

    assert found(index, "chart") == ["c.chart", "b.x", "a.x"]


def test_equals_are_in_the_order_of_their_keys_and_a_limit_takes_the_first() -> None:
    index = index_of([tool(f"{server}.same", server_name="") for server in "dbca"])

    assert found(index, "same", limit=3) == ["a.same", "b.same", "c.same"]
    assert found(index, "same", limit=0) == []


def test_a_group_is_replaced_as_a_whole_and_dropped() -> None:
    index = index_of([tool("a.old"), tool("b.old")])
    index.put("a", [tool("a.new")])
    replaced = found(index, "old"), found(index, "new"), index.groups()
    index.drop("a")
    index.drop("never there")

    assert replaced == (["b.old"], ["a.new"], {"a", "b"})
    assert (found(index, "new"), index.groups()) == ([], {"b"})


def test_what_is_there_already_is_not_taken_in_again() -> None:
    index = index_of([tool("a.read"), tool("a.write")])
    before = index._shown
    index.put("a", [tool("a.read"), tool("a.write")])
    same = index._shown
    index.put("a", [tool("a.write"), tool("a.read")])

    assert same is before
    assert index._shown is not before


def test_what_was_replaced_many_times_takes_no_more_room() -> None:
    index = index_of([tool("keep.me", "for good"), tool("empty.x")])
    index.put("empty", [])
    for number in range(3_000):
        index.put("a", [tool("a.read", f"version{number}")])

    keys, postings, live = index._shown
    assert len(keys) == len(live) < 1_100
    assert len(postings) < 2_200
    assert found(index, "2999 read") == ["a.read"]
    assert found(index, "2998 good") == ["keep.me"]
    index.put("keep", [])
    assert found(index, "good") == []


def test_only_so_much_of_a_query_counts() -> None:
    index = index_of([tool("a.early"), tool("b.late")])
    filling = " ".join(f"w{number}x" for number in range(MAX_QUERY_TERMS))

    assert found(index, f"early {filling} late") == ["a.early"]
    assert found(index, "early" + " " * MAX_QUERY_CHARS + "late") == ["a.early"]


KEYS = [f"{server}.{name}" for server in ("a", "b", "c") for name in ("one", "two", "three")]
WORDS = ["read", "write", "file", "文件", "读取", "sheet", "the", "list", "remove"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
CORPORA = st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=9)


def entries_of(corpus: Mapping[str, str]) -> list[SearchEntry]:
    return [tool(key, text) for key, text in corpus.items()]


@given(CORPORA, st.frozensets(st.sampled_from(KEYS)), TEXTS, st.integers(0, 10))
def test_what_is_not_within_is_as_if_it_were_not_there(
    corpus: dict[str, str], within: frozenset[str], query: str, limit: int
) -> None:
    """Scores too: a caller learns nothing from them about what it may not see."""
    alone = index_of(entries_of({key: text for key, text in corpus.items() if key in within}))

    assert index_of(entries_of(corpus)).search(query, limit=limit, within=within) == alone.search(
        query, limit=limit
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), TEXTS, st.booleans()), max_size=12), TEXTS)
def test_after_any_changes_an_index_answers_like_a_new_one(
    changes: list[tuple[str, str, bool]], query: str
) -> None:
    index = SearchIndex()
    there: dict[str, list[SearchEntry]] = {}
    for group, text, is_dropped in changes:
        if is_dropped:
            index.drop(group)
            there.pop(group, None)
        else:
            there[group] = [tool(f"{group}.one", text), tool(f"{group}.two", text[::2])]
            index.put(group, there[group])
    rebuilt = SearchIndex()
    for group, entries in there.items():
        rebuilt.put(group, entries)

    assert index.search(query, limit=10) == rebuilt.search(query, limit=10)
    assert index.groups() == there.keys()


def test_readers_see_a_group_before_a_change_or_after_it() -> None:
    """A group is 20 tools of one version; a search meanwhile finds 20 of the same."""
    index = SearchIndex()
    index.put("rest", [tool(f"rest.same{number}", "steady") for number in range(100)])
    index.put("a", versions(0))
    seen: list[list[str]] = []
    is_over = threading.Event()

    def read() -> None:
        seen.append(index.search("group", limit=100))
        while not is_over.is_set():
            seen.append(index.search("group", limit=100))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 150):
        index.put("a", versions(number))
    is_over.set()
    reader.join(60)

    assert {len(hits) for hits in seen} == {20}
    assert {len({key.partition("-")[2] for key in hits}) for hits in seen} == {1}


def versions(number: int) -> list[SearchEntry]:
    return [tool(f"a.t{place}-{number}", "group") for place in range(20)]
