"""The quality of catalog rows, and when the fallback ends."""

import pytest

from toolgate.catalog.rows import CatalogQuality, RowQuality, assess_rows, sum_qualities
from toolgate.model.packages import ALL_TOOLS, CatalogRow

FULL = CatalogRow(package_id="a", tool_name="x", source="manifest", input_schema=b'{"type":"object"}')
LISTED = CatalogRow(package_id="a", tool_name="y", source="discovered", description="Does y")
SUMMARY = CatalogRow(package_id="b", tool_name="z", source="summary", description="Does z")
UNKNOWN = CatalogRow(package_id="c", tool_name=ALL_TOOLS, source="legacy")


def test_rows_are_counted_by_source_and_by_what_they_have() -> None:
    found = assess_rows([FULL, LISTED, SUMMARY, UNKNOWN])

    assert found == RowQuality(
        manifest=1, discovered=1, summary=1, legacy=1, with_schema=1, with_description=2
    )
    assert (found.rows, found.full, found.fallback, found.full_percent) == (4, 2, 2, 50.0)
    assert sum_qualities([found, assess_rows([FULL])]).full_percent == 60.0
    assert assess_rows([]).full_percent == 100.0


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert RowQuality(manifest=99_999, legacy=1).full_percent == 99.9


@pytest.mark.parametrize(
    ("ends_at", "shown"), [(None, "abc"), (50.1, "abc"), (50.0, "a"), (0.0, "a"), (100.0, "abc")]
)
def test_rows_of_the_fallback_are_hidden_from_the_threshold_on(ends_at: float | None, shown: str) -> None:
    rows = {"a": (FULL, LISTED), "b": (SUMMARY,), "c": (UNKNOWN,)}
    quality = CatalogQuality(ends_at)
    for package_id, group in rows.items():
        quality.put(package_id, group)

    assert quality.select(rows) == {package_id: rows[package_id] for package_id in shown}


def test_a_package_that_is_gone_does_not_count() -> None:
    quality = CatalogQuality(100)
    quality.put("a", [FULL])
    quality.put("c", [UNKNOWN])
    before = quality.has_ended
    quality.drop("c")
    quality.drop("c")

    assert (before, quality.has_ended) == (False, True)
    assert dict(quality.packages) == {"a": assess_rows([FULL])}
