"""What a path leads to: words before ids, and to any other method an id."""

from collections.abc import Mapping

import pytest

from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import Method, PathTable, RestEndpoint


def endpoint(method: Method, path: str) -> RestEndpoint[None]:
    return RestEndpoint(
        method=method, path=path, handler=unreached, role=None, summary="", response="application/json"
    )


async def unreached(_process: object, _call: RestCall[None]) -> RestResponse:
    raise AssertionError


PATHS = PathTable(
    [
        endpoint("GET", "/servers"),
        endpoint("GET", "/servers/{server_id}"),
        endpoint("PUT", "/servers/{server_id}"),
        endpoint("POST", "/servers/import"),
        endpoint("GET", "/servers/{server_id}/tools/{tool}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "template", "ids"),
    [
        pytest.param("GET", "/servers", "/servers", {}, id="a path without ids"),
        pytest.param("DELETE", "/servers", "/servers", {}, id="with a method that it has not"),
        pytest.param("PUT", "/servers/git", "/servers/{server_id}", {"server_id": "git"}, id="an id"),
        pytest.param("POST", "/servers/import", "/servers/import", {}, id="a word where an id could stand"),
        pytest.param(
            "PUT", "/servers/import", "/servers/{server_id}", {"server_id": "import"}, id="the same as an id"
        ),
        pytest.param(
            "PATCH",
            "/servers/import",
            "/servers/{server_id}",
            {"server_id": "import"},
            id="of no method of either",
        ),
        pytest.param(
            "GET",
            "/servers/a/tools/b",
            "/servers/{server_id}/tools/{tool}",
            {"server_id": "a", "tool": "b"},
            id="two ids",
        ),
        pytest.param("GET", "/servers/", None, {}, id="an empty id"),
        pytest.param("GET", "/servers/a/tools/b/", None, {}, id="a slash too many"),
        pytest.param("GET", "/else", None, {}, id="nothing"),
    ],
)
def test_a_path_leads_to(method: str, path: str, template: str | None, ids: Mapping[str, str]) -> None:
    endpoints, found_ids = PATHS.find(path, method)

    assert ({one.path for one in endpoints.values()}, found_ids) == ({template} - {None}, ids)
