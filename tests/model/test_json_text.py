"""Which names of members two readers of JSON take for the same one."""

import pytest

from toolgate.model.json_text import (
    MAX_FOLDED,
    KnownNames,
    describe_ambiguity,
    find_clash,
    find_deep_clash,
    fold_name,
)

LONG = "\u200b" * MAX_FOLDED + "name"
KNOWN = KnownNames("name", "arguments", "id", prefixes=("mcp.",))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "name",
            "NAME",
            "Name",
            " name",
            "name\t",
            "na\0me",
            "name\0",
            "na\u200bme",
            "\ufeffname",
            "na\u00adme",
        ),
        *("ｎａｍｅ", "ＮＡＭＥ", "𝐧𝐚𝐦𝐞", "name\ufe0f", "na\u034fme", "name\u00a0", "na\u2060me"),
    ],
)
def test_a_lenient_reader_takes_it_for_name(name: str) -> None:
    assert fold_name(name) == "name"


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("K", "k"),
        ("ſ", "s"),
        ("ı", "i"),
        ("İ", "i"),
        ("ß", "ss"),
        ("ﬁ", "fi"),
        ("é", "é"),
        ("na me", "na me"),
    ],
)
def test_letters_that_are_another_in_some_case_or_form_are_that_one(name: str, folded: str) -> None:
    assert fold_name(name) == folded


@pytest.mark.parametrize(
    ("members", "impostor"),
    [
        pytest.param({"name": 1, "arguments": 2}, None, id="known"),
        pytest.param({"name": 1, "vendor": 2, "mcp.enabled": 3}, None, id="others"),
        pytest.param({"name": 1, "NAME": 2}, "NAME", id="in another case"),
        pytest.param({"Name": 1}, "Name", id="alone"),
        pytest.param({"ıd": 1}, "ıd", id="by way of upper case"),
        pytest.param({"MCP.enabled": 1}, "MCP.enabled", id="a prefix in another case"),
        pytest.param({"vendor\x01": 1}, "vendor\x01", id="a control character"),
        pytest.param({"vendor\u200b": 1}, None, id="an invisible one in a name that does not matter"),
        pytest.param({"vendor": 1, "Vendor": 2}, "Vendor", id="two others"),
    ],
)
def test_a_member_that_only_looks_like_a_known_one_is_found(
    members: dict[str, int], impostor: str | None
) -> None:
    assert KNOWN.find_impostor(members) == impostor


@pytest.mark.parametrize(
    ("names", "clash"),
    [
        ((), None),
        (("Name",), None),
        (("name", "other"), None),
        (("größe", "name"), None),
        (("name", "Name"), "Name"),
        (("name", " name"), " name"),
        (("größe", "GRÖSSE"), "GRÖSSE"),
        (("a\0b",), "a\0b"),
        (("x" * 5_000, "y"), None),
        ((LONG,), LONG),
    ],
)
def test_names_clash_where_some_reader_takes_one_for_another(
    names: tuple[str, ...], clash: str | None
) -> None:
    assert find_clash(names) == clash


def test_a_long_name_is_not_compared_with_known_ones_but_refused() -> None:
    """It could be one of them to a reader that leaves out what cannot be seen, and costs seconds to fold."""
    assert KNOWN.find_impostor({LONG: 1}) == LONG
    assert KNOWN.find_impostor({"x" * 5_000: 1}) is None


def test_names_that_are_both_declared_do_not_clash() -> None:
    assert find_clash(("-A", "-a"), declared={"-A", "-a"}) is None
    assert find_clash(("-A", "-a"), declared={"-a"}) == "-a"


def test_a_clash_is_found_at_any_depth() -> None:
    assert find_deep_clash({"a": [{"b": {"c": 1, "C": 2}}]}) == "C"
    assert find_deep_clash({"a": [{"b": {"c": 1}}, {"B": 2}], "d": "x"}) is None


def test_the_message_shows_invisible_characters() -> None:
    message = describe_ambiguity("na\u200bme", "`params`")

    assert message == "member `na\\u200bme` of `params` can be read as another member"
