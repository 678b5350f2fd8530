"""What tells one list of a server from another."""

from tests.catalog.definition_samples import tool
from toolgate.catalog.definitions import check_list, digest_list


def test_the_order_of_tools_makes_no_other_list_and_anything_else_does() -> None:
    def digest(*raws: bytes) -> str:
        return digest_list(*check_list("fs", raws))

    one, two = tool(name="one"), tool(name="two")
    others = [digest(one), digest(two), digest(one, b"7"), digest(one, b"{}"), digest()]

    assert digest(one, two) == digest(two, one)
    assert len({digest(one, two), *others}) == 6
