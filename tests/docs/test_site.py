"""The documentation site is built without a warning, with its search index and every page."""

import subprocess
from pathlib import Path

from tests.docs.documents import ROOT, documents

BUILDER = str(ROOT / ".venv-docs" / "bin" / "sphinx-build")


def test_the_site_has_every_document_and_a_search_index(tmp_path: Path) -> None:
    command = [BUILDER, "--quiet", "--fail-on-warning", "--conf-dir", "docs", ".", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (built.returncode, built.stderr) == (0, "")
    missing = [str(one) for one in documents() if not (tmp_path / str(one)).with_suffix(".html").is_file()]
    assert missing == []
    assert (tmp_path / "searchindex.js").is_file()
