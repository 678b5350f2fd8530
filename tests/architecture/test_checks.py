"""The checks that were set for this product, by group and number: each is named by a test, or says why not.

A test names a check in its name (`test_fuz_7_…`, `test_chd_8_and_9_…`), its docstring or the id of a case.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.architecture.source_tree import modules

GROUPS = {
    "FUZ": 20,  # protocol and parsing
    "SCO": 24,  # scope and session
    "FIL": 9,  # files, archives and manifests
    "SSR": 9,  # outbound addresses
    "CHD": 17,  # stdio children
    "UPS": 16,  # HTTP and SSE servers
    "BUD": 8,  # budgets
    "SHU": 6,  # shutdown
    "CHT": 12,  # chat
    "WAS": 11,  # guests
    "XSS": 6,  # what strangers write, in the console and on terminals
    "TRY": 12,  # what trying the product as a stranger found
}
GAPS = {
    "SSR-8": "no tool is made of a REST API: there is no path to put an argument into",
}
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
    checks = [f"{group}-{number}" for group, size in GROUPS.items() for number in range(1, size + 1)]
    named = naming_modules()

    assert [check for check in checks if check not in named and check not in GAPS] == []
    assert sorted(named.keys() - set(checks)) == [], "there are no such checks"


def test_no_reason_is_stale() -> None:
    assert sorted(GAPS.keys() & naming_modules().keys()) == []
