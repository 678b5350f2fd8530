"""URIs as plainly as they can be written, so that no spelling gets past a rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gateway.scope.routes import normalize_uri

PLAIN = "file:///etc/passwd"


@pytest.mark.parametrize(
    "uri",
    [
        PLAIN,
        "FILE:///etc/passwd",
        "file:////etc//passwd",
        "file://localhost/etc/passwd",
        "file:///./etc/././passwd",
        "file:///%65tc/passwd",
        "file:///%2565tc/passwd",
        "file:///etc%2Fpasswd",
        "file:///etc\\passwd",
        "file:///etc/%2E/passwd",
    ],
)
def test_sco_2_one_resource_has_one_plain_form(uri: str) -> None:
    assert normalize_uri(uri) == PLAIN


@pytest.mark.parametrize(
    "uri",
    ["docs://a", "docs:a/b", "a", "docs://a?q=1/2#x", "fetch://http://host/a", "note:///…/a..b/.c/", "a:{x}"],
)
def test_what_is_plain_stays_as_it_is(uri: str) -> None:
    assert normalize_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "file:///pub/../etc/passwd",
        "file:///pub/..",
        "file:///pub/..?x",
        "file:///pub/..;a/etc",
        "file:///pub/%2e%2e/etc",
        "file:///pub/.%2e/etc",
        "file:///pub/..%2fetc",
        "file:///pub/..\\etc",
        "file:///pub/%252e%252e/etc",
        "docs://../a",
        "file:///pub/a?x/../../../etc",
        "file:///pub/secret\0.txt",
        "file:///pub/secret%00.txt",
        "file:///pub/a\n",
        "a:%2525252525",
    ],
)
def test_sco_2_what_leads_upwards_or_hides_its_end_has_no_plain_form(uri: str) -> None:
    assert normalize_uri(uri) is None


@given(st.text("a:/.%2eE5c?\\", max_size=20))
def test_a_plain_form_is_as_plain_as_can_be(uri: str) -> None:
    plain = normalize_uri(uri)

    assert plain is None or normalize_uri(plain) == plain
