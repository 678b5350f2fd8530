"""Who is this machine, and who only looks like it."""

import pytest

from toolgate.model.addresses import is_loopback, parse_address


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
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_sec_this_machine_is_known_by_its_loopback_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "localhost.example", "127.0.0.1.example", ""])
def test_sec_whoever_may_be_another_machine_is_not_this_one(host: str) -> None:
    assert not is_loopback(host)
