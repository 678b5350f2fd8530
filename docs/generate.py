#!/usr/bin/env python
"""Writes the reference pages from the code, or checks that they match it.

    python docs/generate.py            write docs/reference/*
    python docs/generate.py --check    list the stale pages; exit code 1 if there are any

A page is a view of the code. This module never states a fact that the code could state itself.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pages.commands import commands_page
from pages.endpoints import endpoints_page
from pages.failures import errors_page
from pages.limits import limits_page
from pages.manifests import manifest_page, manifest_schema_file
from pages.metrics import metrics_page
from pages.models import chat_upstream_page, policy_records_page, server_record_page, settings_page
from pages.rpcs import rpcs_page

REFERENCE: Final = Path(__file__).parent / "reference"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "settings.md": settings_page,
    "server-record.md": server_record_page,
    "policy-records.md": policy_records_page,
    "chat-upstream-record.md": chat_upstream_page,
    "manifest.md": manifest_page,
    "manifest.v2.schema.json": manifest_schema_file,
    "cli.md": commands_page,
    "rest.md": endpoints_page,
    "grpc.md": rpcs_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "limits.md": limits_page,
}


def main(words: list[str]) -> int:
    """Write the pages, or with `--check` only list the stale ones."""
    is_check = words == ["--check"]
    texts = {REFERENCE / name: write() for name, write in PAGES.items()}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        sys.stdout.write(f"{'stale' if is_check else 'written'}: {path.name}\n")
        if not is_check:
            path.write_text(texts[path], "utf-8")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
