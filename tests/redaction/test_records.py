"""SEC-1: what a record shows of itself. A secret never; a reference to one always."""

from typing import Any

import pytest

from tests.growth import grows_with_length
from toolgate.redaction.records import (
    list_hidden_fields,
    redact_command,
    redact_record,
    redact_server,
)
from toolgate.redaction.shapes import hides_word, redact_text

CANARY = "c4n4ry-0f-a-secret"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("API_KEY", CANARY, "***"),
        ("GITHUB_TOKEN", CANARY, "***"),
        ("client_secret", CANARY, "***"),
        ("DB_PASSWORD", CANARY, "***"),
        ("PGPASSFILE_PASSPHRASE", CANARY, "***"),
        ("AWS_SECRET_ACCESS_KEY", CANARY, "***"),
        ("SSH_PRIVATE_KEY", f"-----BEGIN\n{CANARY}", "***"),
        ("OPENAI_KEY", CANARY, "***"),
        ("GITLAB_PAT", CANARY, "***"),
        ("SENTRY_DSN", CANARY, "***"),
        ("SESSION_COOKIE", CANARY, "***"),
        ("CREDENTIALS", CANARY, "***"),
        ("TOKEN", "", ""),
        ("TOKEN", "${ENV:TOKEN}", "${ENV:TOKEN}"),
        ("TOKEN", f"${{ENV:TOKEN:-{CANARY}}}", "${ENV:TOKEN:-***}"),
        ("TOKEN", f"{CANARY}${{ENV:TOKEN}}", "***"),
        ("TOKEN", "***", "***"),
        ("LOG_LEVEL", "debug", "debug"),
        ("GIT_AUTHOR_NAME", "Ada", "Ada"),
        ("DATABASE_URL", f"postgres://ada:{CANARY}@db/x", "postgres://***@db/x"),
        ("ENDPOINT", f"https://x/y?a=1&api_key={CANARY}#z", "https://x/y?a=1&api_key=***#z"),
        ("CONNECTION", f"Server=db;Password={CANARY};Port=1", "Server=db;Password=***;Port=1"),
        ("CONFIG", f'{{"apiKey": "{CANARY}", "a": "b"}}', '{"apiKey": "***", "a": "b"}'),
        ("TOKEN", f"${{env:TOKEN:-{CANARY}}}", "***"),
        ("EXTRA", "prefix ghp_abcdefghijklmnopqrstuvwxyz", "prefix ***"),
    ],
)
def test_environment_variables(name: str, value: str, expected: str) -> None:
    body = {"server_id": "fs", "stdio": {"command": "x", "env": {name: value}}}

    assert redact_server(body) == {"server_id": "fs", "stdio": {"command": "x", "env": {name: expected}}}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Authorization", f"Bearer {CANARY}", "***"),
        ("Authorization", "Bearer ${ENV:TOKEN}", "Bearer ${ENV:TOKEN}"),
        ("authorization", "Basic ${ENV:B64}", "Basic ${ENV:B64}"),
        ("Cookie", f"sid={CANARY}", "***"),
        ("X-Api-Key", CANARY, "***"),
        ("X-Goog-Token", CANARY, "***"),
        ("X-Team", "core", "core"),
    ],
)
def test_headers(name: str, value: str, expected: str) -> None:
    body = {"http": {"url": "https://x/", "headers": {name: value}}}

    assert redact_server(body) == {"http": {"url": "https://x/", "headers": {name: expected}}}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--token", CANARY, "run"], ["--token", "***", "run"]),
        (["--api-key", CANARY], ["--api-key", "***"]),
        ([f"--api-key={CANARY}"], ["--api-key=***"]),
        (["--api-key=${ENV:KEY}"], ["--api-key=${ENV:KEY}"]),
        (["-e", f"GITHUB_TOKEN={CANARY}"], ["-e", "GITHUB_TOKEN=***"]),
        (["--header", f"Authorization: Bearer {CANARY}"], ["--header", "Authorization: ***"]),
        ([f"--header=Authorization: Bearer {CANARY}"], ["--header=Authorization: ***"]),
        (["-H", f"X-Thing: Bearer {CANARY}"], ["-H", "X-Thing: Bearer ***"]),
        (["--config", f'{{"clientSecret":"{CANARY}"}}'], ["--config", '{"clientSecret":"***"}']),
        ([f"https://ada:{CANARY}@x/"], ["https://***@x/"]),
        ([f"https://x/?access_token={CANARY}"], ["https://x/?access_token=***"]),
        (["--verbose", "--port", "80", "a=b"], ["--verbose", "--port", "80", "a=b"]),
        (["-c", f"sshpass -p {CANARY} ssh x"], ["-c", "sshpass -p *** ssh x"]),
    ],
)
def test_arguments(args: list[str], expected: list[str]) -> None:
    assert redact_server({"stdio": {"command": "x", "args": args}}) == {
        "stdio": {"command": "x", "args": expected}
    }


