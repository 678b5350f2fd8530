"""Masks that come back in a change: the stored value is put back, or the change is rejected."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.redaction.records import redact_record, restore_hidden
from toolgate.redaction.shapes import MASK

SECRET = "c4n4ry-0f-a-secret"
STORED: dict[str, Any] = {
    "server_id": "s",
    "display_name": "***",
    "stdio": {
        "command": "run",
        "args": ["--token", SECRET, "--pin", "-x", "--api-key", "an0ther-secret"],
        "env": {"API_KEY": SECRET, "MODE": "fast"},
    },
}
SHOWN = redact_record("server", STORED)


def restore(change: dict[str, Any]) -> dict[str, Any]:
    return restore_hidden("server", change, shown=SHOWN, stored=STORED)


def test_what_is_sent_as_it_was_shown_is_what_is_stored() -> None:
    assert restore(SHOWN) == STORED


def test_a_changed_field_next_to_a_mask_keeps_the_secret() -> None:
    launch = SHOWN["stdio"] | {"env": {"API_KEY": MASK, "MODE": "slow"}}

    assert restore(SHOWN | {"stdio": launch})["stdio"]["env"] == {"API_KEY": SECRET, "MODE": "slow"}


def test_a_secret_that_moved_is_found_by_the_flag_before_it() -> None:
    launch = SHOWN["stdio"] | {"args": ["--verbose", "--api-key", MASK, "--token", MASK]}

    restored = restore(SHOWN | {"stdio": launch})["stdio"]["args"]

    assert restored == ["--verbose", "--api-key", "an0ther-secret", "--token", SECRET]


@pytest.mark.parametrize(
    ("launch", "where"),
    [
        pytest.param({"args": ["--other", MASK]}, r"stdio\.args\[1\]", id="two secrets look alike"),
        pytest.param({"env": {"NEW_TOKEN": MASK}}, r"stdio\.env\.NEW_TOKEN", id="nothing is stored"),
        pytest.param({"command": MASK}, r"stdio\.command", id="a place that hides nothing"),
    ],
)
def test_a_mask_without_a_stored_value_is_rejected(launch: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRecord, match=where) as rejected:
        restore({"stdio": launch})

    assert "${ENV:NAME}" in rejected.value.hint


def test_a_secret_is_not_restored_to_a_place_where_it_would_be_shown() -> None:
    stored = {"stdio": {"command": "run", "args": ["--token", SECRET]}}
    sent = {"stdio": {"command": "run", "args": ["--verbose", MASK]}}

    with pytest.raises(InvalidRecord, match=r"stdio\.args\[1\]"):
        restore_hidden("server", sent, shown=redact_record("server", stored), stored=stored)


def test_values_of_the_wrong_type_are_left_to_the_validation() -> None:
    wrong = {"stdio": {"args": [1, MASK], "env": 5}, "http": None}

    assert restore(wrong | {"stdio": {"args": [1], "env": 5}})["stdio"] == {"args": [1], "env": 5}


def test_a_guest_gets_no_reference_to_a_secret_of_the_node() -> None:
    with pytest.raises(InvalidRecord) as rejected:
        restore_hidden("task", {"workload": {"env": {"TOKEN": MASK}}}, shown={}, stored={})

    assert rejected.value.hint == "send the value itself"


def test_every_kind_hides_its_secrets() -> None:
    upstream = {"base_url": f"https://ada:{SECRET}@h/v1", "headers": {"X-Key": SECRET}}

    assert redact_record("chat_upstream", upstream) == {
        "base_url": "https://***@h/v1",
        "headers": {"X-Key": MASK},
    }
    assert redact_record("secret", {"secret_id": "s", "hex": "00"}) == {"secret_id": "s", "hex": MASK}
    assert redact_record("task", {"workload": {"env": {"TOKEN": SECRET}}}) == {
        "workload": {"env": {"TOKEN": MASK}}
    }
