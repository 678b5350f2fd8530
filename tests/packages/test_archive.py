"""Archives are hostile until proven otherwise: what is refused, and that nothing is left of it."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packages.archive_samples import (
    FILES,
    good_tar,
    good_zip,
    inspect_archive,
    member,
    tar_of,
    zip_entry,
    zip_of,
)
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.packages.archive import ArchiveSummary, unpack_archive
from toolgate.packages.archive_readers import MAX_EXTENSION_BYTES, read_members
from toolgate.packages.manifest import MAX_MANIFEST_BYTES

BAD_NAMES = [
    pytest.param("../evil", id="up"),
    pytest.param("a/../../evil", id="up from within"),
    pytest.param("a/./b", id="a dot"),
    pytest.param("a//b", id="an empty part"),
    pytest.param("/etc/evil", id="absolute"),
    pytest.param("C:/evil", id="a drive"),
    pytest.param("a\\..\\evil", id="backslashes"),
    pytest.param("a\nb", id="a control character"),
    pytest.param("a\u202eb", id="a bidirectional control"),
    pytest.param("a\u200db", id="a character that some file systems ignore"),
    pytest.param("x" * 256, id="a long part"),
    pytest.param("/".join("x" * 200 for _ in range(6)), id="a long path"),
    pytest.param("/".join("x" for _ in range(33)), id="a deep path"),
]
COLLISIONS = [
    pytest.param(["a", "a"], "duplicate entry", id="the same"),
    pytest.param(["./a", "a"], "duplicate entry", id="the same, spelled differently"),
    pytest.param(["read.py", "READ.py"], "are the same name", id="differing in case"),
    pytest.param(["Lib/a", "lib/b"], "are the same name", id="directories differing in case"),
    pytest.param(["e\u0301.py", "\u00e9.py"], "are the same name", id="differing in composition"),
    pytest.param(["stra\u00dfe", "STRASSE"], "are the same name", id="differing in folding"),
    pytest.param(["a", "a/b"], "is both a file and a directory", id="a file that is a directory"),
    pytest.param(["a/b", "a"], "duplicate entry", id="a directory that is a file"),
    pytest.param(["manifest.json"], "duplicate entry", id="a second manifest"),
]


def refused(content: bytes, tmp_path: Path) -> str:
    """Why an archive is refused, by each reader. Nothing of it may be left."""
    with pytest.raises(InvalidRecord) as inspected:
        inspect_archive(io.BytesIO(content))
    with pytest.raises(InvalidRecord) as unpacked:
        unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert str(unpacked.value) == str(inspected.value)
    assert list(tmp_path.rglob("*")) == []
    return str(inspected.value)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(good_tar(), id="tar"),
        pytest.param(good_zip(), id="deflated zip"),
        pytest.param(good_zip(zipfile.ZIP_STORED), id="stored zip"),
    ],
)
def test_a_good_archive_is_inspected_and_unpacked(content: bytes, tmp_path: Path) -> None:
    unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert inspect_archive(io.BytesIO(content)) == ArchiveSummary(
        manifest=FILES["manifest.json"], files=3, unpacked_bytes=sum(map(len, FILES.values()))
    )
    found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {tmp_path / "package" / name: data for name, data in FILES.items()}


def test_files_are_executable_as_their_owner_had_it_and_nothing_else_is_kept_of_modes(tmp_path: Path) -> None:
    run, setuid = member("bin/run", b"#!", mode=0o755), member("bin/root", b"#!", mode=0o6644)

    unpack_archive(io.BytesIO(tar_of([run, setuid])), tmp_path / "package")

    paths = [
        tmp_path / "package",
        *(tmp_path / "package" / name for name in ("bin/run", "bin/root", "manifest.json")),
    ]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o755, 0o644, 0o644]


def test_a_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kept").touch()

    with pytest.raises(FileExistsError):
        unpack_archive(io.BytesIO(good_tar()), tmp_path / "package")

    assert (tmp_path / "package" / "kept").exists()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_refused_in_a_tar(name: str, tmp_path: Path) -> None:
    """FIL-2"""
    assert "`" in refused(tar_of([member(name, b"x")]), tmp_path)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_refused_in_a_zip(name: str, tmp_path: Path) -> None:
    """FIL-2"""
    assert "`" in refused(zip_of([(zip_entry(name), b"x")]), tmp_path)


@pytest.mark.parametrize(("names", "problem"), COLLISIONS)
def test_names_that_some_file_system_takes_for_one_are_refused(
    names: list[str], problem: str, tmp_path: Path
) -> None:
    """FIL-2"""
    assert problem in refused(tar_of([member(name, b"x") for name in names]), tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("names", "problem"), COLLISIONS)
def test_the_same_holds_for_a_zip(names: list[str], problem: str, tmp_path: Path) -> None:
    """FIL-2"""
    assert problem in refused(zip_of([(zip_entry(name), b"x") for name in names]), tmp_path)


def test_directories_may_be_named_before_and_after_what_is_in_them(tmp_path: Path) -> None:
    before = member("a", type=tarfile.DIRTYPE)
    after = member("b", type=tarfile.DIRTYPE)
    root = member(".", type=tarfile.DIRTYPE)
    content = tar_of([root, before, member("a/x", b"1"), member("./b/y", b"2"), after])

    unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert (tmp_path / "package" / "b" / "y").read_bytes() == b"2"


@pytest.mark.parametrize("name", ["a", "."])
def test_a_directory_that_is_named_twice_is_refused(name: str, tmp_path: Path) -> None:
    """FIL-2, FIL-4: also the root, which would only cost a reader time."""
    directory = member(name, type=tarfile.DIRTYPE)

    assert "duplicate entry" in refused(tar_of([directory, directory]), tmp_path)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a FIFO"),
        (tarfile.CONTTYPE, "neither a file nor a directory"),
        (tarfile.GNUTYPE_SPARSE, "neither a file nor a directory"),
        (tarfile.GNUTYPE_LONGLINK, "neither a file nor a directory"),
        (tarfile.SOLARIS_XHDTYPE, "neither a file nor a directory"),
    ],
)
def test_links_and_devices_are_refused(kind: bytes, problem: str, tmp_path: Path) -> None:
    """FIL-2: also a link through which a later entry would be written."""
    link = member("lib", type=kind, linkname="/tmp")

    assert problem in refused(tar_of([link, member("lib/evil", b"x")]), tmp_path)


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR])
@pytest.mark.parametrize("system", [0, 3])
def test_what_a_zip_calls_no_file_is_refused(mode: int, system: int, tmp_path: Path) -> None:
    """FIL-2"""

    def as_mode(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = system, (mode | 0o777) << 16

    assert "neither a file nor a directory" in refused(
        zip_of([(zip_entry("lib", as_mode), b"/tmp")]), tmp_path
    )


def test_archives_inside_are_files_like_others(tmp_path: Path) -> None:
    """FIL-4"""
    bomb = gzip.compress(bytes(64 * 1024 * 1024))

    unpack_archive(io.BytesIO(tar_of([member("inner.tar.gz", bomb)])), tmp_path / "package")

    assert (tmp_path / "package" / "inner.tar.gz").stat().st_size == len(bomb)


def test_an_archive_without_a_manifest_at_its_root_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(*_file("package/manifest.json", FILES["manifest.json"]))

    with pytest.raises(InvalidRecord, match=r"no `manifest\.json` at its root"):
        inspect_archive(buffer)


def _file(name: str, content: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info, data = member(name, content)
    return info, io.BytesIO(data)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f", b"BZh91AY", bytes(600)])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    assert "neither a gzipped tar nor a zip" in refused(content, tmp_path)


def test_long_and_foreign_names_arrive_however_they_are_written(tmp_path: Path) -> None:
    name = "目录/" + "很长的名字" * 12 + ".py"
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        unpack_archive(io.BytesIO(tar_of([member(name, b"x")], form)), tmp_path / str(number))

        assert (tmp_path / str(number) / name).read_bytes() == b"x"
    prefixed = "/".join(["d" * 60, "e" * 60, "f"])
    unpack_archive(io.BytesIO(tar_of([member(prefixed, b"x")], tarfile.USTAR_FORMAT)), tmp_path / "ustar")
    assert (tmp_path / "ustar" / prefixed).exists()


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        pytest.param({"path": "../evil"}, "is not a plain path", id="another name"),
        pytest.param({"path": "manifest.json"}, "duplicate entry", id="a name that is taken"),
        pytest.param({"size": "99999999999"}, "`size`", id="another size"),
        pytest.param({"linkpath": "/etc"}, "`linkpath`", id="a link"),
        pytest.param({"GNU.sparse.realsize": "99999999"}, "`GNU.sparse.realsize`", id="a sparse file"),
        pytest.param({f"a{number}": "" for number in range(33)}, "more than 32 records", id="too many"),
        pytest.param({"hdrcharset": "BINARY"}, "`hdrcharset`", id="another charset"),
    ],
)
def test_extended_headers_cannot_say_something_else(
    headers: dict[str, str], problem: str, tmp_path: Path
) -> None:
    """FIL-2"""
    assert problem in refused(tar_of([member("a", b"x", pax_headers=headers)]), tmp_path)


def test_times_and_owners_in_extended_headers_mean_nothing(tmp_path: Path) -> None:
    headers = {"mtime": "1.5", "uname": "root", "SCHILY.xattr.user.x": "y", "comment": "=\n="}

    unpack_archive(io.BytesIO(tar_of([member("a", b"x", pax_headers=headers)])), tmp_path / "package")

    assert (tmp_path / "package" / "a").read_bytes() == b"x"


def test_the_global_header_that_git_writes_is_passed_over_and_no_other(tmp_path: Path) -> None:
    def archive(headers: dict[str, str]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", pax_headers=headers) as tar:
            tar.addfile(*_file("manifest.json", FILES["manifest.json"]))
        return buffer.getvalue()

    assert inspect_archive(io.BytesIO(archive({"comment": "c0ffee"}))).files == 1
    assert "more than a comment" in refused(archive({"path": "evil"}), tmp_path)
    whole = gzip.decompress(archive({"comment": "c0ffee"}))
    late = gzip.compress(whole[1024:2048] + whole)
    assert "is not the first one" in refused(late, tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(good_tar() + b"x", "follows after its end", id="bytes behind"),
        pytest.param(good_tar() + good_tar(), "follows after its end", id="a second archive"),
        pytest.param(good_tar() + gzip.compress(b""), "follows after its end", id="an empty second part"),
        pytest.param(
            gzip.compress(gzip.decompress(good_tar()) + gzip.decompress(good_tar())),
            "follows after its end",
            id="a second tar inside",
        ),
        pytest.param(good_tar()[:-9], "is truncated", id="cut short"),
        pytest.param(good_tar()[:-1], "is truncated", id="without its checksum's end"),
        pytest.param(
            gzip.compress(gzip.decompress(good_tar())[:1024]), "is truncated", id="no end of the tar"
        ),
        pytest.param(gzip.compress(b"x" * 512), "not a tar archive", id="no tar"),
        pytest.param(b"\x1f\x8b" + bytes(30), "not gzip", id="no gzip"),
    ],
)
def test_a_tar_is_one_whole_archive_and_nothing_else(content: bytes, problem: str, tmp_path: Path) -> None:
    assert problem in refused(content, tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        pytest.param(0, b"M", "damaged", id="a byte of the name"),
        pytest.param(124, b"\x80" + bytes(10) + b"\x01", "beyond all limits", id="a size in base 256"),
        pytest.param(124, b"-0000000001\0", "beyond all limits", id="a negative size"),
        pytest.param(257, bytes(8), "not a tar archive", id="a tar from before POSIX"),
    ],
)
def test_a_damaged_header_is_refused(place: int, value: bytes, problem: str, tmp_path: Path) -> None:
    block = bytearray(gzip.decompress(good_tar()))
    block[place : place + len(value)] = value
    if place:
        checksum = sum(block[:148]) + 8 * 0x20 + sum(block[156:512])
        block[148:156] = b"%06o\0 " % checksum

    assert problem in refused(gzip.compress(bytes(block)), tmp_path)


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    block = gzip.decompress(tar_of([member("ab", b"x")], tarfile.USTAR_FORMAT))
    odd = block.replace(b"ab\0", b"\xff\xfe\0", 1)
    at = odd.index(b"\xff\xfe\0")
    header = bytearray(odd[at : at + 512])
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 0x20 + sum(header[156:]))

    assert "not UTF-8" in refused(gzip.compress(odd[:at] + header + odd[at + 512 :]), tmp_path)


def test_a_directory_has_no_content(tmp_path: Path) -> None:
    block = gzip.decompress(tar_of([member("lib", b"hidden", mode=0o755)], tarfile.USTAR_FORMAT))
    at = block.index(b"lib\0")
    header = bytearray(block[at : at + 512])
    header[156:157] = tarfile.DIRTYPE
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 0x20 + sum(header[156:]))

    content = gzip.compress(block[:at] + header + block[at + 512 :])
    assert "neither a file nor a directory" in refused(content, tmp_path)


def test_a_file_cannot_be_the_directory_itself(tmp_path: Path) -> None:
    assert "has no name" in refused(tar_of([member(".", b"x")]), tmp_path)


def test_a_manifest_is_bounded() -> None:
    info, content = member("big/manifest.json", b"{}")
    assert inspect_archive(io.BytesIO(tar_of([(info, content)]))).files == 2
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(*_file("manifest.json", b" " * (MAX_MANIFEST_BYTES + 1)))

    with pytest.raises(BodyTooLarge, match=r"`manifest\.json` is larger"):
        inspect_archive(buffer)


def test_an_extended_header_is_bounded() -> None:
    """FIL-4"""
    headers = {"comment": "x" * MAX_EXTENSION_BYTES}

    with pytest.raises(BodyTooLarge, match="a header is larger than"):
        inspect_archive(io.BytesIO(tar_of([member("a", pax_headers=headers)])))


def test_a_stream_is_bounded_whatever_it_is_made_of() -> None:
    """FIL-4"""
    with pytest.raises(BodyTooLarge, match="unpacks to more than"):
        list(read_members(io.BytesIO(good_tar()), max_stream=1_000))
