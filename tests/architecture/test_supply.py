"""What the product is built from: floors, hashes, and no way of installing but the locks."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source_tree import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
NODE_LOCKS = [ROOT / "requirements/node/package-lock.json", ROOT / "console/package-lock.json"]
# (from, up to): each fixed line has its own floor. mcp 1.30.0 and 2.2.0 stop fetching `$ref` in schemas.
FLOORS = {
    "mcp": [((1, 30, 0), (2,)), ((2, 2, 0), (99,))],
    "starlette": [((1, 0, 1), (99,))],
    "fastmcp": [((3, 4, 10), (99,))],
    "wasmtime": [((47, 0, 3), (999,))],
}


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def requirements(lock: str) -> list[str]:
    """Each requirement of a lock with its hashes, on one line."""
    joined = lock.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def pinned(lock: str) -> dict[str, tuple[int, ...]]:
    pins = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in requirements(lock))
    return {pin[1].lower().replace("_", "-"): version_of(pin[2]) for pin in pins if pin}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_sup_1_nothing_is_older_than_its_floor(lock: Path) -> None:
    versions = pinned(lock.read_text("utf-8"))

    below = {
        name: versions[name]
        for name in FLOORS.keys() & versions.keys()
        if not any(low <= versions[name] < high for low, high in FLOORS[name])
    }

    assert below == {}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_sup_5_every_requirement_is_pinned_and_hashed(lock: Path) -> None:
    pattern = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^\s;]+( ;[^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+")

    loose = [line for line in requirements(lock.read_text("utf-8")) if not pattern.fullmatch(line)]

    assert loose == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_sup_5_a_lock_says_what_to_install_and_not_from_where(lock: Path) -> None:
    words = lock.read_text("utf-8").split()

    assert [word for word in words if "://" in word or re.match(r"--(?!hash=)|-[a-z]", word)] == []


def node_packages(lock: Path) -> dict[str, dict[str, Any]]:
    """What a lock of npm's installs, by path."""
    packages = json.loads(lock.read_text("utf-8"))["packages"]
    return {path: package for path, package in packages.items() if path}


@pytest.mark.parametrize("lock", NODE_LOCKS, ids=lambda lock: lock.parent.name)
def test_sup_5_every_node_package_is_pinned_and_hashed_and_no_lock_says_from_where(lock: Path) -> None:
    installed = node_packages(lock)

    loose = [path for path, one in installed.items() if not {"version", "integrity"} <= one.keys()]
    bound = [path for path, one in installed.items() if "resolved" in one]

    assert installed != {}
    assert loose == bound == []


@pytest.mark.parametrize("lock", NODE_LOCKS, ids=lambda lock: lock.parent.name)
def test_a_lock_of_node_packages_is_good_for_every_platform(lock: Path) -> None:
    installed = node_packages(lock)
    wanted = {name for one in installed.values() for name in one.get("optionalDependencies", {})}

    assert {
        name for name in wanted if not any(path.endswith(f"node_modules/{name}") for path in installed)
    } == set()


def test_every_dependency_of_the_product_is_locked_at_or_above_its_floor() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    floors = dict(re.sub(r"\[.*\]|,.*", "", one).split(">=") for one in project["dependencies"])
    versions = pinned((ROOT / "requirements/run.txt").read_text("utf-8"))

    below = {name for name, floor in floors.items() if versions.get(name, ()) < version_of(floor)}

    assert below == set()
