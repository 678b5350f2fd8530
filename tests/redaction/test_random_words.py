"""Tokens are told from names by how their letters follow each other."""

import random
import string
from collections.abc import Sequence
from typing import Final

import pytest

from toolgate.redaction.random_words import find_suspects, looks_random, random_spans

LETTERS: Final = string.ascii_letters + string.digits
ALPHABETS: Final[Sequence[tuple[str, str, int, float]]] = (
    ("letters and digits", LETTERS, 16, 0.97),
    ("letters and digits, longer", LETTERS, 24, 0.99),
    ("lower case and digits", string.ascii_lowercase + string.digits, 20, 0.99),
    ("lower case", string.ascii_lowercase, 24, 0.93),
    ("base32", string.ascii_uppercase + "234567", 26, 0.99),
    ("base64", f"{LETTERS}+/", 40, 0.97),
    ("base64url", f"{LETTERS}-_", 43, 0.99),
    ("hexadecimal", "0123456789abcdef", 32, 0.99),
    ("a password", f"{LETTERS}!#$%^&*", 16, 0.88),
)
ORDINARY: Final = (
    "--allow-dangerously-unbounded-results",
    "@modelcontextprotocol/server-filesystem@2025.11.18",
    "@azure-devops/mcp",
    "mcp-server-kubernetes==0.6.2",
    "duckduckgo-mcp-server",
    "ghcr.io/github/github-mcp-server:v0.20.1",
    "registry.example/tools/image@sha256:" + "ab12" * 16,
    "git+https://github.com/org/repo@8c1f3f0d5c1b8e6a3d5b0f2a7e9c4d1b6a8f0e2c",
    "github:org/repo#8c1f3f0d5c1b8e6a3d5b0f2a7e9c4d1b6a8f0e2c",
    "/nix/store/0c1v3k9xzq4jw8f2mn6plb7sd5ahrg0y-python3-3.11.9/bin/python",
    "./node_modules/.bin/mcp-server",
    "~/projects/kubernetes-dashboard",
    "src/main/java/com/example/OrderService.java",
    "https://mcp.example/v1/organizations/engineering/mcp?mode=read-only",
    "postgresql://db.internal.example:5432/orders_production",
    "--max-old-space-size=4096",
    "--commit=8c1f3f0d5c1b8e6a3d5b0f2a7e9c4d1b6a8f0e2c",
    "PROJECT_ID=3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "claude-sonnet-4-5-20250929",
    "x86_64-unknown-linux-gnu",
    "AccountsPayableReconciliationService",
    "arn:aws:iam::123456789012:role/ReadOnlyAccess",
    "SELECT name FROM customers WHERE created_at > '2024-01-01T00:00:00Z'",
    "2026-11-16T18:30:00.000+00:00",
    "maintenance-window@operations.example.com",
    "Ünïcödé-Wörter-sind-keine-Schlüssel",
)


@pytest.mark.parametrize(
    ("kind", "alphabet", "length", "least"), ALPHABETS, ids=[one[0] for one in ALPHABETS]
)
def test_what_chance_makes_is_found(kind: str, alphabet: str, length: int, least: float) -> None:
    chance = random.Random(kind)
    words = ["".join(chance.choice(alphabet) for _ in range(length)) for _ in range(500)]

    found = sum(any(random_spans(word)) for word in words)

    assert found >= least * len(words)


@pytest.mark.parametrize("text", ORDINARY)
def test_names_paths_addresses_and_versions_are_not_random(text: str) -> None:
    assert [text[start:end] for start, end in random_spans(text)] == []


def test_an_identifier_is_shown_only_where_its_name_says_that_it_is_one() -> None:
    uuid, sha = "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "8c1f3f0d5c1b8e6a3d5b0f2a7e9c4d1b6a8f0e2c"

    assert [*random_spans(uuid)] == [(0, len(uuid))]
    assert [*random_spans(sha, "--commit")] == []
    assert [*random_spans(uuid, "--tenant-id")] == []
    assert [*random_spans(uuid, "--name")] == [(0, len(uuid))]
    assert [*random_spans("kJ8sQ2pLx0VbN7mZ", "--tenant-id")] == [(0, 16)]


def test_a_token_is_found_within_a_text_and_nothing_else_is() -> None:
    text = "--url=https://h.example/v1?code=Zx81kQ9pLm2VnB7c&mode=fast"

    assert [text[start:end] for start, end in random_spans(text)] == ["Zx81kQ9pLm2VnB7c"]


@pytest.mark.parametrize("word", ["kJ8sQ2pLx0VbN7m", "/kJ8sQ2pLx0VbN7mZ", "pkg@kJ8sQ2pLx0VbN7mZ"])
def test_what_is_short_a_path_or_the_version_of_a_package_is_not_random(word: str) -> None:
    assert not looks_random(word)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Tr0ub4dor&3", ["Tr0ub4dor&3"]),
        ("--pin=kX9mP2vL", ["kX9mP2vL"]),
        ("https://mcp.example/s/NWVmYjg0YjctZGQ1Yi00/mcp", ["NWVmYjg0YjctZGQ1Yi00"]),
        ("kJ8sQ2pLx0VbN7mZ", []),
        ("20261116", []),
        ("production", []),
        ("python3.11", []),
        ("gpt-4o-mini", []),
    ],
)
def test_short_words_and_parts_of_urls_are_suspects(text: str, found: list[str]) -> None:
    assert [*find_suspects(text)] == found
