"""Parts are taken into a directory and a bucket alike: those of each principal apart, and only so many."""

import asyncio
import hashlib
from pathlib import Path
from typing import Final

import pytest

from tests.contract.stores import Clock
from toolgate.errors import BodyTooLarge, InvalidRecord, InvalidRequest, SessionLimit
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.packages.objects import ObjectStore
from toolgate.packages.uploads import MAX_AGE_MS, MAX_PARTS, UploadLimits, UploadStore

pytestmark = pytest.mark.anyio

ME: Final = "key:me"
YOU: Final = "key:you/../me"
PIECES: Final = (b"a" * 1_000, b"b" * 1_000, b"c")
SHA256: Final = hashlib.sha256(b"".join(PIECES)).hexdigest()


@pytest.fixture
def clock() -> Clock:
    """Long before the store's own, by which it dates its objects."""
    return Clock(0)


@pytest.fixture
def uploads(objects: ObjectStore, tmp_path: Path, clock: Clock) -> UploadStore:
    return UploadStore(objects, tmp_path / "work", clock_ms=clock)


async def send(uploads: UploadStore, principal_id: str = ME, sha256: str = SHA256) -> None:
    for number, piece in enumerate(PIECES, start=1):
        await uploads.put_part(principal_id, sha256, number, piece)


def sha256_of(number: int) -> str:
    return f"{number:064x}"


async def test_parts_make_the_archive_whichever_replica_takes_them(
    objects: ObjectStore, tmp_path: Path, clock: Clock
) -> None:
    replicas = [UploadStore(objects, tmp_path / str(number), clock_ms=clock) for number in range(3)]
    for number in (3, 1, 2, 2):
        await replicas[number - 1].put_part(ME, SHA256, number, PIECES[number - 1])
    seen = await replicas[0].parts(ME, SHA256)
    path = await replicas[1].finish(ME, SHA256, parts=3)

    assert seen == [1, 2, 3]
    assert path.read_bytes() == b"".join(PIECES)
    assert await objects.list("uploads") == []


async def test_an_upload_is_taken_up_where_it_broke_off(uploads: UploadStore) -> None:
    await uploads.put_part(ME, SHA256, 1, PIECES[0])
    await uploads.put_part(ME, SHA256, 3, PIECES[2])
    with pytest.raises(InvalidRequest) as raised:
        await uploads.finish(ME, SHA256, parts=3)

    assert raised.value.data == {"missing": [2]}
    assert await uploads.parts(ME, SHA256) == [1, 3]
    await uploads.put_part(ME, SHA256, 2, PIECES[1])
    assert (await uploads.finish(ME, SHA256, parts=3)).stat().st_size == 2_001


@pytest.mark.parametrize("parts", [-1, 0, 1, 2, 4, 65, 10**9])
async def test_a_number_of_parts_that_is_not_that_of_the_upload_makes_nothing(
    uploads: UploadStore, parts: int, tmp_path: Path
) -> None:
    await send(uploads)
    with pytest.raises(InvalidRequest):
        await uploads.finish(ME, SHA256, parts=parts)

    assert await uploads.parts(ME, SHA256) == [1, 2, 3]
    assert not list(tmp_path.glob("work/*"))


async def test_no_one_sees_finishes_or_discards_the_upload_of_another(uploads: UploadStore) -> None:
    await send(uploads)
    await uploads.discard(YOU, SHA256)
    with pytest.raises(InvalidRequest):
        await uploads.finish(YOU, SHA256, parts=3)

    assert await uploads.parts(YOU, SHA256) == []
    assert await uploads.parts(ME, SHA256) == [1, 2, 3]


async def test_parts_that_are_not_what_they_were_sent_as_make_nothing(
    uploads: UploadStore, tmp_path: Path
) -> None:
    await send(uploads)
    await uploads.put_part(ME, SHA256, 2, b"x" * 1_000)
    with pytest.raises(InvalidRequest, match="do not have the hash in the URL"):
        await uploads.finish(ME, SHA256, parts=3)

    assert not list(tmp_path.glob("work/*"))
    # A caller that takes the upload up again does not pass over the part that was wrong.
    assert await uploads.parts(ME, SHA256) == []


