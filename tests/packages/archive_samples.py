"""Archives that any client may send, for the tests of this package."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from toolgate.catalog.definitions import check_definition
from toolgate.model.tools import ToolDefinition
from toolgate.packages.archive import ArchiveSummary, normalize_archive

TOOL: dict[str, Any] = {
    "name": "create_workbook",
    "description": "创建新的 Excel 工作簿",
    "inputSchema": {
        "type": "object",
        "properties": {"filename": {"type": "string"}},
        "required": ["filename"],
    },
}
MANIFEST: dict[str, Any] = {
    "manifestSchemaVersion": "v2",
    "id": "excel-tools",
    "name": "Excel 工具集",
    "version": "1.2.0",
    "description": "Workbooks, made and read.",
    "category": "数据",
    "tags": ["excel", "电子表格"],
    "tools": [TOOL],
    "run": {"transport": "stdio", "command": "python3", "args": ["${PACKAGE_DIR}/server.py"]},
}


def inspect_archive(source: BinaryIO) -> ArchiveSummary:
    """As an upload is, and nothing kept of it."""
    return normalize_archive(source, io.BytesIO())


def encoded(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def definition(**members: Any) -> ToolDefinition:
    """The sample tool with `members` changed, checked."""
    checked = check_definition("excel-tools", encoded(TOOL | members))
    assert isinstance(checked, ToolDefinition), checked
    return checked


FILES: dict[str, bytes] = {
    "manifest.json": encoded(MANIFEST),
    "server.py": b"print()\n",
    "lib/读.py": b"x = 1\n",
}


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A gzipped tar of exactly these members, behind a manifest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, content in [member("manifest.json", FILES["manifest.json"]), *members]:
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def good_tar() -> bytes:
    return tar_of(member(name, content) for name, content in FILES.items() if name != "manifest.json")


def zip_of(
    members: Iterable[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip of exactly these members, behind a manifest."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for info, content in [("manifest.json", FILES["manifest.json"]), *members]:
            archive.writestr(info, content)
    return buffer.getvalue()


def good_zip(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return zip_of(((name, content) for name, content in FILES.items() if name != "manifest.json"), method)


def zip_entry(name: str, change: Callable[[zipfile.ZipInfo], None] = lambda _: None) -> zipfile.ZipInfo:
    """An entry whose name and attributes zipfile would not choose by itself."""
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    change(info)
    return info
