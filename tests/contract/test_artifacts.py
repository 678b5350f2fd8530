"""Archives are kept in a directory and in a bucket alike: whole or not at all, never two under one name."""

import asyncio
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import pytest

from tests.contract.object_stores import Dying, Killed
from tests.contract.stores import Clock
from toolgate.errors import (
    Conflict,
    InvalidRecord,
    NotFound,
    StartRefused,
    StorageFailed,
    StorageUnavailable,
)
from toolgate.packages.artifacts import ArtifactStore, PackageVersion
from toolgate.packages.objects import ObjectStore, open_object_store

pytestmark = pytest.mark.anyio

MANIFEST: Final = b'{"id": "pkg"}'
LARGE: Final = 6 * 1024 * 1024
"""More than goes in one piece."""


class Archive:
    """A file that means an archive: the store does not look inside."""

    def __init__(self, directory: Path, content: bytes) -> None:
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.content = content
        self.path = directory / self.sha256
        self.path.write_bytes(content)

    async def put(self, artifacts: ArtifactStore, package_id: str = "pkg", version: str = "1.0.0") -> None:
        await artifacts.put(package_id, version, self.path, manifest=MANIFEST, sha256=self.sha256)

    def stored(
        self, package_id: str = "pkg", version: str = "1.0.0", at_ms: int = 1_000_000
    ) -> PackageVersion:
        return PackageVersion(
            package_id=package_id,
            version=version,
            sha256=self.sha256,
            size=len(self.content),
            at_ms=at_ms,
        )


@pytest.fixture
def artifacts(objects: ObjectStore) -> ArtifactStore:
    return ArtifactStore(objects, clock_ms=Clock())


@pytest.fixture
def one(tmp_path: Path) -> Archive:
    return Archive(tmp_path, b"one")


@pytest.fixture
def other(tmp_path: Path) -> Archive:
    return Archive(tmp_path, b"other")


async def content_of(artifacts: ArtifactStore, package_id: str = "pkg", version: str = "1.0.0") -> bytes:
    return b"".join([piece async for piece in artifacts.read(package_id, version)])


async def test_a_version_is_kept_as_it_was_published(artifacts: ArtifactStore, tmp_path: Path) -> None:
    archive = Archive(tmp_path, os.urandom(LARGE))
    await archive.put(artifacts)

    assert await artifacts.versions() == [archive.stored()]
    assert await artifacts.get("pkg", "1.0.0") == archive.stored()
    assert await artifacts.manifest("pkg", "1.0.0") == MANIFEST
    assert await content_of(artifacts) == archive.content


async def test_the_same_again_is_fine_and_another_under_its_name_is_not(
    artifacts: ArtifactStore, one: Archive, other: Archive
) -> None:
    await one.put(artifacts)
    await one.put(artifacts)
    with pytest.raises(Conflict) as raised:
        await other.put(artifacts)

    assert raised.value.hint.startswith("publish a new version")
    assert await artifacts.versions() == [one.stored()]
    assert await content_of(artifacts) == one.content


async def test_versions_are_listed_by_package_the_newest_first(
    objects: ObjectStore, one: Archive, other: Archive
) -> None:
    clock = Clock()
    artifacts = ArtifactStore(objects, clock_ms=clock)
    await one.put(artifacts, "pkg", "1.0.0+b.1")
    clock.now_ms += 1
    await other.put(artifacts, "pkg", "1.1.0-rc.1")
    await other.put(artifacts, "pkg2", "1.0.0")

    first, second = one.stored("pkg", "1.0.0+b.1"), other.stored("pkg", "1.1.0-rc.1", 1_000_001)
    assert await artifacts.versions() == [second, first, other.stored("pkg2", "1.0.0", 1_000_001)]
    assert await artifacts.versions("pkg") == [second, first]
    assert await artifacts.versions("pk") == []


async def test_fil_3_a_removal_touches_its_own_version_only(
    artifacts: ArtifactStore, one: Archive, other: Archive
) -> None:
    for package_id, version in (("pkg", "1.0.0"), ("pkg", "1.0.0-1"), ("pkg-evil", "1.0.0")):
        await one.put(artifacts, package_id, version)
    await artifacts.remove("pkg", "1.0.0")
    with pytest.raises(NotFound):
        await artifacts.remove("pkg", "1.0.0")

    assert await artifacts.versions() == [one.stored("pkg", "1.0.0-1"), one.stored("pkg-evil", "1.0.0")]
    assert await content_of(artifacts, "pkg", "1.0.0-1") == one.content
    # The name is free again, for other content too.
    await other.put(artifacts)
    assert (await artifacts.versions("pkg"))[0].sha256 == other.sha256
    assert await content_of(artifacts) == other.content


async def test_what_is_not_there_is_not_found(artifacts: ArtifactStore) -> None:
    with pytest.raises(NotFound):
        await artifacts.get("pkg", "1.0.0")
    with pytest.raises(NotFound):
        await artifacts.manifest("pkg", "1.0.0")
    with pytest.raises(NotFound):
        await content_of(artifacts)
    assert await artifacts.versions() == []


