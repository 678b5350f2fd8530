"""A directory is packed the same way everywhere, without what does not belong into a package."""

import io
import os
import shutil
from pathlib import Path

import pytest

from tests.packages.archive_samples import FILES, inspect_archive
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.packages.archive import list_package_files, pack_directory, unpack_archive
from toolgate.packages.entries import ArchiveEntry

MANIFEST = FILES["manifest.json"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    for name, content in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def packed(directory: Path, manifest: bytes = MANIFEST) -> bytes:
    target = io.BytesIO()
    pack_directory(directory, manifest, target)
    return target.getvalue()


def names(directory: Path) -> list[str]:
    return [entry.path for entry, _ in list_package_files(directory)]


def test_what_was_packed_is_what_is_unpacked(project: Path, tmp_path: Path) -> None:
    (project / "server.py").chmod(0o700)
    target = io.BytesIO()

    result = pack_directory(project, b'{"new": true}', target)
    unpack_archive(target, tmp_path / "unpacked")

    inspected = inspect_archive(target)
    assert (inspected.manifest, inspected.files) == (b'{"new": true}', result.files)
    assert result.size == len(target.getvalue())
    assert (tmp_path / "unpacked" / "lib" / "读.py").read_bytes() == FILES["lib/读.py"]
    assert os.access(tmp_path / "unpacked" / "server.py", os.X_OK)


def test_the_same_files_make_the_same_archive(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    shutil.copytree(project, other, copy_function=shutil.copyfile)
    os.utime(other / "server.py", (0, 0))
    (other / "server.py").chmod(0o664)

    assert packed(other) == packed(project)
    assert packed(other, b"{}") != packed(project)


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        "lib/__pycache__/a.py",
        "lib/a.pyc",
        ".venv/bin/python",
        "node_modules/.cache/x",
        ".toolgate/state",
        ".toolgateignore",
        ".env",
        ".env.local",
        "lib/.DS_Store",
        ".idea/x.xml",
        "server.py~",
        ".server.py.swp",
    ],
)
def test_what_never_belongs_into_a_package_is_left_out(name: str, project: Path) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).touch()

    assert names(project) == ["lib/读.py", "manifest.json", "server.py"]


def test_an_ignore_file_leaves_out_more(project: Path) -> None:
    for name in ("notes.md", "lib/notes.md", "data/big.bin", "lib/data", "lib/keep/x.log", "top.log"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (project / ".toolgateignore").write_text("# a comment\n\nnotes.md\ndata/\n/lib/keep/*.log\n")

    assert names(project) == ["lib/data", "lib/读.py", "manifest.json", "server.py", "top.log"]


def test_an_ignore_file_is_bounded_and_has_no_exceptions(project: Path) -> None:
    (project / ".toolgateignore").write_text("!keep\n")
    with pytest.raises(InvalidRecord, match="`!` is not supported"):
        packed(project)
    (project / ".toolgateignore").write_text("#" * 65_537)
    with pytest.raises(InvalidRecord, match="larger than"):
        packed(project)


def test_a_link_to_a_file_in_the_directory_is_packed_as_that_file(project: Path) -> None:
    (project / "main.py").symlink_to("server.py")

    assert [entry for entry, _ in list_package_files(project) if entry.path == "main.py"] == [
        ArchiveEntry(path="main.py", size=len(FILES["server.py"]))
    ]


def test_links_that_lead_elsewhere_and_what_is_no_file_are_refused(project: Path, tmp_path: Path) -> None:
    """FIL-2: a package never carries off what is outside of its directory."""
    (tmp_path / "project-secret").write_text("secret")
    odd = project / "odd"
    for target, problem in [
        ("/etc/passwd", "leads out"),
        ("../project-secret", "leads out"),
        ("lib", "a link to a directory"),
        ("gone", "a broken link"),
        ("odd", "a broken link"),
    ]:
        odd.symlink_to(target)
        with pytest.raises(InvalidRecord, match=problem):
            packed(project)
        odd.unlink()
    os.mkfifo(odd)
    with pytest.raises(InvalidRecord, match="not a regular file"):
        packed(project)


def test_names_that_no_archive_may_hold_are_refused_when_packing(project: Path) -> None:
    (project / "SERVER.py").touch()
    with pytest.raises(InvalidRecord, match="are the same name"):
        packed(project)
    (project / "SERVER.py").unlink()
    (project / "a\nb").touch()
    with pytest.raises(InvalidRecord, match="not allowed in names"):
        packed(project)


def test_a_directory_past_the_limits_is_refused(project: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.truncate(300 * 1024 * 1024)

    with pytest.raises(BodyTooLarge):
        packed(project)


def test_a_file_that_changes_while_it_is_packed_is_noticed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(ArchiveEntry(path="server.py", size=size), project / "server.py") for size in (1, 10_000)]
    for one in found:
        monkeypatch.setattr("toolgate.packages.archive.list_package_files", lambda _, one=one: iter([one]))

        with pytest.raises(InvalidRecord, match="changed while it was packed"):
            packed(project)


def test_a_file_that_cannot_be_read_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (ArchiveEntry(path="lib", size=1), project / "lib")
    monkeypatch.setattr("toolgate.packages.archive.list_package_files", lambda _: iter([found]))

    with pytest.raises(InvalidRecord, match="cannot read `lib`: Is a directory"):
        packed(project)


def test_an_archive_that_would_be_too_large_is_refused(project: Path) -> None:
    with pytest.raises(BodyTooLarge, match="would be larger than 100"):
        pack_directory(project, MANIFEST, io.BytesIO(), max_bytes=100)
