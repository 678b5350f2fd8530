"""What the audit has of a call's arguments: one line of JSON, bounded, and never a secret in it."""

import json
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.gateway.call.approval import parse_approval_arguments
from toolgate.model.json_text import NO_ARGUMENTS
from toolgate.model.servers import RedactionRules
from toolgate.redaction.arguments import (
    DEFAULT_REDACTION,
    MAX_AUDITED_BYTES,
    MAX_READ_BYTES,
    Redaction,
    compile_redaction,
)
from toolgate.redaction.shapes import MASK, redact_text

CANARY: Final = "canary-4711"
PLATFORM: Final = RedactionRules(hide=("ssn", "*_note"))
SERVER: Final = RedactionRules(hide=("patient*",), show=("key", "ssn", "*_note", "patient*"))
RULED: Final = compile_redaction(PLATFORM, SERVER)
TOKENS: Final = (
    f"ghp_{CANARY}{'x' * 30}".replace("-", "_"),
    f"sk-{CANARY}-0123456789abcdef",
    f"Bearer {CANARY}",
    f"basic\t{CANARY}",
    f"https://ada:{CANARY}@host/x",
    f"https://host/x?token={CANARY}&b=1",
    f'{{"password": "{CANARY}"}}',
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{CANARY}.{CANARY}",
)
TEXTS: Final = st.text(max_size=8) | st.sampled_from(
    ("path", "key", "author", "tok", "session", "é\n", "\u2028")
)
_PIECES: Final = (
    *("mysql\t-p", "sshpass -p ", "curl -u a:", "redis-cli -a ", "ldapadd -w ", "zip -P ", "unrar\n-p"),
    *("password is ", "PIN was ", "pw ist ", "otp lautet ", "identified by '", "<pass>", "x[pw]=", "pass: "),
    *(
        "%70w=",
        "://a:b/c@",
        "://a@",
        "%3A%2F%2Fa%40",
        "\\",
        '"',
        "'",
        " ",
        "\n",
        "\t",
        "/",
        "x1y2",
        "=",
        ":",
        "&",
    ),
)
SPOKEN: Final = st.lists(st.sampled_from(_PIECES) | st.text(max_size=2), max_size=6).map("".join)
"""Texts of what is looked for, in any company."""
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


def audited(arguments: Any, redaction: Redaction = DEFAULT_REDACTION, *, ascii_only: bool = True) -> Any:
    raw = json.dumps(arguments, ensure_ascii=ascii_only).encode()
    return json.loads(line(raw, redaction))


def line(raw: bytes, redaction: Redaction = DEFAULT_REDACTION) -> bytes:
    shown = bytes(redaction.redact_for_audit(msgspec.Raw(raw)))
    assert len(shown) <= MAX_AUDITED_BYTES
    assert not set(shown) & set(range(0x20))
    return shown


def test_plain_arguments_are_written_down_as_they_were_sent() -> None:
    raw = b'{ "path":"/tmp/x", "author": "ada@x.org", "url":"https://host/a@b", "n": [1.50, "C:\\\\temp"] }'

    assert line(raw) == raw
    assert DEFAULT_REDACTION.redact_for_audit(None) is NO_ARGUMENTS


def test_what_goes_by_the_name_of_a_secret_is_masked_whole() -> None:
    arguments = {
        "api_key": {"of": CANARY},
        "a": [{"passwd": 12, "pat": True, "cookies": [CANARY]}],
        "dsn": "",
    }

    assert audited(arguments) == {
        "api_key": MASK,
        "a": [{"passwd": MASK, "pat": MASK, "cookies": MASK}],
        "dsn": "",
    }


