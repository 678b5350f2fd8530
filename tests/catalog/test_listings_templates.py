"""URI templates: what fits one, and that no URI makes it slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.listings import MAX_EXPRESSIONS, Uri, UriTemplate


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        pytest.param("file:///a", "file:///a", True, id="a literal is itself"),
        pytest.param("file:///a", "file:///ab", False, id="and nothing longer"),
        pytest.param("file:///{x}", "file:///a", True, id="a variable"),
        pytest.param("file:///{x}", "file:///", True, id="that may be empty"),
        pytest.param("file:///{x}", "file:///a/b", False, id="and has no slash"),
        pytest.param("file:///{x}/c", "file:///a/c", True, id="a variable in between"),
        pytest.param("file:///{x}/{y}", "file:///a/b", True, id="two variables"),
        pytest.param("file:///{x}-{y}", "file:///a-b-c", True, id="more than one way"),
        pytest.param("file:///{+x}", "file:///a/b", True, id="a reserved expansion has slashes"),
        pytest.param("file:///{x*}", "file:///a/b", True, id="an exploded one"),
        pytest.param("file://{/x*}", "file:///a/b", True, id="path segments"),
        pytest.param("file:///a{?q,r}", "file:///a?q=1&r=/", True, id="a query"),
        pytest.param("file:///a{#f}", "file:///a#x", True, id="a fragment"),
        pytest.param("file:///{+a}x{b}y", "file:///1x/2x3y", True, id="not the first place"),
        pytest.param("file:///{x}y", "file:///z", False, id="a tail that is not there"),
        pytest.param("note://{x}", "file:///a", False, id="another scheme"),
        pytest.param("file:///.*", "file:///ab", False, id="no regular expression"),
        pytest.param("file:///{x}", "file:///\n", True, id="any character"),
    ],
)
def test_a_uri_fits_a_template(template: str, uri: str, expected: bool) -> None:
    assert UriTemplate(template).matches(Uri(uri)) is expected


def as_pattern(template: str) -> re.Pattern[str]:
    """The same by a regular expression, for short texts."""
    parts = re.split(r"(\{[^{}]+\})", template)
    spelled = {"{x}": "[^/]*", "{+y}": ".*", "{/z*}": ".*"}
    return re.compile("".join(spelled.get(part, re.escape(part)) for part in parts), re.DOTALL)


@given(
    st.lists(st.sampled_from(["a", "b", "/", "{x}", "{+y}", "{/z*}"]), max_size=7).map("".join),
    st.text("ab/", max_size=8),
)
def test_a_uri_fits_exactly_when_the_plain_definition_says_so(template: str, uri: str) -> None:
    assert UriTemplate(template).matches(Uri(uri)) == (as_pattern(template).fullmatch(uri) is not None)


@pytest.mark.parametrize("char", ["a", "/", "a/"])
def test_sco_9_no_uri_makes_a_template_slow(char: str) -> None:
    """By backtracking, this would take hours."""
    template = UriTemplate("a:" + "{x}a{+y}" * (MAX_EXPRESSIONS // 2) + "b")

    assert not template.matches(Uri("a:" + char * 1_000 + "c"))
    assert template.matches(Uri("a:" + "a" * 1_000 + "b"))