def test_arguments_of_a_program_that_is_known() -> None:
    launch = {"command": "/usr/bin/mariadb", "args": ["-u", "ada", "-phunter22", "-P", "3306"]}

    assert redact_server({"stdio": launch})["stdio"]["args"] == ["-u", "ada", "***", "-P", "3306"]
    assert redact_command("docker", ["login", "-p", CANARY]) == "docker login -p '***'"


def test_urls() -> None:
    url = f"https://ada:{CANARY}@x/mcp?team=a&token={CANARY}"

    assert redact_server({"http": {"url": url}}) == {"http": {"url": "https://***@x/mcp?team=a&token=***"}}


def test_nothing_is_changed_in_place() -> None:
    body: dict[str, Any] = {"stdio": {"command": "x", "env": {"TOKEN": CANARY}}}
    redact_server(body)

    assert body == {"stdio": {"command": "x", "env": {"TOKEN": CANARY}}}


def test_a_body_of_the_wrong_shape_is_shown_without_a_crash() -> None:
    body = {"stdio": [1], "http": {"headers": None, "url": 7}}

    assert redact_server(body) == body


def test_a_key_does_not_show_its_hash_and_other_kinds_show_all() -> None:
    assert redact_record("key", {"key_id": "ci", "sha256": "0" * 64}) == {"key_id": "ci", "sha256": "***"}
    assert redact_record("task", {"task_id": "t"}) == {"task_id": "t"}
    assert redact_record("server", {"stdio": {"env": {"TOKEN": CANARY}}}) == {
        "stdio": {"env": {"TOKEN": "***"}}
    }


def test_text_without_a_secret_is_left_alone() -> None:
    text = "GET https://example.com/a?b=c answered 500"

    assert redact_text(text) == text


@pytest.mark.parametrize(
    "word",
    [
        *("x", "eyJ-", "eyJaaaaaaaa.", "a://", "a=b&", 'a":"', "Bearer ", "a.-", "x@", "sk-", "-", " "),
        *("a://a:", "%25", "%", "a%3A%2F%2F", "mysql -p", "curl -u a:", "<pw>", "<a ", "password is a "),
        *("pin for x ", "-----BEGIN PRIVATE KEY-----", "login a password ", "identified by "),
    ],
)
def test_long_texts_take_no_longer_than_they_are_long(word: str) -> None:
    assert grows_with_length(lambda size: redact_text(word * (size // len(word)), is_prose=True), 4_000)


def test_the_fields_that_hold_a_secret_themselves_are_named() -> None:
    body = {
        "server_id": "s",
        "stdio": {
            "command": "run",
            "args": ["--token", "hunter2", "--verbose"],
            "env": {
                "API_KEY": "hunter2",
                "OTHER_KEY": "${ENV:KEY}",
                "DEFAULT_KEY": "${ENV:KEY:-hunter2}",
                "A": "b",
            },
        },
    }

    assert list_hidden_fields("server", body) == [
        "stdio.args[1]",
        "stdio.env.API_KEY",
        "stdio.env.DEFAULT_KEY",
    ]
    assert list_hidden_fields(
        "server", {"http": {"url": "https://u:p@h/", "headers": {"X-Token": "hunter2"}}}
    ) == [
        "http.url",
        "http.headers.X-Token",
    ]


def test_what_words_of_a_command_cost_does_not_grow_with_their_program() -> None:
    """A call names both, and each word is looked at."""

    def look(size: int) -> None:
        program = "az -p" * size * 8
        for _ in range(size):
            hides_word(program, ("-a", program), 1)

    assert grows_with_length(look, 64)


def test_a_reference_stays_and_a_random_default_of_it_does_not() -> None:
    body = {"http": {"url": "https://h/${ENV:PATH}/${ENV:KEY:-kJ8sQ2pLx0VbN7mZ}"}}

    assert redact_server(body)["http"]["url"] == "https://h/${ENV:PATH}/${ENV:KEY:-***}"


def test_of_a_text_with_encoded_words_only_those_with_a_secret_are_decoded() -> None:
    text = "plain a%20b https%3A%2F%2Fh%2F%3Ftoken%3Dx"

    assert redact_text(text) == "plain a%20b https://h/?token=***"
