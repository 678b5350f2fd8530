"""The repository speaks of the product alone: nothing in it is about one machine or one network."""

import re

from tests.architecture.source_tree import ROOT, kept_files

# Written so that this file does not match itself.
MACHINE_PATH = re.compile(rf"(?<![\w./~-])/(?:{'|'.join(['wo' + 'rk', 'ro' + 'ot'])})(?:/|\b(?=[\s'\"`]))")
PACKAGE_INDEX = re.compile(rf"(?i)(?:index{'-'}url|index{'_'}url|trusted{'-'}host|npm_config{'_'}registry)")
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


def test_no_file_names_a_package_index() -> None:
    assert lines_with(PACKAGE_INDEX) == []
