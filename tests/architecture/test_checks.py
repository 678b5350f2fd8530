"""The checks of tests/checks.toml and the tests that name them match both ways."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.architecture.source_tree import ROOT, modules

CHECKS = tomllib.loads((ROOT / "tests" / "checks.toml").read_text("utf-8"))
GAPS = {check for check, entry in CHECKS.items() if "gap" in entry}
GROUPS = sorted({check.partition("-")[0] for check in CHECKS})
NAMED = re.compile(rf"(?<![a-z0-9])({'|'.join(GROUPS)})[-_](\d+)((?:_and_\d+)*)(?![0-9])", re.IGNORECASE)


def named_in(text: str) -> Iterator[str]:
    """The checks that a text names."""
    for group, first, more in NAMED.findall(text):
        for number in (first, *re.findall(r"\d+", more)):
            yield f"{group.upper()}-{number}"


def naming_modules() -> dict[str, list[str]]:
    """The modules of tests that name each check."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules("tests"):
        if (
            PurePath(module.name).name.startswith("test_")
            and module.name != "tests/architecture/test_checks.py"
        ):
            for check in set(named_in(module.text)):
                found[check].append(module.name)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("def test_fuz_7_ids()", ["FUZ-7"], id="in a name"),
        pytest.param("test_sco_13_and_15_a_session", ["SCO-13", "SCO-15"], id="two of a group"),
        pytest.param("test_fuz_7_and_sco_17_equal", ["FUZ-7", "SCO-17"], id="of two groups"),
        pytest.param('id="chd-4 a child dies"', ["CHD-4"], id="in the id of a case"),
        pytest.param("SHU-3: each stream, and BUD-6.", ["SHU-3", "BUD-6"], id="in words"),
        pytest.param("ups and downs, tups-1, ups-x", [], id="nothing"),
    ],
)
def test_the_names_of_checks_are_found(text: str, expected: list[str]) -> None:
    assert list(named_in(text)) == expected


def test_every_check_is_named_by_a_test_or_says_why_not() -> None:
    named = naming_modules()

    assert sorted(CHECKS.keys() - named.keys() - GAPS) == []
    assert sorted(named.keys() - CHECKS.keys()) == [], "there are no such checks"


def test_no_gap_is_stale() -> None:
    assert sorted(GAPS & naming_modules().keys()) == []
