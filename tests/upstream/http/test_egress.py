"""Where the gateway may connect to."""

import asyncio

import pytest

from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from toolgate.upstream.http.client_connection import ConnectFailed
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target

pytestmark = pytest.mark.anyio

PUBLIC_ONLY = Egress(allow_private=False)
ANY = Egress(allow_private=True)

PRIVATE = [
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "::",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "::127.0.0.1",
    "::8.8.8.8",
    "2002:7f00:1::",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "2001::1",
]
PUBLIC = ["8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("egress", [ANY, PUBLIC_ONLY], ids=["private allowed", "public only"])
async def test_ssr_1_some_addresses_are_never_connected_to(egress: Egress, address: str) -> None:
    with pytest.raises(EgressRefused, match="does not connect to"):
        await egress.resolve(address, 80)


@pytest.mark.parametrize("address", PRIVATE)
async def test_ssr_1_private_addresses_are_the_operators_choice(address: str) -> None:
    with pytest.raises(EgressRefused, match=r"a (loopback|private) address"):
        await PUBLIC_ONLY.resolve(address, 80)
    assert await ANY.resolve(address, 80) == [address]


@pytest.mark.parametrize("address", PUBLIC)
async def test_public_addresses_are_fine(address: str) -> None:
    assert len(await PUBLIC_ONLY.resolve(address, 80)) == 1


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "1.2.3.4.5",
        "0x",
        "a.0x7f",
        "a.5",
    ],
)
@pytest.mark.parametrize("egress", [ANY, PUBLIC_ONLY], ids=["private allowed", "public only"])
async def test_ssr_1_addresses_in_disguise_are_refused_before_anyone_resolves_them(
    egress: Egress, host: str
) -> None:
    with pytest.raises(EgressRefused, match="neither a host name nor a plainly spelled"):
        parse_target(f"http://{host}/mcp")
    with pytest.raises(EgressRefused, match="neither a host name nor a plainly spelled"):
        await egress.resolve(host, 80)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        pytest.param("file:///etc/passwd", "scheme `file`", id="file"),
        pytest.param("gopher://x/", "scheme `gopher`", id="gopher"),
        pytest.param("unix:/run/x.sock", "scheme `unix`", id="unix"),
        pytest.param("ftp://x/", "scheme `ftp`", id="ftp"),
        pytest.param("x/mcp", "scheme ``", id="none"),
        pytest.param("http://user:secret@x/", "user information", id="user and password"),
        pytest.param("http://@x/", "user information", id="an empty user"),
        pytest.param("http://good.example\\@evil.example/", "percent-encoded", id="a backslash"),
        pytest.param("http://x/a\r\nHost: evil", "percent-encoded", id="a line end"),
        pytest.param("http://x/a b", "percent-encoded", id="a space"),
        pytest.param("http://exämple.com/", "percent-encoded", id="not ASCII"),
        pytest.param("http://x/#there", "fragment", id="a fragment"),
        pytest.param("http://x:0/", "port 0", id="port 0"),
        pytest.param("http://x:99999/", "not valid", id="no such port"),
        pytest.param("http://[::1/", "not valid", id="half an IPv6 address"),
        pytest.param("http://[fe80::1%25eth0]/", "does not connect|neither a host name", id="a zone"),
        pytest.param("http:///mcp", "neither a host name", id="no host"),
        pytest.param("http://-x/", "neither a host name", id="no host name"),
    ],
)
def test_ssr_4_a_url_is_http_plainly_spelled_and_without_credentials(url: str, reason: str) -> None:
    with pytest.raises(EgressRefused, match=reason) as caught:
        ANY.check_literal(parse_target(url))

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.example", HttpTarget(False, "a.example", 80, "a.example", "/")),
        (
            "https://A.example:8443/x/mcp?k=v",
            HttpTarget(True, "a.example", 8443, "A.example:8443", "/x/mcp?k=v"),
        ),
        ("http://[::1]:9/mcp", HttpTarget(False, "::1", 9, "[::1]:9", "/mcp")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: HttpTarget) -> None:
    assert parse_target(url) == expected


def test_for_people_a_target_is_its_host_and_port() -> None:
    addresses = [parse_target(f"http://{host}/?token=x").address for host in ("a.example", "[::1]:9")]

    assert addresses == ["a.example:80", "[::1]:9"]


