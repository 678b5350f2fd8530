"""Packages for tests: manifests, archives, and the way they take over REST."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Json = dict[str, Any]
Ask = Callable[..., Awaitable[Any]]


def tool(name: str, **members: Any) -> Json:
    """A tool in full, as servers in memory list theirs."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def manifest(package_id: str = "notes", version: str = "1.0.0", **members: Any) -> Json:
    """A manifest of version 2 of a package with one tool, `echo`."""
    return {
        "manifestSchemaVersion": "v2",
        "id": package_id,
        "name": "Notes",
        "version": version,
        "run": {"transport": "stdio", "command": "serve"},
        "tools": [tool("echo")],
    } | members


def pack(document: Json | bytes, files: Mapping[str, bytes] | None = None) -> bytes:
    """An archive with this manifest and these files."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in {"manifest.json": content, **(files or {})}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def upload(request: Ask, archive: bytes, *, part_bytes: int = 4 * 1024 * 1024, **body: Any) -> Any:
    """Send an archive in parts and finish; the answer to that."""
    path = f"/api/uploads/{sha256(archive)}"
    parts = [archive[start : start + part_bytes] for start in range(0, len(archive), part_bytes)] or [b""]
    for number, part in enumerate(parts, start=1):
        response = await request("PUT", f"{path}/{number}", part, content_type="application/octet-stream")
        assert response.status_code == 200, response.text
    return await request("POST", path, {"parts": len(parts), **body})