@pytest.mark.parametrize(
    ("number", "body", "error"),
    [
        pytest.param(0, b"x", InvalidRequest, id="parts count from 1"),
        pytest.param(MAX_PARTS + 1, b"x", InvalidRequest, id="too many"),
        pytest.param(1, b"", InvalidRequest, id="nothing in it"),
        pytest.param(1, bytes(MAX_PART_BYTES + 1), BodyTooLarge, id="too large"),
    ],
)
async def test_a_part_that_is_none_is_refused(
    uploads: UploadStore, objects: ObjectStore, number: int, body: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await uploads.put_part(ME, SHA256, number, body)

    assert await objects.list("uploads") == []


@pytest.mark.parametrize("sha256", ["", "../" + "0" * 61, "0" * 63, "A" * 64])
async def test_fil_3_what_is_no_hash_names_no_upload(uploads: UploadStore, sha256: str) -> None:
    with pytest.raises(InvalidRecord):
        await uploads.put_part(ME, sha256, 1, b"x")
    with pytest.raises(InvalidRecord):
        await uploads.finish(ME, sha256, parts=1)


async def test_fil_4_no_upload_no_principal_and_not_all_together_take_more_than_they_may(
    objects: ObjectStore, tmp_path: Path, clock: Clock
) -> None:
    limits = UploadLimits(max_archive_bytes=2_000, max_own_bytes=4_000, max_staged_bytes=5_000)
    uploads = UploadStore(objects, tmp_path / "work", clock_ms=clock, limits=limits)
    for number in (1, 2):
        await uploads.put_part(ME, sha256_of(1), number, bytes(1_000))
    with pytest.raises(BodyTooLarge):
        await uploads.put_part(ME, sha256_of(1), 3, b"x")
    # Sent again, a part takes the place of the one before.
    await uploads.put_part(ME, sha256_of(1), 2, bytes(1_000))
    await uploads.put_part(ME, sha256_of(2), 1, bytes(2_000))
    with pytest.raises(SessionLimit):
        await uploads.put_part(ME, sha256_of(3), 1, b"x")
    await uploads.put_part(YOU, sha256_of(1), 1, bytes(1_000))
    with pytest.raises(SessionLimit):
        await uploads.put_part(YOU, sha256_of(1), 2, b"x")


async def test_fil_4_parts_that_come_at_once_keep_to_the_bounds_too(
    objects: ObjectStore, tmp_path: Path, clock: Clock
) -> None:
    uploads = UploadStore(objects, tmp_path / "work", clock_ms=clock, limits=UploadLimits(max_uploads=3))
    outcomes = await asyncio.gather(
        *(uploads.put_part(ME, sha256_of(number), 1, b"x") for number in range(10)), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes].count(SessionLimit) == 7
    assert len(await objects.list("uploads")) == 3


async def test_what_lies_for_an_hour_is_forgotten_by_the_next_upload_and_by_a_sweep(
    uploads: UploadStore, objects: ObjectStore, clock: Clock, tmp_path: Path
) -> None:
    assert MAX_AGE_MS == 3_600_000
    await send(uploads)
    left = await uploads.finish(ME, SHA256, parts=3)
    await send(uploads)
    await uploads.sweep()
    assert (await uploads.parts(ME, SHA256), left.exists()) == ([1, 2, 3], True)

    clock.now_ms = 10**13
    await uploads.sweep()

    assert (await uploads.parts(ME, SHA256), left.exists()) == ([], False)
    assert await objects.list("uploads") == []


async def test_no_more_files_are_made_than_are_taken_away(
    objects: ObjectStore, tmp_path: Path, clock: Clock
) -> None:
    uploads = UploadStore(objects, tmp_path / "work", clock_ms=clock, limits=UploadLimits(max_assembled=1))
    await send(uploads)
    path = await uploads.finish(ME, SHA256, parts=3)
    await send(uploads)
    with pytest.raises(SessionLimit):
        await uploads.finish(ME, SHA256, parts=3)
    path.unlink()

    assert (await uploads.finish(ME, SHA256, parts=3)).exists()


async def test_files_that_an_earlier_process_left_keep_no_one_out(
    uploads: UploadStore, objects: ObjectStore, clock: Clock, tmp_path: Path
) -> None:
    await send(uploads)
    left = await uploads.finish(ME, SHA256, parts=3)
    limits = UploadLimits(max_assembled=1)
    later = UploadStore(objects, tmp_path / "work", clock_ms=clock, limits=limits)
    await send(later)
    made = await later.finish(ME, SHA256, parts=3)

    assert (left.exists(), made.exists()) == (False, True)


async def test_what_a_stranger_has_put_there_is_passed_over(
    uploads: UploadStore, objects: ObjectStore
) -> None:
    for name in ("uploads/notes.txt", f"uploads/{'0' * 64}/{'0' * 64}/abc"):
        await objects.put(name, b"x")
    await send(uploads)

    assert await uploads.parts(ME, SHA256) == [1, 2, 3]