@pytest.mark.requirement("002-051")
def test_the_installation_hides_names_at_any_depth_and_no_server_shows_them() -> None:
    arguments = {"a": [{"SSN": 123, "Sick_Note": {"text": CANARY}}], "patient_id": 7, "key": "user:1"}
    hidden = {"a": [{"SSN": MASK, "Sick_Note": MASK}], "patient_id": MASK, "key": "user:1"}

    assert audited(arguments, RULED) == hidden
    assert (
        json.loads(parse_approval_arguments(msgspec.Raw(json.dumps(arguments).encode()), RULED).shown)
        == hidden
    )
    assert audited({"text": f'{{"ssn": "{CANARY}"}} ssn={CANARY}'}, RULED) == {
        "text": f'{{"ssn": "{MASK}"}} ssn={MASK}'
    }


def test_a_name_that_a_server_shows_still_hides_what_looks_like_a_token() -> None:
    assert audited({"key": f"Bearer {CANARY}", "token": "x"}, RULED) == {
        "key": f"Bearer {MASK}",
        "token": MASK,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": [f"X-Api-Key: {CANARY}", f"Cookie: id={CANARY}; b={CANARY}"]},
        {"headers": [{"name": "Authorization", "value": CANARY}, {"key": "DB_PASSWORD", "value": [CANARY]}]},
        {"headers": [["Authorization", CANARY]]},
        {"args": ["login", "--token", CANARY]},
        {"command": f"curl -H 'X-Api-Key: {CANARY}' https://host --password {CANARY}"},
        {"script": f"export API_KEY=\"{CANARY} {CANARY}\"; DB_PASSWORD = '{CANARY}'"},
        {"sql": f"ALTER USER ada PASSWORD '{CANARY}'"},
        {"yaml": f"user: ada\npassword: {CANARY} {CANARY}\n"},
        {"text": f"url=https://host/?token={CANARY}"},
        {"text": f'{{"password": "a {CANARY}", "credentials": {{"a": "{CANARY}"}}, "x_token": "{CANARY}"}}'},
        {"text": f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: x\n{CANARY}\n-----END RSA PRIVATE KEY-----"},
        {"text": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{CANARY}\n-----END PGP PRIVATE KEY BLOCK-----"},
        {"text": f"the password is {CANARY}. The PIN for ada is {CANARY}, api key was now: '{CANARY} x'"},
        {"text": f"machine host login ada password {CANARY}"},
        {"sql": f"CREATE USER ada IDENTIFIED WITH plain BY '{CANARY}'"},
        {"xml": f"<server><username>ada</username><x:password id='1'>\n{CANARY}</x:password></server>"},
        {"form": f"user[name]=ada&user[password]={CANARY}"},
        {"json": json.dumps({"a": json.dumps({"password": CANARY, "b": 1})})},
        {"url": f"postgres://ada:{CANARY}/{CANARY}#{CANARY}@host:5432/db"},
        {"url": f"https://host/go?to=https%3A%2F%2Fada%3A{CANARY}%40host%2F"},
        {"url": f"https%253A%252F%252Fhost%252F%253Ftoken%253D{CANARY}%2520x%2526b%253D1"},
        {"url": f"x?p%61ssword={CANARY}&a=%73k-{CANARY}-0123456789abcdef"},
        {"url": f"https://hooks.slack.com/services/T0/B0/{CANARY}"},
        {"url": f"https://discord.com/api/webhooks/123/{CANARY}"},
        {"command": f"cd /tmp && mysql -u root -p{CANARY} db < x.sql"},
        {"command": f"mariadb-dump\t-p'{CANARY} {CANARY}' db\nsshpass -p {CANARY} ssh host"},
        {"command": f"docker login -u ada -p {CANARY} host; curl -su ada:{CANARY} --user=ada:{CANARY} x"},
        {"command": f"redis-cli -a {CANARY} get x\nldapsearch -x -w {CANARY}\nunzip -P {CANARY} a.zip"},
        {"command": "/usr/bin/mysql", "args": ["-u", "root", f"-p{CANARY}"]},
        {"cmd": ["docker", "login", "-u", "ada", "-p", f"{CANARY} {CANARY}", "host"]},
        {"cmd": ["curl", "-u", f"ada:{CANARY}", "https://host"]},
    ],
)
def test_a_secret_is_found_by_its_context(arguments: Any) -> None:
    """SEC-1"""
    assert CANARY not in json.dumps(audited(arguments))
    raw = msgspec.Raw(json.dumps(arguments).encode())
    assert CANARY.encode() not in parse_approval_arguments(raw, DEFAULT_REDACTION).shown


@pytest.mark.parametrize("who", ["platform", "server"])
def test_arguments_that_are_not_to_be_written_down_are_not_but_people_see_them(who: str) -> None:
    none = RedactionRules(arguments="none")
    redaction = Redaction(**({"platform": RedactionRules(), "server": RedactionRules()} | {who: none}))

    assert redaction.redact_for_audit(msgspec.Raw(b'{"a":1}')) is NO_ARGUMENTS
    assert parse_approval_arguments(msgspec.Raw(b'{"a":1}'), redaction).shown == b'{"a":1}'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"p\\u0061ssword":"canary-4711"}',
        b'{"PASSWORD":"canary-4711"}',
        b'{"se\xc5\xbf\xc5\xbfion":"canary-4711"}',  # the long s is an s to who ignores case
        b'{"to\xe2\x84\xaaen":"canary-4711"}',  # the Kelvin sign, likewise
        b'{"a":"https:\\/\\/ada:canary-4711@host"}',
        b'{"a":"x?to\\u006ben=canary-4711"}',
        b'{"a":"{\\"api_key\\": \\"canary-4711\\"}"}',
        b'{"my.pat\\n":"canary-4711"}',
        b'{"a":"sig=canary-4711"}',
        b'{"a":["Authorization: bearer \\n canary-4711"]}',
    ],
)
def test_no_spelling_of_a_secret_passes_for_something_plain(raw: bytes) -> None:
    assert CANARY.encode() not in line(raw)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "api_key",
            "apiKey",
            "access-key",
            "private_key",
            "signingkey",
            "accessToken",
            "client_secret",
            "passwd",
        ),
        *(
            "passphrase",
            "db.pwd",
            "auth",
            "Authorization",
            "authorisation",
            "COOKIE",
            "credentials",
            "bearer",
        ),
        *("session_id", "Signature", "key", "my-key", "my_pat", "x.sig", "DSN"),
        *("pass", "DB_PASS", "smtp-pw", "AccountKey", "client-key-data", "passcode", "otp", "cvv", "JWT"),
        "encryptionKey",
    ],
)
def test_every_name_of_a_secret_is_known_in_the_smallest_arguments(name: str) -> None:
    assert line(b'{"%s":"canary-4711"}' % name.encode()) == b'{"%s":"***"}' % name.encode()
    assert line(b'{"a":"%s=canary-4711"}' % name.encode()) == b'{"a":"%s=***"}' % name.encode()


