"""The reference is what the code says, and nothing of the code is missing from the documents."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.architecture.source_tree import modules
from tests.docs.documents import ROOT, document
from toolgate.errors import WIRE
from toolgate.policy.lint import FindingCode
from toolgate.policy.scope import Reason
from toolgate.settings import PREFIX, Settings
from toolgate.surfaces.grpc.server import list_rpcs
from toolgate.surfaces.rest.app import ENDPOINTS

FAMILIES = (
    "self._counter",
    "self._declare",
    "self._histogram",
    "self._histograms",
    "self.gauge",
)


def metric_names() -> Iterator[str]:
    """Every metric that is named outright where it is made, as Prometheus shows it."""
    calls = (
        node for module in modules("src") for node in ast.walk(module.tree) if isinstance(node, ast.Call)
    )
    for call in calls:
        maker = ast.unparse(call.func)
        match call.args:
            case [ast.Constant(value=str(name)), *_] if maker in FAMILIES or maker.endswith("metrics.gauge"):
                yield name


def test_no_page_is_stale() -> None:
    checked = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


@pytest.mark.parametrize("code", WIRE)
def test_every_error_code_is_documented(code: str) -> None:
    assert f"## `{code}`\n" in document("docs/reference/errors.md").text


def test_every_metric_is_documented() -> None:
    named = set(metric_names())
    documented = document("docs/reference/metrics.md").code

    assert len(named) > 12
    assert named - set(documented) == set()


def test_every_setting_is_documented_with_its_variable() -> None:
    documented = document("docs/reference/settings.md").code
    wanted = {variant for name in Settings.model_fields for variant in (name, PREFIX + name.upper())}

    assert wanted - set(documented) == set()


def test_every_endpoint_is_documented() -> None:
    documented = document("docs/reference/rest.md").text

    assert [one for one in ENDPOINTS if f"## `{one.method} {one.path}`\n" not in documented] == []


def test_every_rpc_is_documented_with_its_service() -> None:
    documented = document("docs/reference/grpc.md").text
    services = dict(re.findall(r"^## `([\w.]+)`$(.*?)(?=^## |\Z)", documented, re.MULTILINE | re.DOTALL))

    assert [
        rpc.path
        for rpc in list_rpcs(with_reflection=True)
        if f"### `{rpc.method}`\n" not in services[rpc.service]
    ] == []


@pytest.mark.parametrize("code", [*Reason, *get_args(FindingCode)])
def test_every_reason_and_finding_is_explained_with_what_to_do(code: str) -> None:
    assert f"\n| `{code}` | " in document("docs/explanation/policy.md").text
