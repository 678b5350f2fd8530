"""What tells one list of a server from another."""

from tests.catalog.definition_samples import tool
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.listings import ServerLists, check_lists, digest_lists
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools


def test_the_order_of_tools_makes_no_other_list_and_anything_else_does() -> None:
    def digest(*raws: bytes) -> str:
        return digest_lists(ServerLists(*check_tools("fs", raws)))

    one, two = tool(name="one"), tool(name="two")
    others = [digest(one), digest(two), digest(one, b"7"), digest(one, b"{}"), digest()]

    assert digest(one, two) == digest(two, one)
    assert len({digest(one, two), *others}) == 6


def test_every_kind_of_list_counts() -> None:
    def digest(**raws: bytes) -> str:
        kinds = ("tools", "prompts", "resources", "templates")
        return digest_lists(
            check_lists("fs", **{kind: [raws[kind]] if kind in raws else [] for kind in kinds})
        )

    prompt, resource = b'{"name":"a:b"}', b'{"uri":"a:b","name":"x"}'
    digests = {
        digest(),
        digest(tools=tool()),
        digest(prompts=prompt),
        digest(prompts=b'{"name":"a:b","title":"x"}'),
        digest(resources=resource),
        digest(templates=b'{"uriTemplate":"a:b","name":"x"}'),
        digest(prompts=b"{}"),
    }

    assert len(digests) == 7
    assert digest(prompts=prompt) == digest(prompts=b' {"name" : "a:b"} ')


def test_the_lists_of_a_server_have_the_digest_of_its_offer() -> None:
    raws = [tool(), b'{"name":"p"}', b'{"uri":"a:b","name":"x"}', b'{"uriTemplate":"a:{x}","name":"x"}']

    lists = check_lists("fs", tools=raws[:1], prompts=raws[1:2], resources=raws[2:3], templates=raws[3:])
    offer = ServerTools(record=ServerRecord(server_id="fs", transport="stdio"), **lists._asdict())

    assert digest_lists(offer) == digest_lists(lists)
