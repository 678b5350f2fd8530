"""What the annotations of a definition say about effects, and what they leave open."""

import pytest

from toolgate.model.tools import HINTS, UNSTATED, read_effects

T, F, N = True, False, None


@pytest.mark.parametrize(
    ("effect", "hints", "allowed", "denied"),
    [
        # (readOnlyHint, destructiveHint) → whether an allow pattern matches, and whether a deny pattern does.
        *(("read_only", (T, other), T, T) for other in (F, N)),
        ("read_only", (T, T), F, T),
        *(("read_only", (F, other), F, F) for other in (T, F, N)),
        *(("read_only", (N, other), F, T) for other in (T, F, N)),
        *(("destructive", (other, T), T, T) for other in (F, N)),
        ("destructive", (T, T), F, T),
        *(("destructive", (other, F), F, F) for other in (T, F, N)),
        ("destructive", (T, N), F, F),
        *(("destructive", (other, N), F, T) for other in (F, N)),
    ],
)
def test_what_is_absent_or_contradicted_is_read_on_the_side_that_gives_less(
    effect: str, hints: tuple[bool | None, bool | None], allowed: bool, denied: bool
) -> None:
    effects = read_effects(dict(zip(("readOnlyHint", "destructiveHint"), hints, strict=True)))

    assert effects.counts_as(effect, is_deny=False) is allowed
    assert effects.counts_as(effect, is_deny=True) is denied


@pytest.mark.parametrize("effect", ["idempotent", "open_world"])
@pytest.mark.parametrize(
    ("value", "allowed", "denied"), [(True, True, True), (False, False, False), (None, False, True)]
)
def test_the_other_two_hints_stand_for_themselves(
    effect: str, value: bool | None, allowed: bool, denied: bool
) -> None:
    effects = read_effects({HINTS[effect]: value, "readOnlyHint": True})

    assert effects.counts_as(effect, is_deny=False) is allowed
    assert effects.counts_as(effect, is_deny=True) is denied


def test_only_a_plain_true_or_false_is_a_hint() -> None:
    assert read_effects({"readOnlyHint": 1, "destructiveHint": "false", "idempotentHint": []}) is UNSTATED


def test_what_rules_out_an_effect_may_be_another_hint() -> None:
    assert (
        read_effects({"readOnlyHint": True}).describe("destructive")
        == "the definition says `readOnlyHint: true`"
    )
