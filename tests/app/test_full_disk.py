"""A start on a full disk says that the disk is full, and never advises to move the registry away."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.registry.database.test_sqlite_faults import can_mount

TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
UP = f'"{TOOLGATE}" up --listen 127.0.0.1:0 --data "$1/data"'
FILL = 'dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null;'
SCRIPTS = {
    "a new registry": f"{FILL} {UP}",
    "a registry that is there": f'"{sys.executable}" -c "$2" "$1/data"; {FILL} {UP}',
}
MAKE = """
import sys
from pathlib import Path
from toolgate.registry.database.sqlite import SqliteDatabase

SqliteDatabase(Path(sys.argv[1]) / "registry.db").close()
"""


@pytest.mark.skipif(not can_mount(), reason="this user cannot mount a small disk")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_start_on_a_full_disk_says_so_and_leaves_the_registry_alone(tmp_path: Path, script: str) -> None:
    mounted = f'mount -t tmpfs -o size=2m tmpfs "$1" && {{ {script}; }}'
    words = ["unshare", "--mount", "sh", "-c", mounted, "sh", str(tmp_path), MAKE]

    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)

    assert ran.returncode == 1, ran.stderr
    assert "the disk is full" in ran.stderr
    assert "move" not in ran.stderr
    assert "damaged," not in ran.stderr
