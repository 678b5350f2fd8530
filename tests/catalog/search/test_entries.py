"""What can be found of a tool, as text."""

from typing import Any

import pytest

from toolgate.catalog.word_search import MAX_PARAMETER_CHARS, SearchEntry, collect_parameter_text, make_entry
from toolgate.model.packages import CatalogRow


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"properties": {"path": {"description": "of a file"}}}, "path of a file", id="described"
        ),
        pytest.param({"properties": {"a": True, "b": {}}}, "a b", id="names alone"),
        pytest.param(
            {
                "properties": {
                    "rows": {"items": {"properties": {"cell": {"description": "a cell"}}}},
                    "to": {"properties": {"sheet": {}}},
                }
            },
            "rows to sheet cell a cell",
            id="nested ones behind",
        ),
        pytest.param({"properties": ["a"], "items": [1]}, "", id="other than a schema has it"),
        pytest.param({"properties": {"a": {"description": 5}}}, "a", id="a description of the wrong type"),
    ],
)
def test_parameter_text(schema: dict[str, Any], expected: str) -> None:
    assert collect_parameter_text(schema) == expected


def test_parameters_without_end_are_cut() -> None:
    wide = {"properties": {f"argument_{number}": {"description": "x" * 100} for number in range(10_000)}}
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"properties": {"inner": deep}}

    assert len(collect_parameter_text(wide)) == MAX_PARAMETER_CHARS
    assert len(collect_parameter_text(deep)) < MAX_PARAMETER_CHARS


def test_a_row_of_the_catalog_is_an_entry() -> None:
    row = CatalogRow(
        package_id="excel",
        tool_name="create_workbook",
        package_name="Excel 工具集",
        package_description="tables",
        category="data",
        tags=("office",),
        title="New workbook",
        description="创建新的工作簿",
        input_schema=b'{"properties":{"filename":{"description":"name"}}}',
    )

    assert make_entry(row) == SearchEntry(
        key="excel.create_workbook",
        name="create_workbook",
        server="excel",
        server_name="Excel 工具集",
        title="New workbook",
        description="创建新的工作簿",
        parameters="filename name",
        category="data",
        tags=("office",),
    )


def test_a_package_of_which_no_tool_is_known_is_found_by_what_it_says() -> None:
    row = CatalogRow(package_id="old", tool_name="*", package_name="Old", package_description="does things")

    assert make_entry(row) == SearchEntry(
        key="old.*", name="", server="old", server_name="Old", description="does things"
    )


@pytest.mark.parametrize("schema", [b"", b"[]", b"{", b"[" * 100_000], ids=["none", "list", "half", "deep"])
def test_a_schema_that_cannot_be_read_has_no_parameters(schema: bytes) -> None:
    row = CatalogRow(package_id="a", tool_name="b", input_schema=schema)

    assert make_entry(row).parameters == ""
