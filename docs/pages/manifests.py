"""Package manifests, their published schema, and the rules of archives."""

import inspect
import json
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from pages.markdown import code, page, wrap
from pages.models import section
from toolgate.packages import archive, foreign_manifests, manifest
from toolgate.registry.records import server_bodies

_INTRO: Final = """
A package is a gzipped tar or a zip with `manifest.json` at its root. The manifest describes the package, its
tools, and how to run its server. [Its JSON Schema](manifest.v2.schema.json) (2020-12) is for editors and
other programs; a gateway serves it at `/api/schemas/manifest.v2.json`. An unknown member is an error, which
suggests the nearest known name. Members that begin with `x-` are stored and ignored.
"""
_MODELS: Final[Sequence[type[BaseModel]]] = (
    manifest.ManifestBody,
    manifest.ToolBody,
    manifest.SummaryBody,
    manifest.StdioRunBody,
    manifest.HttpRunBody,
    server_bodies.OAuthBody,
)
_SOURCES: Final = """
The `source` of catalog rows depends on what the manifest contains: `manifest` if it has `tools`, `summary` if
it has only names and descriptions, `legacy` if it has neither. A tool that the server lists differently is
`discovered`. Rows of a version 2 manifest have the `schema_version` `v2`, all others `legacy`.
"""
_ARCHIVE: Final = """
An archive may contain only files and directories. The gateway rejects everything that programs could read
differently: paths that lead outside, names that are special on some file system, links, devices, overlapping
entries, and data after the end. Archives inside an archive are plain files. For the numbers, see
[limits](limits.md#packages).
"""
_LEFT_OUT: Final = """
`toolgate packages publish` excludes files that match a pattern below or in the file `.toolgateignore`. The
file has one pattern per line, with `*`, `?` and `[…]`. A pattern matches a name at any level or, with a `/`
inside, a path from the root. With a `/` at its end it matches only directories. A link to a file in the
directory is packed as that file; any other link is an error.
"""


def manifest_page() -> str:
    """manifest.md"""
    ignored = ", ".join(map(code, archive.ALWAYS_IGNORED)) + "."
    return page(
        "Package manifests",
        _INTRO,
        *map(section, _MODELS),
        f"## Sources of catalog rows\n\n{wrap(_SOURCES)}",
        f"## MCP bundles and manifests before version 2\n\n{_module(foreign_manifests)}",
        f"## Archives\n\n{wrap(_ARCHIVE)}",
        f"## Excluded files\n\n{wrap(_LEFT_OUT)}\n\n{wrap(ignored)}",
    )


def manifest_schema_file() -> str:
    """manifest.v2.schema.json"""
    return json.dumps(manifest.build_manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def _module(module: object) -> str:
    """The docstring of a module."""
    return "\n\n".join(map(wrap, (inspect.getdoc(module) or "").split("\n\n")))
