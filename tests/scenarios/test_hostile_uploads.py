"""Archives of strangers, sent to a real gateway: refused, and nothing of them is left anywhere."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.package_kit import manifest, pack, sha256
from tests.packages.archive_samples import member, tar_of, zip_of
from tests.packages.test_archive_bombs import BOMBS
from tests.scenarios.gateway import Gateway, Site, running

pytestmark = pytest.mark.xdist_group("scenario-packages")

PART = 4 * 1024 * 1024
OCTETS = {"content-type": "application/octet-stream"}
LINK = member("way", b"", type=tarfile.SYMTYPE, linkname="/tmp")
HOSTILE = {
    "out of it": tar_of([member("../evil", b"x")]),
    "from the root": tar_of([member("/tmp/evil", b"x")]),
    "through a link": tar_of([LINK, member("way/evil", b"x")]),
    "a hard link": tar_of([member("evil", b"", type=tarfile.LNKTYPE, linkname="manifest.json")]),
    "a device": tar_of([member("evil", b"", type=tarfile.CHRTYPE)]),
    "twice": tar_of([member("a", b"1"), member("a", b"2")]),
    "the same but for case": tar_of([member("evil", b"1"), member("Evil", b"2")]),
    "a zip out of it": zip_of([("../evil", b"x")]),
    "an id that leads elsewhere": pack(manifest(package_id="../evil")),
    "a version that leads elsewhere": pack(manifest(version="1/../../evil")),
    "no archive": b"PK nothing of the kind",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(Site(tmp_path_factory.mktemp("hostile"))) as gateway:
        yield gateway


def send(gateway: Gateway, archive: bytes) -> httpx2.Response:
    """The gateway's answer to an upload: to its end, or to the first part that it does not take."""
    path = f"/api/uploads/{sha256(archive)}"
    parts = [archive[start : start + PART] for start in range(0, len(archive), PART)]
    for number, part in enumerate(parts, start=1):
        taken = gateway.http.put(f"{path}/{number}", content=part, headers=OCTETS)
        if not taken.is_success:
            return taken
    return gateway.http.post(path, json={"parts": len(parts)})


def files(gateway: Gateway) -> set[Path]:
    """All that there is under the installation's root, but for what every gateway keeps there."""
    kept = ("registry.db", "audit.jsonl")
    found = (path.relative_to(gateway.site.root) for path in gateway.site.root.rglob("*") if path.is_file())
    return {path for path in found if not path.name.startswith(kept) and not path.parts[0].startswith("out-")}


@pytest.mark.parametrize("name", HOSTILE)
def test_fil_2_and_3_what_leads_out_of_its_archive_is_refused_and_leaves_nothing(
    gateway: Gateway, name: str
) -> None:
    before = files(gateway)
    response = send(gateway, HOSTILE[name])

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_record"), response.text
    assert files(gateway) == before
    assert not Path("/tmp/evil").exists()
    assert gateway.get("/api/packages")["packages"] == []


@pytest.mark.parametrize(
    "name",
    ["one file of 8 GiB", "more files than may be", "a zip that says 4 GiB", "an archive past the limit"],
)
def test_fil_4_a_bomb_is_refused_and_leaves_nothing(gateway: Gateway, name: str) -> None:
    before = files(gateway)
    response = send(gateway, BOMBS[name]())

    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large"), response.text
    left = files(gateway) - before
    assert {path.parts[2] for path in left} <= {"uploads"}, (
        "parts of what was never finished may wait an hour"
    )
    assert gateway.is_ready()


def test_fil_4_an_archive_inside_is_a_file_like_others(gateway: Gateway) -> None:
    inner = BOMBS["more files than may be"]()
    response = send(gateway, pack(manifest(package_id="nested"), {"inner.tar.gz": inner}))

    assert (response.status_code, response.json()["files"]) == (200, 2)
    assert gateway.http.delete("/api/packages/nested/1.0.0").status_code == 200
