"""The repository speaks of the product alone: nothing in it is about one machine or one network."""

import re

from tests.architecture.source_tree import ROOT, kept_files

# Written so that this file does not match itself.
MACHINE_PATH = re.compile(rf"(?<![\w./~-])/(?:{'|'.join(['wo' + 'rk', 'ro' + 'ot'])})(?:/|\b(?=[\s'\"`]))")
# The variables that name an index may be mentioned, because children get them. What they are set to may not.
SET_TO = r"""["'`]?\s*(?:[=:]\s*["'`]?[\w$]|\s["'`]?\w+://)"""
PACKAGE_INDEX = re.compile(
    rf"(?i)index{'-'}url|trusted{'-'}host|(?:index_url|default_index|uv_index|trusted_host|config_registry){SET_TO}"
)
BINARY = {".png", ".jpg", ".ico", ".woff2", ".gif", ".wasm"}


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    texts = {file: file.read_text("utf-8") for file in kept_files() if file.suffix not in BINARY}
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_a_variable_may_be_named_and_no_index_that_it_is_set_to() -> None:
    name = "PIP_" + "INDEX_URL"
    forbidden = [f"{name}=https://a", f'"{name}": "https://a"', f"{name}: $MIRROR", f"`{name}` https://a"]
    allowed = [f'"{name}", "OTHER"', f"`{name}`, and others", f"pass `{name}` on"]

    assert [bool(PACKAGE_INDEX.search(line)) for line in forbidden] == [True] * len(forbidden)
    assert [bool(PACKAGE_INDEX.search(line)) for line in allowed] == [False] * len(allowed)


def test_no_file_names_a_package_index() -> None:
    assert lines_with(PACKAGE_INDEX) == []
