"""Every requirement has a test that names it, and every test that names one is in the manifest."""

from collections import Counter

from tests.architecture.requirements import MANIFEST, marked_tests, rendered, requirements


def test_the_manifest_lists_every_requirement_once_and_in_its_one_form() -> None:
    entries = requirements()
    counted = Counter(entry.document for entry in entries)

    assert counted == {"000": 49, "001": 2, "002": 104, "003": 6, "004": 27}
    assert all(entry.id.startswith(f"{entry.document}-") for entry in entries)
    assert MANIFEST.read_text("utf-8") == rendered(entries), "run python -m tests.architecture.requirements"


def test_every_test_of_the_manifest_exists_and_carries_the_requirements_id() -> None:
    marked = marked_tests()

    assert [
        f"{entry.id}: {test}"
        for entry in requirements()
        for test in entry.tests
        if entry.id not in marked.get(test, set())
    ] == []


def test_every_id_that_a_test_carries_is_in_the_manifest_with_that_test() -> None:
    listed = {(test, entry.id) for entry in requirements() for test in entry.tests}

    assert sorted({(test, each) for test, ids in marked_tests().items() for each in ids} - listed) == []


def test_every_requirement_has_a_test_and_none_is_open() -> None:
    assert [entry.id for entry in requirements() if not entry.tests or entry.open is not None] == []