def test_a_literal_address_is_refused_without_a_resolver() -> None:
    with pytest.raises(EgressRefused, match="a link-local address"):
        ANY.check_literal(parse_target("http://169.254.169.254/latest/meta-data"))
    ANY.check_literal(parse_target("http://name.example/"))


LISTED = Egress(
    allow_private=True,
    allowed_hosts=["*.example.com", "Mcp.internal", "10.0.0.?", "::1"],
    resolver=lambda host, port: _at(["10.0.0.7"]),
)


async def _at(addresses: list[str]) -> list[str]:
    return addresses


@pytest.mark.parametrize(
    "host",
    [
        "a.example.com",
        "A.Example.COM",
        "a.b.example.com.",
        "mcp.internal",
        "MCP.internal.",
        "10.0.0.7",
        "::1",
    ],
)
async def test_ssr_1_a_host_on_the_list_is_connected_to_however_it_is_spelled(host: str) -> None:
    assert await LISTED.resolve(host, 443)
    LISTED.check_literal(parse_target(f"https://[{host}]/" if ":" in host else f"https://{host}/"))


@pytest.mark.requirement("002-045")
@pytest.mark.parametrize(
    "host",
    ["example.com", "a.example.com.evil.net", "evil-mcp.internal", "10.0.0.77", "127.0.0.1", "8.8.8.8"],
)
async def test_ssr_1_with_a_list_no_other_host_is_connected_to_nor_even_looked_up(host: str) -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise AssertionError("no test may ask for it")

    egress = Egress(allow_private=True, allowed_hosts=["*.example.com", "mcp.internal"], resolver=resolver)
    with pytest.raises(EgressRefused, match="allowed_upstream_hosts"):
        await egress.resolve(host, 443)
    with pytest.raises(EgressRefused, match="allowed_upstream_hosts"):
        egress.check_literal(parse_target(f"https://{host}/"))


async def test_ssr_1_a_listed_name_still_may_not_stand_for_a_forbidden_address() -> None:
    egress = Egress(
        allow_private=True, allowed_hosts=["*"], resolver=lambda host, port: _at(["169.254.169.254"])
    )

    with pytest.raises(EgressRefused, match="link-local"):
        await egress.resolve("metadata.example.com", 80)


async def test_only_the_good_addresses_of_a_name_remain() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["169.254.169.254", "10.0.0.7", "fe80::1%eth0", "8.8.8.8", "8.8.8.8"]

    assert await Egress(allow_private=True, resolver=resolver).resolve("x", 80) == ["10.0.0.7", "8.8.8.8"]
    assert await Egress(allow_private=False, resolver=resolver).resolve("x", 80) == ["8.8.8.8"]


async def test_a_name_without_addresses_is_refused() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(EgressRefused, match="a name without any address"):
        await Egress(allow_private=True, resolver=resolver).resolve("x", 80)


async def test_the_system_resolver_is_the_default() -> None:
    assert "127.0.0.1" in await ANY.resolve("localhost", 80)


async def _never(request: Request, peer: Peer) -> None:
    raise AssertionError("no test may connect here")


@pytest.mark.requirement("002-045")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "rebound.example", "[::ffff:127.0.0.1]"])
async def test_ssr_1_a_refused_server_gets_no_connection(host: str) -> None:
    async def rebinding(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with FaultyHttp(_never) as sentinel:
        egress = Egress(allow_private=False, resolver=rebinding)
        pool = HttpPool(parse_target(f"http://{host}:{sentinel.port}/mcp"), egress)

        with pytest.raises(ConnectFailed, match="does not connect to"):
            await pool.send(b"", deadline=asyncio.get_running_loop().time() + 5)
        assert sentinel.connections == 0


async def test_the_connection_goes_to_the_address_that_was_vetted() -> None:
    asked = []

    async def changing(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(b"here")

    async with FaultyHttp(script) as server:
        egress = Egress(allow_private=True, resolver=changing)
        pool = HttpPool(parse_target(f"http://changing.example:{server.port}/"), egress)
        request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        response = await pool.send(request, deadline=asyncio.get_running_loop().time() + 5)
        pool.close()

        assert (response.body, asked) == (b"here", ["changing.example"])
