"""The manifest of a package, its published schema, and what an archive may hold."""

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
A package is a gzipped tar, or a zip, with `manifest.json` at its root: what the package is, which tools it
has, and how its server is run. [Its JSON Schema](manifest.v2.schema.json) (2020-12) is for editors and
other programs; a gateway serves it at `/api/schemas/manifest.v2.json`. An unknown member is refused, with
the name it is close to; one that begins with `x-` is kept and not looked at.
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
How far a manifest describes its tools decides the `source` of their rows in the catalog: `manifest` where
it has `tools`, `summary` where it has names and descriptions, `legacy` where it says nothing; `discovered`
is what a server lists differently. Rows of a manifest of version 2 have the `schema_version` `v2`, all
others `legacy`.
"""
_ARCHIVE: Final = """
An archive holds files and directories, and nothing else. What could be read in two ways is refused: names
that lead elsewhere or that some file system takes for one, links and devices, entries that overlap,
anything behind the end. Archives inside are files like others. [Limits](limits.md#packages) has the
figures.
"""
_LEFT_OUT: Final = """
`toolgate packages publish` leaves out what matches a pattern below, or one of a file `.toolgateignore`:
one to a line, with `*`, `?` and `[…]`; a name anywhere, or, with a `/` inside, a path from the root; only
directories, with a `/` at its end. A link to a file in the directory is packed as that file, any other link
is refused.
"""


def manifest_page() -> str:
    """manifest.md"""
    ignored = ", ".join(map(code, archive.ALWAYS_IGNORED)) + "."
    return page(
        "Package manifests",
        _INTRO,
        *map(section, _MODELS),
        f"## Where rows come from\n\n{wrap(_SOURCES)}",
        f"## MCP bundles and manifests before version 2\n\n{_module(foreign_manifests)}",
        f"## The archive\n\n{wrap(_ARCHIVE)}",
        f"## What is left out\n\n{wrap(_LEFT_OUT)}\n\n{wrap(ignored)}",
    )


def manifest_schema_file() -> str:
    """manifest.v2.schema.json"""
    return json.dumps(manifest.build_manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def _module(module: object) -> str:
    """What a module says of itself."""
    return "\n\n".join(map(wrap, (inspect.getdoc(module) or "").split("\n\n")))
