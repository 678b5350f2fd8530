"""The pipeline of the GitOps guide: its own commands are run, job by job, on a repository of records."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.documents import EXAMPLES, document
from tests.scenarios.gateway import Gateway, Site, running

GUIDE = document("docs/how-to/gitops.md")
FILE = EXAMPLES / "ci" / "registry.yaml"
PIPELINE: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
INSTALL = "pipx install toolgate"
ADMIN_KEY = "tg_admin_0123456789abcdefghijklmnopqrstuv"


@dataclass
class Repository:
    """A checkout, and the CI that runs jobs in it."""

    root: Path
    url: str
    secrets: dict[str, str]

    def run(self, script: str, key: str) -> "subprocess.CompletedProcess[str]":
        environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "TOOLGATE_URL": self.url,
            "TOOLGATE_KEY": key,
        }
        return subprocess.run(
            ["/bin/bash", "-e", "-c", script],
            cwd=self.root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def job(self, name: str) -> tuple[int, str]:
        """How a job of the pipeline ends, and what it prints. Checking out and installing are done."""
        job = PIPELINE["jobs"][name]
        secret = job["env"]["TOOLGATE_KEY"].removeprefix("${{ secrets.").removesuffix(" }}")
        printed = ""
        for step in job["steps"]:
            if step.get("run", INSTALL) == INSTALL:
                continue
            ran = self.run(step["run"], self.secrets[secret])
            printed += ran.stdout + ran.stderr
            if ran.returncode != 0:
                return ran.returncode, printed
        return 0, printed

    def author(self) -> None:
        """What the guide has the author of a change type."""
        [commands] = [block for block in GUIDE.blocks("sh") if "--out plan.json" in block]
        ran = self.run(commands.replace("\n", " || true\n", 1), self.secrets["VIEWER_KEY"])
        assert ran.returncode == 0, ran.stderr

    def edit(self, pattern: str) -> None:
        """Have the profile allow one more pattern."""
        file = self.root / "registry" / "profiles" / "reading.toml"
        file.write_text(file.read_text("utf-8").replace("allow = [", f'allow = ["{pattern}", '), "utf-8")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("gitops"))
    key_file = site.root / "admin.key"
    key_file.write_text(ADMIN_KEY, "utf-8")
    environ = {
        "TOOLGATE_TRUST_LOOPBACK": "false",
        "TOOLGATE_ADMIN_KEY_FILE": str(key_file),
        "TOOLGATE_REQUIRE_PLAN": "true",
    }
    with running(site, environ=environ) as gateway:
        gateway.http.headers["authorization"] = f"Bearer {ADMIN_KEY}"
        yield gateway


@pytest.fixture
def repository(gateway: Gateway, tmp_path: Path) -> Repository:
    shutil.copytree(EXAMPLES / "gitops", tmp_path / "registry")
    body = {"key_id": f"viewer-{tmp_path.name[-20:]}", "role": "viewer"}
    made = gateway.http.post("/admin/api/keys", json=body).raise_for_status().json()
    secrets = {"VIEWER_KEY": str(made["secret"]), "ADMIN_KEY": ADMIN_KEY}
    return Repository(tmp_path, gateway.url, secrets)


def test_a_change_is_planned_reviewed_applied_and_watched_for_drift(
    gateway: Gateway, repository: Repository
) -> None:
    repository.author()
    planned = repository.job("plan")
    applied = repository.job("apply")
    again = repository.job("apply")
    quiet = repository.job("drift")
    records = {
        name: sorted(one[f"{name[:-1]}_id"] for one in gateway.get(f"/admin/api/{name}")[name])
        for name in ("tasks", "profiles")
    }
    repository.edit("git_branch")
    drifted = repository.job("drift")
    unplanned, message = repository.job("plan")
    repository.author()
    replanned = repository.job("plan")

    assert [planned[0], applied[0], again[0], quiet[0], replanned[0]] == [0] * 5
    assert records == {"tasks": ["review"], "profiles": ["reading"]}
    assert drifted[0] == 1
    assert unplanned == 1
    assert "toolgate plan -f registry --prune --out plan.json" in message


def test_a_plan_that_another_change_has_overtaken_is_not_applied(
    gateway: Gateway, repository: Repository
) -> None:
    repository.edit("git_branch")
    repository.author()
    reviewed = (repository.root / "plan.json").read_text("utf-8")
    repository.edit("git_reflog")
    repository.author()
    assert repository.job("apply")[0] == 0
    (repository.root / "plan.json").write_text(reviewed, "utf-8")
    shutil.rmtree(repository.root / "registry")
    shutil.copytree(EXAMPLES / "gitops", repository.root / "registry")
    repository.edit("git_branch")

    code, message = repository.job("apply")

    assert (code, "the change no longer has the effect that its plan showed" in message) == (1, True)


def test_a_gateway_that_cannot_be_asked_fails_every_job(repository: Repository) -> None:
    repository.author()
    repository.secrets = dict.fromkeys(repository.secrets, "tg_unknown_0123456789abcdefghijklmnop")

    assert [repository.job(name)[0] for name in ("plan", "apply", "drift")] == [3, 3, 3]


def test_the_guide_shows_the_pipeline_and_what_each_job_may_use() -> None:
    jobs = PIPELINE["jobs"]

    assert FILE.read_text("utf-8") in GUIDE.blocks("yaml")
    assert {name: job["env"]["TOOLGATE_KEY"] for name, job in jobs.items()} == {
        "plan": "${{ secrets.VIEWER_KEY }}",
        "apply": "${{ secrets.ADMIN_KEY }}",
        "drift": "${{ secrets.VIEWER_KEY }}",
    }
    assert {name: job["if"] for name, job in jobs.items()} == {
        "plan": "github.event_name == 'pull_request'",
        "apply": "github.event_name == 'push'",
        "drift": "github.event_name == 'schedule'",
    }
