"""Prompts, resources and templates as servers list them: one bad listing never costs the others."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.checks import MAX_DEFINITIONS, MAX_DESCRIPTION_BYTES
from toolgate.catalog.listings import MAX_WORK, check_prompts, check_resources, check_templates, measure_work
from toolgate.model.tools import Listing

CHECKS = {"prompt": check_prompts, "resource": check_resources, "template": check_templates}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "prompt": {"name": "greet"},
    "resource": {"uri": "file:///a", "name": "a"},
    "template": {"uriTemplate": "file:///{x}", "name": "x"},
}
NAMES = {"prompt": "greet", "resource": "file:///a", "template": "file:///{x}"}
POLICY_NAMES = {
    "prompt": "prompt:greet",
    "resource": "resource:file:///a",
    "template": "resource:file:///{x}",
}


def raw_of(kind: str, **members: Any) -> bytes:
    return json.dumps({**GOOD[kind], **members}).encode()


def shown_as(kind: str, **members: Any) -> dict[str, Any]:
    """The one listing as it is offered."""
    listings, quarantined = CHECKS[kind]("s", [raw_of(kind, **members)])

    assert dict(quarantined) == {}
    (listing,) = listings.values()
    shown: dict[str, Any] = json.loads(listing.raw)
    return shown


def reason_for(kind: str, raw: bytes) -> tuple[str, str]:
    """The name and the reason that the one listing is quarantined with."""
    listings, quarantined = CHECKS[kind]("s", [raw])

    assert dict(listings) == {}
    ((name, reason),) = quarantined.items()
    return name, reason


@pytest.mark.parametrize("kind", CHECKS)
def test_a_good_listing_is_kept_as_it_was_written(kind: str) -> None:
    raw = msgspec.json.format(raw_of(kind, title="T", **{"x-vendor": {"a": 1.5}}), indent=2)

    listings, quarantined = CHECKS[kind]("s", [raw])

    listing = listings[NAMES[kind]]
    assert (listing.server_id, listing.name, listing.raw) == ("s", NAMES[kind], raw)
    assert dict(quarantined) == {}


@pytest.mark.parametrize("kind", CHECKS)
def test_the_digest_tells_one_listing_from_another_however_it_is_spelled(kind: str) -> None:
    def digest(raw: bytes) -> str:
        listing: Listing = CHECKS[kind]("s", [raw])[0][NAMES[kind]]
        return listing.digest

    raw = raw_of(kind, title="T")

    assert digest(raw) == digest(msgspec.json.format(raw, indent=4))
    assert digest(raw) != digest(raw_of(kind, title="U"))


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize(
    "adornment",
    [
        {"title": 5},
        {"title": None},
        {"icons": [{"src": 1}]},
        {"icons": "x"},
        {"_meta": []},
        {"description": None},
    ],
    ids=str,
)
def test_an_adornment_of_the_wrong_type_is_left_out(kind: str, adornment: dict[str, Any]) -> None:
    assert shown_as(kind, kept=1, **adornment) == {**GOOD[kind], "kept": 1}


@pytest.mark.parametrize("kind", ["resource", "template"])
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param({"mimeType": 1}, {}, id="mime type"),
        pytest.param({"size": -1}, {}, id="negative size"),
        pytest.param({"size": "1"}, {}, id="size as text"),
        pytest.param({"size": 1}, {"size": 1}, id="a size"),
        pytest.param({"annotations": []}, {}, id="no annotations"),
        pytest.param(
            {"annotations": {"audience": ["user", "cat"], "priority": 0.5, "x": 1}},
            {"annotations": {"priority": 0.5, "x": 1}},
            id="audience",
        ),
        pytest.param(
            {"annotations": {"priority": 2, "audience": ["user"]}},
            {"annotations": {"audience": ["user"]}},
            id="priority",
        ),
        pytest.param(
            {"annotations": {"lastModified": "yesterday"}}, {"annotations": {}}, id="no moment in time"
        ),
        pytest.param(
            {"annotations": {"lastModified": "2026-01-02T03:04:05Z"}},
            {"annotations": {"lastModified": "2026-01-02T03:04:05Z"}},
            id="a moment in time",
        ),
    ],
)
def test_what_describes_content_is_left_out_where_it_is_wrong(
    kind: str, sent: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert shown_as(kind, **sent) == {**GOOD[kind], **kept}


@pytest.mark.parametrize("kind", ["resource", "template"])
@pytest.mark.parametrize("name", [None, 5])
def test_content_without_a_name_goes_by_its_uri(kind: str, name: object) -> None:
    assert shown_as(kind, name=name) == {**GOOD[kind], "name": NAMES[kind]}


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ([], []),
        ([{"name": "a", "required": True, "x": 1}], [{"name": "a", "required": True, "x": 1}]),
        ([{"name": "a", "required": "yes", "description": None, "title": 1}], [{"name": "a"}]),
    ],
)
def test_what_adorns_an_argument_is_left_out_where_it_is_wrong(arguments: object, kept: object) -> None:
    assert shown_as("prompt", arguments=arguments) == {"name": "greet", "arguments": kept}


def test_no_arguments_may_be_written_as_null() -> None:
    assert shown_as("prompt", arguments=None) == {"name": "greet"}


@pytest.mark.parametrize(
    "arguments", [{}, "a", ["a"], [{}], [{"name": 1}], [{"name": str(n)} for n in range(129)]], ids=repr
)
def test_a_prompt_whose_arguments_cannot_be_read_is_quarantined(arguments: object) -> None:
    assert reason_for("prompt", raw_of("prompt", arguments=arguments)) == (
        "prompt:greet",
        "its arguments must be a list of at most 128 with names",
    )


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param({"description": 5}, "its description must be text", id="description of the wrong type"),
        pytest.param(
            {"description": "x" * (MAX_DESCRIPTION_BYTES + 1)},
            "its description is longer than 16384 bytes",
            id="long description",
        ),
        pytest.param(
            {"_meta": {"deep": json.loads("[" * 64 + "]" * 64)}},
            "the definition is nested deeper than 64",
            id="deep",
        ),
    ],
)
def test_a_listing_beyond_its_bounds_is_quarantined_by_its_policy_name(
    kind: str, members: dict[str, Any], reason: str
) -> None:
    assert reason_for(kind, raw_of(kind, **members)) == (POLICY_NAMES[kind], reason)


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        ("prompt", b"[]", ("prompt:#1", "the definition must be an object")),
        ("prompt", b"{", ("prompt:#1", "the definition is not valid JSON: Input data was truncated")),
        ("prompt", b"{}", ("prompt:#1", "it has no name")),
        ("prompt", b'{"name":""}', ("prompt:#1", "it has no name")),
        ("resource", b'{"name":"x"}', ("resource:#1", "it has no uri")),
        ("template", b'{"uriTemplate":1}', ("resource:#1", "it has no uriTemplate")),
        (
            "prompt",
            b'{"name":"a\\nb"}',
            ("prompt:a\\nb", "its name must be 1 to 256 visible characters"),
        ),
        (
            "prompt",
            json.dumps({"name": "x" * 257}).encode(),
            (f"prompt:{'x' * 80}…", "its name must be 1 to 256 visible characters"),
        ),
        (
            "resource",
            json.dumps({"uri": "file:///" + "x" * 2_041}).encode(),
            (f"resource:file:///{'x' * 72}…", "its URI must be 1 to 2048 visible bytes"),
        ),
        ("template", b'{"uriTemplate":"a:{x"}', ("resource:a:{x", "its braces are unbalanced")),
        ("template", b'{"uriTemplate":"a:x}"}', ("resource:a:x}", "its braces are unbalanced")),
        ("template", b'{"uriTemplate":"a:{}"}', ("resource:a:{}", "its braces are unbalanced")),
        (
            "template",
            json.dumps({"uriTemplate": "a:" + "{x}" * 17}).encode(),
            (f"resource:a:{'{x}' * 17}", "it has more than 16 expressions"),
        ),
        (
            "template",
            json.dumps({"uriTemplate": "a:" + "x" * 511}).encode(),
            (f"resource:a:{'x' * 78}…", "its URI must be 1 to 512 visible bytes"),
        ),
        ("template", b'{"uriTemplate":"{+x}"}', ("resource:{+x}", "its URI does not begin with a scheme")),
    ],
)
def test_a_name_that_cannot_be_used_is_quarantined(kind: str, raw: bytes, expected: tuple[str, str]) -> None:
    assert reason_for(kind, raw) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "file:///a b",
        "note:",
        "urn:a:b",
        "FILE:///X",
        "data:text/plain,hi",
        "note://",
        "note://x",
        "postgres://user:pw@host:5432/db",
        "http://[::1]:8080/x",
        "http:///x",
        "https://ü.example/é?q#f",
        "file://C:\\x",
    ],
)
def test_any_absolute_uri_that_clients_can_read_is_offered(uri: str) -> None:
    assert shown_as("resource", uri=uri)["uri"] == uri


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("/etc/passwd", "its URI does not begin with a scheme"),
        ("1:ab", "its URI does not begin with a scheme"),
        ("a\x00b:c", "its URI must be 1 to 2048 visible bytes"),
        ("https://[::1", "the host in its URI is invalid"),
        ("http://a:99999/", "the host in its URI is invalid"),
        ("http://exa mple/x", "the host in its URI is invalid"),
        ("x://exa mple/x", "the host in its URI is invalid"),
        ("http://%%/", "the host in its URI is invalid"),
        ("http://", "its URI has no host"),
        ("HTTPS:", "its URI has no host"),
    ],
)
def test_a_uri_that_would_cost_strict_clients_the_list_is_quarantined(uri: str, reason: str) -> None:
    assert reason_for("resource", raw_of("resource", uri=uri))[1] == reason


@pytest.mark.parametrize("kind", CHECKS)
def test_the_first_to_use_a_name_keeps_it(kind: str) -> None:
    listings, quarantined = CHECKS[kind]("s", [raw_of(kind, title="first"), raw_of(kind, title="second")])

    assert json.loads(listings[NAMES[kind]].raw)["title"] == "first"
    assert list(quarantined) == [f"{POLICY_NAMES[kind]}#2"]


@pytest.mark.parametrize("kind", CHECKS)
def test_a_bad_first_keeps_its_name_too(kind: str) -> None:
    listings, quarantined = CHECKS[kind]("s", [raw_of(kind, description=5), raw_of(kind), raw_of(kind)])

    assert dict(listings) == {}
    assert list(quarantined) == [POLICY_NAMES[kind], f"{POLICY_NAMES[kind]}#2", f"{POLICY_NAMES[kind]}#3"]


def test_a_list_is_cut_at_its_limit_and_says_so() -> None:
    raws = [raw_of("prompt", name=f"p{number}") for number in range(MAX_DEFINITIONS + 3)]

    prompts, quarantined = check_prompts("s", raws)

    assert list(prompts) == [f"p{number}" for number in range(MAX_DEFINITIONS)]
    assert dict(quarantined) == {
        f"prompt:#{MAX_DEFINITIONS + 1}": f"3 prompts exceed the limit of {MAX_DEFINITIONS} per server"
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("kind", CHECKS)
@given(
    raws=st.lists(
        st.binary(max_size=40)
        | JSON.map(msgspec.json.encode)
        | st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("name", "uri", "uriTemplate", "title", "arguments", "icons"), JSON)
        ).map(msgspec.json.encode),
        max_size=5,
    )
)
def test_whatever_a_server_sends_good_listings_stay(kind: str, raws: list[bytes]) -> None:
    good = raw_of(kind)

    listings, quarantined = CHECKS[kind]("s", [good, *raws])

    assert listings[NAMES[kind]].raw == good
    assert len(listings) + len(quarantined) == len(raws) + 1
    assert not {POLICY_NAMES[kind]} & quarantined.keys()


def test_ups_11_templates_that_would_take_long_to_match_are_quarantined() -> None:
    """An unlisted URI is matched with all of them, on the event loop."""
    nasty = ["a:{first}" + f"{{x}}a{'a' * 400}{number}" for number in range(MAX_DEFINITIONS)]
    plain = ["file:///{x}", *(f"file:///{number}/{{x}}/of/{{y}}" for number in range(1_000))]
    raws = [
        raw_of("template", uriTemplate=template)
        for template in (*plain, *nasty[: MAX_DEFINITIONS - len(plain)])
    ]

    listings, quarantined = check_templates("s", raws)

    assert set(plain) <= listings.keys()
    assert (
        sum(map(measure_work, listings))
        <= MAX_WORK
        < sum(map(measure_work, listings)) + measure_work(nasty[-1])
    )
    assert len(listings) + len(quarantined) == MAX_DEFINITIONS
    assert set(quarantined.values()) == {"earlier templates use up the limit for matching"}
