"""What a path leads to: words before ids, and to any other method an id."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from toolgate.surfaces.rest.framework.routing import PathTable


class Place(NamedTuple):
    name: str
    methods: frozenset[str]


PATHS = PathTable(
    {
        "/servers": Place("all", frozenset({"GET"})),
        "/servers/{server_id}": Place("one", frozenset({"GET", "PUT"})),
        "/servers/import": Place("import", frozenset({"POST"})),
        "/servers/{server_id}/tools/{tool}": Place("tool", frozenset({"GET"})),
    }
)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        pytest.param("GET", "/servers", ("all", {}), id="a path without ids"),
        pytest.param("DELETE", "/servers", ("all", {}), id="with a method that it has not"),
        pytest.param("PUT", "/servers/git", ("one", {"server_id": "git"}), id="an id"),
        pytest.param("POST", "/servers/import", ("import", {}), id="a word where an id could stand"),
        pytest.param("PUT", "/servers/import", ("one", {"server_id": "import"}), id="the same as an id"),
        pytest.param(
            "PATCH", "/servers/import", ("one", {"server_id": "import"}), id="of no method of either"
        ),
        pytest.param("GET", "/servers/a/tools/b", ("tool", {"server_id": "a", "tool": "b"}), id="two ids"),
        pytest.param("GET", "/servers/", None, id="an empty id"),
        pytest.param("GET", "/servers/a/tools/b/", None, id="a slash too many"),
        pytest.param("GET", "/else", None, id="nothing"),
    ],
)
def test_a_path_leads_to(method: str, path: str, expected: tuple[str, Mapping[str, str]] | None) -> None:
    found = PATHS.find(path, method)

    assert (found and (found[0].name, found[1])) == expected