@pytest.mark.parametrize(
    "token",
    [
        *(
            "sk-0123456789abcdef",
            "ghp_0123456789abcdefghij",
            "gho_0123456789abcdefghij",
            "glpat-0123456789abcdef",
        ),
        *(
            "ghs_0123456789abcdefghij",
            "github_pat_0123456789abcdefghij",
            "xoxb-0123456789",
            "AKIA0123456789ABCDEF",
        ),
        *("AIza0123456789abcdefghij0123456789", "eyJ01234567.eyJ01234567.x", "eyJ01234567.eyJ01234567"),
        *("eyJ01234567..01234567.01234567.x", "ASIA0123456789ABCDEF", "sk_live_0123456789abcdef"),
        *("rk_test_0123456789abcdef", "gsk_0123456789abcdefghij", "whsec_0123456789abcdef"),
        *("xapp-1-0123456789", "xai-0123456789abcdefghij", "ya29.0123456789abcdefghij"),
        *("GOCSPX-0123456789abcdefghij", "npm_0123456789abcdefghij0123456789", "hf_0123456789abcdefghij"),
        *("pypi-0123456789abcdefghij0123456789", "dop_v1_0123456789abcdefghij0123456789"),
        *("SG.0123456789abcdef.0123456789abcdef", "shpat_0123456789abcdefghij"),
        *("hvs.0123456789abcdefghij", "lin_api_0123456789abcdefghij", "nvapi-0123456789abcdefghij"),
        *("pplx-0123456789abcdefghij", "figd_0123456789abcdefghij", "dapi0123456789abcdef0123456789abcdef"),
        *("secret_0123456789abcdef0123456789abcdef", "AGE-SECRET-KEY-10123456789ABCDEFGHIJ"),
        *("12345678:AA0123456789abcdef0123456789abcdef", "LS0tLS1CRUdJTiBQUklWQVRFIEtFWQ=="),
    ],
)
def test_every_shape_of_a_token_is_known_in_the_smallest_arguments(token: str) -> None:
    assert line(b'{"a":"%s"}' % token.encode()) == b'{"a":"***"}'


