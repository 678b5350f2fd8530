"""A gateway behind a proxy: the URLs it shows are those of its clients."""

from tests.scenarios.gateway import Site, running


def test_urls_to_paste_are_those_behind_which_the_gateway_is_public(site: Site) -> None:
    public = {"TOOLGATE_PUBLIC_URL": "https://tools.example.com/"}
    with running(site, environ=public) as gateway:
        shown = gateway.get("/api/v1/mcp/tools?servers=git")["url"]

    assert shown == "https://tools.example.com/api/mcp?servers=git"
