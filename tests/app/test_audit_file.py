"""The audit file belongs to one process."""

import os
from pathlib import Path

import pytest

from toolgate.app.parts import open_audit
from toolgate.errors import StartRefused


def test_two_processes_do_not_number_one_audit_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    refused = pytest.raises(StartRefused, match=rf"in use by .*process {os.getpid()}")
    with open_audit(data), refused, open_audit(data):
        pass

    with open_audit(data):
        assert data.stat().st_mode & 0o777 == 0o700


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refused = pytest.raises(StartRefused, match=r"cannot use `.*/file/data` for data: Not a directory")
    with refused, open_audit(tmp_path / "file" / "data"):
        pass
