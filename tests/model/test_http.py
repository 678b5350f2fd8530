"""Who is this machine, and who only looks like it."""

import pytest

from toolgate.model.http import is_loopback, parse_address, parse_origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65_535)),
        ("control.example:8090", ("control.example", 8090)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "control", ":1", "a:", "a:b", "a:-1", "a:65536", "[]:1"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_sec_this_machine_is_known_by_its_loopback_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "localhost.example", "127.0.0.1.example", ""])
def test_sec_an_address_of_another_machine_is_not_a_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://localhost:6274", "http://localhost:6274"),
        ("https://App.Example.com/", "https://app.example.com"),
        (" https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_written_as_browsers_send_it(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "null",
        "localhost:6274",
        "https://*.example.com",
        "https://app.example.com/path",
        "https://app.example.com?q",
        "https://user@app.example.com",
        "https://app.example.com:port",
        "file://",
        "",
    ],
)
def test_what_is_not_the_origin_of_one_page_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"origin|[Pp]ort"):
        parse_origin(text)
