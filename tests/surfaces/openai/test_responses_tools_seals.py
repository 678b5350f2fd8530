"""What clients of `/v1/responses` carry is good for its principal, its purpose and a while; nodes forget."""

import pytest

from toolgate.chat.responses.requests import CarriedCall, decode_carried, encode_carried
from toolgate.gateway.auth.signing import SEAL_LIFETIME_S, SealedIds, Signer
from toolgate.surfaces.openai.responses import PURPOSE, RecentIds

CARRIED = CarriedCall("call_1", (("call_0", "zero"),), "one", "one.echo", "{}")
ENCODED = encode_carried(CARRIED)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_sealed_opens_for_its_principal_at_every_node() -> None:
    sealed = SealedIds(Signer(b"k" * 32), Clock(), PURPOSE).seal("p_", ENCODED, principal_id="ada")
    opened = SealedIds(Signer(b"k" * 32), Clock(), PURPOSE).open("p_", sealed, principal_id="ada")

    assert opened is not None
    assert decode_carried(opened) == CARRIED


@pytest.mark.parametrize("why", ["principal", "purpose", "key", "expired", "tampered", "foreign"])
def test_nothing_else_opens(why: str) -> None:
    clock = Clock()
    seals = SealedIds(Signer(b"k" * 32), clock, PURPOSE)
    sealed = seals.seal("p_", ENCODED, principal_id="ada")
    prefix, principal_id = "p_", "ada"
    match why:
        case "principal":
            principal_id = "bob"
        case "purpose":
            prefix, sealed = "q_", "q_" + sealed.removeprefix("p_")
        case "key":
            seals = SealedIds(Signer(b"x" * 32), clock, PURPOSE)
        case "expired":
            clock.now_s += SEAL_LIFETIME_S + 1
        case "tampered":
            sealed = sealed[:-4] + "AAAA"
        case "foreign":
            sealed = "p_ä"

    assert seals.open(prefix, sealed, principal_id=principal_id) is None


def test_a_node_remembers_for_each_principal_and_forgets_the_oldest() -> None:
    kept = RecentIds(max_kept=2)
    for key in "abc":
        kept.put("ada", key, key.upper())

    assert [kept.get("ada", key) for key in "abc"] == [None, "B", "C"]
    assert kept.get("bob", "c") is None
