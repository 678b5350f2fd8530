"""BUD-7: a budget that means nothing is refused where it is written, with its name."""

from pathlib import Path
from typing import Any

import pytest

from tests.registry.server_files import body
from toolgate.errors import InvalidRecord
from toolgate.registry.files.directory import scan_directory
from toolgate.registry.records.codec import parse_server

FIELDS = ("tool_timeout_ms", "max_concurrency", "max_tool_output_bytes")
NONSENSE = (0, -1, 1.5, 1e18, 10**18, float("nan"), float("inf"), "5", True, None, [1])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_bud_7_a_record_with_a_budget_of_nonsense_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_server(body("git", budgets={field: value}))

    assert f"`budgets.{field}`" in str(caught.value)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e18", '"5"', "true"])
def test_bud_7_so_is_a_file_and_the_others_are_read(field: str, value: str, tmp_path: Path) -> None:
    text = f'server_id = "git"\ntransport = "stdio"\nstdio.command = "x"\nbudgets.{field} = {value}\n'
    (tmp_path / "git.toml").write_text(text, "utf-8")
    (tmp_path / "fs.toml").write_text('server_id = "fs"\ntransport = "stdio"\nstdio.command = "x"\n', "utf-8")
    scan = scan_directory(tmp_path)

    assert [one.file for one in scan.servers] == ["fs.toml"]
    assert [problem.file for problem in scan.problems] == ["git.toml"]
    assert f"`budgets.{field}`" in scan.problems[0].message


@pytest.mark.parametrize("text", ['{"tool_timeout_ms": NaN}', '{"max_concurrency": Infinity}', "1e400"])
def test_bud_7_json_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    file = f'{{"server_id": "git", "transport": "stdio", "stdio": {{"command": "x"}}, "budgets": {text}}}'
    (tmp_path / "git.json").write_text(file, "utf-8")
    scan = scan_directory(tmp_path)

    assert (scan.servers, [problem.file for problem in scan.problems]) == ((), ["git.json"])