@pytest.mark.parametrize(
    ("package_id", "version"),
    [("..", "1"), ("a/b", "1"), ("pkg", ".."), ("pkg", "1/2"), ("pkg", "../../x"), ("", "1"), ("pkg", "")],
)
async def test_fil_3_a_name_that_leads_elsewhere_is_refused(
    artifacts: ArtifactStore, one: Archive, package_id: str, version: str
) -> None:
    with pytest.raises(InvalidRecord):
        await one.put(artifacts, package_id, version)
    with pytest.raises(InvalidRecord):
        await artifacts.remove(package_id, version)


@pytest.mark.parametrize("writes", range(4))
async def test_a_put_that_dies_anywhere_leaves_nothing_that_is_seen_and_can_be_done_again(
    objects: ObjectStore, one: Archive, other: Archive, writes: int
) -> None:
    whole = ArtifactStore(objects, clock_ms=Clock())
    died = writes < 3
    try:
        await one.put(ArtifactStore(Dying(objects, writes), clock_ms=Clock()))
    except Killed:
        assert died
    seen = await whole.versions()
    # Nothing of what was begun is in the way of another content, unless it was finished.
    again = other if died else one
    await again.put(whole)

    assert seen == ([] if died else [one.stored()])
    assert await whole.versions() == [again.stored()]
    assert await content_of(whole) == again.content
    assert sorted(info.name.rpartition("/")[2] for info in await objects.list("packages")) == sorted(
        ["version.json", f"{again.sha256}.json", f"{again.sha256}.tar.gz"]
    )


@pytest.mark.parametrize("writes", range(1, 3))
async def test_a_removal_that_dies_leaves_no_version(objects: ObjectStore, one: Archive, writes: int) -> None:
    whole = ArtifactStore(objects, clock_ms=Clock())
    await one.put(whole)
    with pytest.raises(Killed):
        await ArtifactStore(Dying(objects, writes), clock_ms=Clock()).remove("pkg", "1.0.0")

    assert await whole.versions() == []
    await one.put(whole)
    assert await content_of(whole) == one.content


async def test_of_replicas_that_publish_one_version_at_once_one_wins_whole(
    objects: ObjectStore, tmp_path: Path
) -> None:
    archives = [Archive(tmp_path, os.urandom(200_000)) for _ in range(6)]
    replicas = [ArtifactStore(objects, clock_ms=Clock()) for _ in archives]
    outcomes = await asyncio.gather(
        *(archive.put(replica) for archive, replica in zip(archives, replicas, strict=True)),
        return_exceptions=True,
    )

    (winner,) = (archive for archive, outcome in zip(archives, outcomes, strict=True) if outcome is None)
    assert [type(outcome) for outcome in outcomes].count(Conflict) == len(archives) - 1
    assert await replicas[0].versions() == [winner.stored()]
    assert await content_of(replicas[0]) == winner.content
    await winner.put(replicas[1])
    assert len(await objects.list("packages")) == 3


async def test_a_lost_archive_is_reported_and_comes_back_with_the_next_put(
    objects: ObjectStore, artifacts: ArtifactStore, one: Archive
) -> None:
    await one.put(artifacts)
    await objects.delete([info.name for info in await objects.list("packages") if one.sha256 in info.name])
    with pytest.raises(StorageFailed, match="is damaged"):
        await content_of(artifacts)
    with pytest.raises(StorageFailed, match="is damaged"):
        await artifacts.manifest("pkg", "1.0.0")

    await one.put(artifacts)
    assert await content_of(artifacts) == one.content


async def test_a_damaged_version_and_a_strangers_file_hide_nothing_else(
    objects: ObjectStore, artifacts: ArtifactStore, one: Archive
) -> None:
    await one.put(artifacts)
    for name in ("packages/bad/1/version.json", "packages/notes.txt", "packages/A/1/version.json"):
        await objects.put(name, b"{")

    assert await artifacts.versions() == [one.stored()]
    with pytest.raises(StorageFailed, match="damaged"):
        await artifacts.get("bad", "1")


async def test_adm_14_a_package_has_so_many_versions_and_no_more(objects: ObjectStore, one: Archive) -> None:
    artifacts = ArtifactStore(objects, clock_ms=Clock(), max_versions=2)
    for version in ("1", "2", "2"):
        await one.put(artifacts, version=version)
    with pytest.raises(Conflict, match="has reached its limit of"):
        await one.put(artifacts, version="3")

    await one.put(artifacts, "pkg2", "3")
    assert [stored.version for stored in await artifacts.versions("pkg")] == ["1", "2"]


async def test_a_directory_is_its_owners_only(tmp_path: Path) -> None:
    """FIL-9"""
    open_object_store(str(tmp_path / "a" / "b"), {})

    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


async def test_an_error_of_a_missing_bucket_hides_its_address(
    bucket: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    no_one = open_object_store("s3://bucket", bucket | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    for objects in (no_one, open_object_store("s3://other", bucket)):
        with pytest.raises(StorageUnavailable) as raised:
            await ArtifactStore(objects, clock_ms=Clock()).versions()

        assert "127.0.0.1" not in str(raised.value)
    assert "127.0.0.1:9" in caplog.text


@pytest.mark.parametrize("location", ["gs://bucket/x", "http://host/x", "s3://"])
def test_a_place_that_is_none_is_refused_at_the_start(location: str) -> None:
    with pytest.raises(StartRefused, match="artifacts"):
        open_object_store(location, {})


def test_a_directory_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StartRefused, match="for artifacts"):
        open_object_store(str(tmp_path / "file" / "x"), {})
