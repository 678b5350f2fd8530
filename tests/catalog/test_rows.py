"""The rows of the catalog: where each comes from, and what it says."""

import msgspec
import pytest

from tests.catalog.definition_samples import INPUT, checked
from toolgate.catalog.rows import MAX_ANNOTATIONS_BYTES, make_rows
from toolgate.model.names import ToolRef
from toolgate.model.packages import CatalogRow, Package
from toolgate.model.servers import ServerRecord, StdioLaunch
from toolgate.model.tools import ListState, ServerTools, ToolDefinition

RECORD = ServerRecord(server_id="fs", transport="stdio", stdio=StdioLaunch(command="fs"))
PACKAGE = Package(
    package_id="fs",
    version="1.0.0",
    sha256="0" * 64,
    name="文件",
    description="Files.",
    category="数据",
    tags=("files",),
    schema_version="v2",
    source="manifest",
)


def offer(*tools: ToolDefinition, state: ListState = "ready") -> ServerTools:
    return ServerTools(record=RECORD, state=state, tools={one.ref.name: one for one in tools})


def rows(
    package: Package | None = PACKAGE,
    tools: tuple[ToolDefinition, ...] = (),
    listed: ServerTools | None = None,
    record: ServerRecord = RECORD,
) -> tuple[CatalogRow, ...]:
    return make_rows(package, tools, record=record, offer=listed, at_ms=7)


@pytest.mark.requirement("004-15")
def test_a_declared_tool_has_all_that_its_definition_says() -> None:
    annotations = {"readOnlyHint": True}
    members = {"title": "Read", "outputSchema": {"type": "object"}, "annotations": annotations}
    definition = checked(**members)

    assert rows(tools=(checked(**members),)) == (
        CatalogRow(
            package_id="fs",
            tool_name="read_file",
            package_name="文件",
            package_description="Files.",
            category="数据",
            tags=("files",),
            title="Read",
            description="Reads a file.",
            input_schema=msgspec.json.encode(INPUT),
            output_schema=b'{"type":"object"}',
            annotations=b'{"readOnlyHint":true}',
            is_read_only=True,
            digest=definition.digest,
            tokens=definition.tokens,
            schema_version="v2",
            source="manifest",
            updated_at_ms=7,
        ),
    )


def test_a_title_among_the_annotations_is_one_too() -> None:
    (older,) = rows(tools=(checked(annotations={"title": "Read"}),))
    (newer,) = rows(tools=(checked(title="Read it", annotations={"title": "Read"}),))

    assert (older.title, newer.title) == ("Read", "Read it")


def test_what_the_server_lists_is_what_is_shown() -> None:
    same, new, changed = checked(), checked(name="new"), checked(name="moved", description="Now.")
    tools = (checked(), checked(name="moved", description="Then."), checked(name="gone"))

    found = rows(tools=tools, listed=offer(same, new, changed))

    assert [(row.full_name, row.source, row.description) for row in found] == [
        ("fs.moved", "discovered", "Now."),
        ("fs.new", "discovered", "Reads a file."),
        ("fs.read_file", "manifest", "Reads a file."),
    ]


def test_a_list_that_failed_later_still_counts() -> None:
    assert [row.source for row in rows(listed=offer(checked(), state="list_failed"))] == ["discovered"]
    assert [row.source for row in rows(tools=(checked(),), listed=offer(state="list_failed"))] == ["manifest"]


@pytest.mark.requirement("004-15")
def test_of_a_summary_the_name_and_description_are_known() -> None:
    raw = b'{"name":"find","description":"Finds."}'

    summary = ToolDefinition(ref=ToolRef("fs", "find"), raw=raw, digest="", tokens=9, description="Finds.")
    (row,) = rows(tools=(summary,))

    assert (row.full_name, row.source, row.description, row.digest) == ("fs.find", "summary", "Finds.", "")
    assert (row.input_schema, row.is_read_only) == (b"{}", False)
    assert row.tokens == 9


@pytest.mark.requirement("004-15")
def test_a_package_of_which_no_tool_is_known_has_one_row() -> None:
    package = Package(package_id="fs", version="0.0.0", sha256="0" * 64)

    for found in (rows(package), rows(None), rows(None, listed=offer(state="pending"))):
        assert [(row.full_name, row.source, row.schema_version) for row in found] == [
            ("fs.*", "legacy", "legacy")
        ]


def test_a_server_or_manifest_that_says_it_has_no_tools_has_no_rows() -> None:
    assert rows(None, listed=offer()) == ()
    assert rows() == ()


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        pytest.param(PACKAGE, ("Archive", "ops", ("old",)), id="before the manifest's"),
        pytest.param(None, ("Archive", "ops", ("old",)), id="without one"),
    ],
)
def test_what_the_record_says_goes_before(package: Package | None, expected: tuple[object, ...]) -> None:
    record = ServerRecord(
        server_id="fs",
        transport="stdio",
        stdio=RECORD.stdio,
        display_name="Archive",
        category="ops",
        tags=("old",),
    )

    (row,) = rows(package, listed=offer(checked()), record=record)

    assert (row.package_name, row.category, row.tags) == expected


def test_a_server_without_a_name_goes_by_its_id() -> None:
    assert rows(None)[0].package_name == "fs"


def test_annotations_past_their_limit_are_not_kept_but_heeded() -> None:
    annotations = {"readOnlyHint": True, "note": "x" * MAX_ANNOTATIONS_BYTES}

    (row,) = rows(tools=(checked(annotations=annotations),))

    assert (row.annotations, row.is_read_only) == (None, True)
