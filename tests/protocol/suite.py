"""The official conformance suite, run as anyone would run it, and what it had to object to."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.node import COMPILED_ONCE, node, node_file
from tests.scenarios.gateway import ROOT, environment

HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
RUN_S = 300.0

NOT_TRIED = re.compile("Client did not send a (?:tools|prompts|resources)/")
"""The suite skips what its client does not do; ours does all there is."""

Findings = dict[str, list[str]]
"""Scenario → what it objected to, in its words. What only SHOULD be is an objection too."""


def check_server(url: str, revision: str, results: Path) -> Findings:
    """All scenarios that a revision has for servers, required or not, against the server at `url`."""
    _run(["server", "--url", url, "--requirements", revision, "-o", str(results)], {})
    return _findings(results, "server-")


def check_client(
    command: str, scenario: str, revision: str, results: Path, environ: Mapping[str, str]
) -> Findings:
    """One scenario for clients: the suite is the server, and runs `command` with its own URL."""
    words = ["client", "--command", command, "--scenario", scenario, "--spec-version", revision]
    _run([*words, "-o", str(results)], environ)
    return _findings(results, "")


def check_clients(
    command: str, suite: str, revision: str, results: Path, environ: Mapping[str, str]
) -> Findings:
    """All scenarios for clients of a suite of theirs, side by side."""
    versions = ["--spec-version", revision] if revision else []
    _run(["client", "--command", command, "--suite", suite, *versions, "-o", str(results)], environ)
    return _findings(results, "")


def _run(words: list[str], environ: Mapping[str, str]) -> None:
    """What it prints, it writes down too."""
    command = [node(), node_file(SUITE), *words]
    env = environment({**environ, **COMPILED_ONCE})
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=RUN_S, check=False)


def _findings(results: Path, prefix: str) -> Findings:
    """From what it wrote down; a our client that failed is an objection too."""
    found: Findings = {}
    for file in results.rglob("checks.json"):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\dZ-]+$", "", str(file.parent.relative_to(results)))
        checks = json.loads(file.read_text("utf-8"))
        found[scenario.removeprefix(prefix)] = [
            f"{check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] in {"FAILURE", "WARNING"} or NOT_TRIED.match(check.get("errorMessage") or "")
        ]
        if (complaint := file.with_name("stderr.txt")).exists() and "Traceback" in complaint.read_text(
            "utf-8"
        ):
            found[scenario].append(complaint.read_text("utf-8"))
    return found