@pytest.mark.parametrize(
    "text",
    [
        "the password is required, and the token is INVALID",
        "your secret is not set; the key is to be patient",
        "docker run -p 8080:80 nginx; mkdir -p /tmp/x",
        "mysql -p -P 3306 db",
        "curl -u ada https://host:8080/a/@b",
        "pass the salt; a compass, a passport, to pin a message",
        "https://host/a%20b?to=c%2Fd&e=%E2%82%AC",
        "the code is 7, i < j and a > b",
        "https://host:8080/x?a=b@c",
    ],
)
def test_what_only_sounds_like_a_secret_is_written_down(text: str) -> None:
    assert audited({"text": text}) == {"text": text}


def test_a_pattern_that_can_be_spelled_in_many_ways_is_found_in_each() -> None:
    redaction = Redaction(RedactionRules(hide=("straße/*", "*")), RedactionRules())

    assert audited({"a": CANARY}, redaction) == {"a": MASK}


@pytest.mark.parametrize("lead", [*range(200, 300), *range(2_040, 2_056)])
def test_what_is_cut_leaves_no_part_of_a_secret_over(lead: int) -> None:
    """At whatever place of it the text is cut."""
    for token in TOKENS:
        shown = line(json.dumps({"text": f"{'x ' * (lead // 2)}{token}{' y' * 3_000}"}).encode())

        assert CANARY[:7].encode() not in shown


def test_a_token_longer_than_what_is_looked_at_is_hidden_too() -> None:
    jwt = f"eyJhbGciOiJIUzI1NiJ9.eyJ{CANARY}{'x' * 20_000}.{CANARY}"

    assert audited({"text": f"{'x ' * 100}{jwt}"})["text"].startswith(f"{'x ' * 100}{MASK}")


def test_what_is_long_is_cut_and_what_is_too_long_is_not_read() -> None:
    assert audited({"path": "/tmp/x", "text": "y" * 10_000}) == {
        "path": "/tmp/x",
        "text": f"{'y' * 256}… (10000 characters)",
    }
    assert audited({"text": "y" * MAX_READ_BYTES}) == {"…": f"{MAX_READ_BYTES + 12} bytes, too many to show"}


@pytest.mark.parametrize(
    "raw",
    [b'{"t":"\\ud800"}', b'{"t":"\xff"}', b'{"a":' + b"[" * 9_000 + b"]" * 9_000 + b"}"],
    ids=range(3),
)
def test_unreadable_arguments_show_their_size(raw: bytes) -> None:
    assert json.loads(line(raw)) == {"…": f"{len(raw)} unreadable bytes"}


def test_no_more_is_searched_for_secrets_than_could_be_shown_without_them() -> None:
    keys = [f"-----BEGIN PRIVATE KEY-----{'x' * 3_000}"] * 50
    few = json.dumps({"a": keys[:30]}).encode()
    many = json.dumps({f"a{n}": keys for n in range(20)}).encode()

    assert json.loads(parse_approval_arguments(msgspec.Raw(few)).shown) == {"a": [MASK] * 30}
    assert b"too many to show" in parse_approval_arguments(msgspec.Raw(many)).shown


