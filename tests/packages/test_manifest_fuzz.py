"""Whatever a manifest holds, it is a manifest or it is refused with the reasons."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.packages.archive_samples import MANIFEST, TOOL, encoded
from toolgate.errors import InvalidRecord
from toolgate.model.servers import PackageRef
from toolgate.packages.foreign_manifests import convert_bundle, is_bundle_manifest
from toolgate.packages.manifest import Manifest, build_server_body, encode_manifest, parse_manifest
from toolgate.registry.records.codec import parse_server

WORDS = st.sampled_from(
    ["a", "excel", "../x", "v2", "2", "1.0.0", "stdio", "${__dirname}/a", "${user_config.a}", "读"]
)
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | WORDS
)
KEYS = st.sampled_from(
    [
        *MANIFEST,
        *TOOL,
        "toolsSummary",
        "server",
        "mcp_config",
        "manifest_version",
        "user_config",
        "default",
        "command",
        "args",
        "env",
        "url",
        "transport",
        "type",
        "platform_overrides",
        "linux",
        "keywords",
        "x-a",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=8)


def read(document: object) -> Manifest | None:
    try:
        content = encoded(document)
        return parse_manifest(convert_bundle(content) if is_bundle_manifest(content) else content)
    except InvalidRecord:
        return None


@settings(max_examples=120, deadline=None)
@given(changes=DOCUMENTS, is_whole=st.booleans())
def test_a_manifest_is_read_or_refused(changes: dict[str, Any], is_whole: bool) -> None:
    manifest = read(MANIFEST | changes if is_whole else changes)
    if manifest is None or not manifest.run:
        return

    parse_server(build_server_body(manifest, PackageRef(version=manifest.version, sha256="0" * 64)))
    again = parse_manifest(encode_manifest(manifest))
    assert [tool.digest for tool in again.tools] == [tool.digest for tool in manifest.tools]
    assert (again.id, again.version, again.run) == (manifest.id, manifest.version, manifest.run)


@settings(max_examples=60, deadline=None)
@given(changes=DOCUMENTS)
def test_a_bundle_is_read_or_refused(changes: dict[str, Any]) -> None:
    bundle = {"name": "excel", "version": "1.0.0", "server": {"type": "node", "entry_point": "a.js"}}

    manifest = read(bundle | changes | {"manifest_version": "0.3"})

    assert manifest is None or manifest.id
