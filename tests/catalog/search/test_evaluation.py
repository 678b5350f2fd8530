"""`make eval-search`: the script reads what LiveMCPBench looks like, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.architecture.source_tree import ROOT

SCRIPT = ROOT / "bench/search/evaluate.py"


def server(name: str, **tools: str) -> dict[str, Any]:
    offered = [{"name": tool, "description": text, "inputSchema": None} for tool, text in tools.items()]
    return {"name": name, "category": "Office", "tools": {name: {"tools": offered}}}


def task(task_id: str, question: str, steps: str, tools: str) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "Question": question,
        "Annotator Metadata": {"Steps": steps, "Tools": tools},
    }


def evaluated(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(directory), "--words-only", "--tools", "20"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_figures_are_those_of_the_data(tmp_path: Path) -> None:
    servers = [server("files", read="Read a file", write="Write a file"), server("web", fetch="Get a page")]
    tasks = [
        task("a", "Save this page", "1. get the page\n2. write a file", "1. fetch\n2. write"),
        task("b", "What is in this file?", "1. sing", "1. read\n2. no such tool"),
        task("c", "Unknown", "1. unknown", "1. no such tool"),
    ]
    (tmp_path / "tools.json").write_text(json.dumps(servers), "utf-8")
    (tmp_path / "annotations.json").write_text(json.dumps(tasks), "utf-8")

    result = evaluated(tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    assert "LiveMCPBench: 3 tools." in result.stdout
    assert "| words | step → tool | all | 2 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 |" in result.stdout
    assert "| words | task → tools | all | 2 | 100.0 | 100.0 | 100.0 | 100.0 |" in result.stdout
    assert "ingest of 20 tools" in result.stdout


def test_without_the_data_it_says_what_to_do(tmp_path: Path) -> None:
    result = evaluated(tmp_path)

    assert (result.returncode, result.stdout) == (1, "")
    assert "make eval-search LIVEMCPBENCH=DIRECTORY" in result.stderr
