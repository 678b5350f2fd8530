"""SPEAR's own registry files load unchanged: an empty text means that the field is absent."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.registry.spear_files import FILES, SPEAR_FILES, place
from toolgate.errors import InvalidRecord
from toolgate.registry.files.directory import scan_directory
from toolgate.registry.records.codec import encode_record, parse_record, parse_server


def test_all_four_files_load_and_are_stored_without_their_empty_fields(tmp_path: Path) -> None:
    place(tmp_path)

    scan = scan_directory(tmp_path, strict=True)

    assert (scan.problems, scan.warnings) == ((), ())
    assert {one.file: one.record.tool_namespace for one in scan.servers} == {
        "fs.toml": "mcp.fs",
        "gitlab.toml": "mcp.gitlab",
        "kubernetes.toml": "mcp.kubernetes",
        "web-search.toml": "mcp.web-search",
    }
    assert all(one.record.stdio and one.record.stdio.cwd is None for one in scan.servers)
    bodies = [encode_record(one.record) for one in scan.servers]
    assert not any("tool_namespace" in body or "cwd" in body["stdio"] for body in bodies)


@pytest.mark.parametrize("field", ["auth_ref", "oauth"])
def test_an_empty_optional_text_of_a_url_is_absent(field: str) -> None:
    empties: dict[str, Any] = {
        "auth_ref": "",
        "oauth": {"grant": "authorization_code", "client_id": "", "client_secret_ref": "", "issuer": ""},
    }
    body = {
        "server_id": "web",
        "transport": "streamable_http",
        "http": {"url": "https://mcp.example/", field: empties[field]},
    }

    http = parse_server(body).http

    assert http is not None
    assert http.auth_ref is None
    assert http.oauth is None or (http.oauth.client_id, http.oauth.issuer) == (None, None)


@pytest.mark.parametrize("needed", ["command", "server_id", "transport"])
def test_what_a_server_needs_is_not_given_by_an_empty_text(needed: str) -> None:
    body = tomllib.loads(FILES)
    (body["stdio"] if needed == "command" else body)[needed] = ""

    with pytest.raises(InvalidRecord, match=needed):
        parse_server(body)


@pytest.mark.requirement("002-011")
@pytest.mark.parametrize("word", ["never", "policy", "always"])
def test_an_approval_policy_may_be_one_word(word: str) -> None:
    body = tomllib.loads(SPEAR_FILES["fs.toml"]) | {"approval_policy": word}

    record = parse_server(body)

    assert record.approval_policy.default == word
    assert encode_record(record).get("approval_policy", {}) == ({} if word == "never" else {"default": word})


def test_an_approval_policy_of_an_unknown_word_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="approval_policy"):
        parse_server(tomllib.loads(FILES) | {"approval_policy": "sometimes"})


@pytest.mark.requirement("000-35")
@pytest.mark.parametrize(
    ("key", "text", "stored"),
    [
        ("mcp.profile", "code-review", '"code-review"'),
        ("mcp.profile", '"code-review"', '"code-review"'),
        ("mcp.approval_policy", "always", '"always"'),
    ],
)
def test_a_task_may_name_its_profile_and_approval_policy_without_quotes(
    key: str, text: str, stored: str
) -> None:
    body = encode_record(parse_record("task", "review", {"config": {key: text}}))

    assert body["config"] == {key: stored}


@pytest.mark.parametrize("text", ["true", "null", "12", "a b", '"open', "", "[]"])
def test_what_json_reads_in_another_way_is_not_taken_for_a_profile(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"mcp\.profile"):
        parse_record("task", "review", {"config": {"mcp.profile": text}})