def test_a_duplicate_name_is_counted() -> None:
    assert json.loads(line(b'{"a":"\\u0031","a":2}')) == {"a": 2, "… again": 1}


@given(
    arguments=st.dictionaries(TEXTS, VALUES, max_size=5),
    name=st.sampled_from(
        ("password", "X-Api-Key", "Ssn", "end_NOTE", "sessionId", "patient", "auth", "my_pat")
    ),
    value=st.sampled_from((CANARY, [CANARY], {CANARY: 1}, {"a": [{"b": CANARY}]})),
    token=st.sampled_from(TOKENS),
    filling=st.integers(0, 400),
)
@example(arguments={}, name="my_pat", value=CANARY, token=TOKENS[0], filling=0)
def test_whatever_the_arguments_no_secret_comes_out(
    arguments: dict[str, Any], name: str, value: Any, token: str, filling: int
) -> None:
    """SEC-1: nothing under a hidden name, and no token, at any depth and in any company."""
    planted = {
        **arguments,
        name: value,
        "in": [{"deep": arguments, name: value}],
        "text": f"{'z ' * filling}{token}",
    }
    raw = json.dumps(planted, ensure_ascii=filling % 2 == 0).encode(errors="surrogatepass")
    flat = json.dumps({name: value}).encode()

    for redaction in (RULED, Redaction(PLATFORM, RedactionRules(hide=("patient",)))):
        assert CANARY[:6].encode() not in line(raw, redaction)
        assert CANARY.encode() not in line(flat, redaction)


@given(
    text=TEXTS | SPOKEN,
    around=st.sampled_from(
        (
            *('{"%s":"v"}', '{"a":"%s"}', '{"a":"%s=v"}', '{"a":"x %s \'v\'"}', '{"a\\n%s":"v"}'),
            *('{"a":"%s: v"}', '{"a":"%s\\t= v"}', '{"a":"--%s v"}'),
        )
    ),
)
def test_the_short_way_passes_only_what_the_long_way_would_not_change(text: str, around: str) -> None:
    raw = (around % json.dumps(text, ensure_ascii=False)[1:-1]).encode(errors="surrogatepass")
    members = json.loads(raw.decode(errors="replace"))
    if line(raw) == raw:
        long_way = partial(redact_text, is_prose=True)
        assert {long_way(name): long_way(value) for name, value in members.items()} == members
    for value in members.values():
        assert DEFAULT_REDACTION.redact_text(value) == redact_text(value, is_prose=True)


def test_a_name_is_cut_after_its_secrets_are_masked() -> None:
    assert DEFAULT_REDACTION.redact_name("docs://plain", 4) == "docs"
    assert DEFAULT_REDACTION.redact_name(f"https://ada:{CANARY}@h/x", 20) == "https://***@h/x"


@pytest.mark.parametrize("raw", [b"[1]", b'{"a": NaN, "b": "sk-"}'])
def test_arguments_that_are_not_a_finite_object_show_their_size(raw: bytes) -> None:
    assert json.loads(line(raw + b" " * 1_025)) == {"…": f"{len(raw) + 1_025} unreadable bytes"}


@pytest.mark.parametrize(("text", "many"), [("\x01" * 290, 4), ("y" * 290, 20)], ids=["escapes", "many"])
def test_texts_that_do_not_fit_are_cut_shorter(text: str, many: int) -> None:
    shown = audited({f"a{number}": text for number in range(many)})

    assert set(shown.values()) == {f"{text[:64]}… (290 characters)"}


def test_a_name_that_is_too_long_to_compare_is_hidden() -> None:
    assert DEFAULT_REDACTION.hides("é" * 2_000)
