"""Every kind of place that archives can be kept in, opened for a test."""

import urllib.request
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from moto.server import ThreadedMotoServer

from tests.scenarios.canaries import BUCKET_SECRET
from toolgate.packages.objects import ObjectInfo, ObjectStore, open_object_store

KINDS: Final = ("directory", "bucket")
_prefixes: Final = count(1)


@contextmanager
def open_bucket() -> Iterator[dict[str, str]]:
    """The variables by which a bucket named `bucket` is reached. It keeps all in memory, on loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=30).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": BUCKET_SECRET,
        }
    finally:
        server.stop()


def open_objects(kind: str, directory: Path, environ: dict[str, str]) -> ObjectStore:
    """An empty store."""
    location = str(directory / "objects") if kind == "directory" else f"s3://bucket/test/{next(_prefixes)}"
    return open_object_store(location, environ)


class Dying(ObjectStore):
    """A store whose process is killed after so many more writes and deletions: no other reaches it."""

    def __init__(self, objects: ObjectStore, left: int) -> None:
        self._objects = objects
        self.left = left

    async def put(self, name: str, content: bytes | Path) -> None:
        self._count()
        await self._objects.put(name, content)

    async def create(self, name: str, content: bytes) -> bool:
        self._count()
        return await self._objects.create(name, content)

    async def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._count()
            await self._objects.delete([name])

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        return await self._objects.get(name, max_bytes=max_bytes)

    def read(self, name: str) -> AsyncGenerator[bytes, None]:
        return self._objects.read(name)

    async def size(self, name: str) -> int | None:
        return await self._objects.size(name)

    async def list(self, under: str) -> list[ObjectInfo]:
        return await self._objects.list(under)

    def _count(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class Killed(BaseException):
    """Not one that anything handles."""
