"""The console as files: what is sent for which path, under which rules, and what never is."""

import asyncio
import gzip
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from toolgate.errors import StartRefused
from toolgate.surfaces.console import Console, ConsoleEndpoint, find_console, load_console
from toolgate.surfaces.http.connection import HttpServer
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.http.messages import HttpRequest, Responder

pytestmark = pytest.mark.anyio

PAGE = '<meta name="csp-nonce" content="__NONCE__"><script src="/console/assets/app-1.js"></script>'
SCRIPT = b"document.title = 'Toolgate';" * 10
FOR_EVER = "public, max-age=31536000, immutable"
FOREIGN = "/elsewhere"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A console as a build leaves it, with an unrelated file next to it."""
    folder = tmp_path / "built"
    (folder / "assets").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "index.html").write_text(PAGE)
    (folder / "logo.svg").write_bytes(b"<svg/>")
    (folder / "assets/app-1.js").write_bytes(SCRIPT)
    (folder / "assets/app-1.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets/app-1.js.br").write_bytes(b"brotli")
    return folder


async def beyond(request: HttpRequest, responder: Responder) -> None:
    """A caller that is behind the console."""
    responder.send(418, request.path.encode())


@asynccontextmanager
async def browsing(console: Console | None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a listener that has the console, behind the guard as everything is."""
    server, stopping = (
        HttpServer(OriginGuard(ConsoleEndpoint(console, beyond), ["127.0.0.1"])),
        asyncio.Event(),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(listener, stopping.wait, drain_s=1))
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
                client.headers["accept-encoding"] = "identity"
                yield client
            stopping.set()


def directives(response: httpx2.Response) -> dict[str, str]:
    """The policy of an answer, by the names of its directives."""
    parts = (part.strip().partition(" ") for part in response.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


async def test_every_path_that_is_the_consoles_own_answers_with_its_page(built: Path) -> None:
    paths = [
        "/console",
        "/console/",
        "/console/servers",
        "/console/catalog/git.log",
        "/console/login?code=a&state=b",
    ]
    async with browsing(load_console(built)) as client:
        responses = [await client.get(path) for path in paths]

    assert {response.status_code for response in responses} == {200}
    assert {response.headers["content-type"] for response in responses} == {"text/html; charset=utf-8"}
    assert all("/console/assets/app-1.js" in response.text for response in responses)


async def test_xss_2_a_page_may_run_our_files_alone_and_has_a_nonce_of_its_own(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        responses = [await client.get("/console/") for _ in range(2)]

    nonces = [re.findall(r'content="(.*?)"', response.text)[0] for response in responses]
    assert len(set(nonces)) == 2
    assert all(re.fullmatch(r"[\w-]{22}", nonce) for nonce in nonces)
    assert directives(responses[0]) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": f"'self' 'nonce-{nonces[0]}'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "manifest-src": "'self'",
        "form-action": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert responses[0].headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/servers",
        "/console/logo.svg",
        "/console/assets/app-1.js",
        "/console/assets/no.js",
    ],
)
async def test_xss_2_every_answer_is_hardened(built: Path, path: str) -> None:
    async with browsing(load_console(built)) as client:
        headers = (await client.get(path)).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        pytest.param("gzip, deflate, br, zstd", "br", b"brotli", id="the smallest"),
        pytest.param("gzip;q=1.0, br;q=0", "gzip", gzip.compress(SCRIPT, mtime=0), id="br is refused"),
        pytest.param("br;q=0.0, gzip;q=0", None, SCRIPT, id="both are refused"),
        pytest.param("BR ; q=0.5", "br", b"brotli", id="in any spelling"),
        pytest.param("identity", None, SCRIPT, id="as it is"),
        pytest.param("*", None, SCRIPT, id="whatever we like"),
    ],
)
async def test_a_file_goes_out_as_it_is_wanted(
    built: Path, accepted: str, encoding: str | None, body: bytes
) -> None:
    (built / "assets/app-1.js.gz").write_bytes(gzip.compress(SCRIPT, mtime=0))
    async with (
        browsing(load_console(built)) as client,
        client.stream("GET", "/console/assets/app-1.js", headers={"accept-encoding": accepted}) as response,
    ):
        raw = b"".join([part async for part in response.aiter_raw()])

    assert raw == body
    assert response.headers.get("content-encoding") == encoding
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    assert response.headers["vary"] == "accept-encoding"
    assert response.headers["cache-control"] == FOR_EVER


async def test_what_a_browser_has_already_is_not_sent_again(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        first = await client.get("/console/logo.svg")
        etag = first.headers["etag"]
        again = [
            await client.get("/console/logo.svg", headers={"if-none-match": known})
            for known in (etag, f'"other", W/{etag}', "*", '"other"')
        ]

    assert first.headers["cache-control"] == "no-cache"
    assert [response.status_code for response in again] == [304, 304, 304, 200]
    assert [response.content for response in again] == [b"", b"", b"", b"<svg/>"]
    assert again[0].headers["etag"] == etag


async def test_each_encoding_of_a_file_has_a_tag_of_its_own(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        tags = {
            (await client.head("/console/assets/app-1.js", headers={"accept-encoding": one})).headers["etag"]
            for one in ("br", "gzip", "identity")
        }

    assert len(tags) == 3


async def test_head_has_the_head_of_get_and_nothing_more(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        head, get = await client.head("/console/logo.svg"), await client.get("/console/logo.svg")
        page = await client.head("/console/")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == get.headers["etag"]
    assert (page.status_code, page.content) == (200, b"")


async def test_a_file_that_is_not_there_is_shown_in_our_words(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        response = await client.get("/console/assets/app-0.js")

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_the_console_is_only_read(built: Path, method: str) -> None:
    async with browsing(load_console(built)) as client:
        response = await client.request(method, "/console/")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path",
    [
        "/console/../secret.txt",
        "/console/..%2fsecret.txt",
        "/console/assets/../../secret.txt",
        "/console/assets/%2e%2e/%2e%2e/secret.txt",
        "/console//etc/passwd",
        "/console/assets//etc/passwd",
        "/console/assets/app-1.js%00.svg",
        "/console/index.html/../../secret.txt",
    ],
)
async def test_no_path_leads_out_of_the_console(built: Path, path: str) -> None:
    async with browsing(load_console(built)) as client:
        # By hand: a client would make sense of the path first.
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        response = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()

    assert response.split()[1] in {"200", "404"}
    assert "nosniff" in response
    assert "secret" not in response
    assert "root:" not in response


async def test_twins_of_files_have_no_path_of_their_own(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        assert (await client.get("/console/assets/app-1.js.br")).status_code == 404


async def test_a_browser_at_the_root_is_led_to_the_console_and_no_one_else_is(built: Path) -> None:
    html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with browsing(load_console(built)) as client:
        led = await client.get("/", headers=html)
        others = [
            await client.get("/", headers={"accept": "*/*"}),
            await client.post("/", headers=html),
            await client.get(FOREIGN, headers=html),
            await client.get("/consolee", headers=html),
        ]
    async with browsing(None) as client:
        others.append(await client.get("/", headers=html))

    assert (led.status_code, led.headers["location"]) == (302, "/console/")
    assert {response.status_code for response in others} == {418}


async def test_where_it_is_not_built_it_says_how_to_build_it() -> None:
    async with browsing(None) as client:
        responses = [await client.get(path) for path in ("/console", "/console/assets/app-1.js")]

    assert {response.status_code for response in responses} == {404}
    assert {"make console" in response.json()["error"]["hint"] for response in responses} == {True}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"host": "evil.example"}, id="a foreign host"),
        pytest.param({"origin": "https://evil.example"}, id="a foreign origin"),
        pytest.param({"origin": "null"}, id="no origin"),
    ],
)
async def test_sco_18_no_foreign_page_gets_the_console(built: Path, headers: dict[str, str]) -> None:
    async with browsing(load_console(built)) as client:
        responses = [
            await client.get(path, headers=headers) for path in ("/console/", "/console/assets/app-1.js")
        ]

    assert {response.status_code for response in responses} == {403}


async def test_credentials_are_not_looked_at(built: Path) -> None:
    async with browsing(load_console(built)) as client:
        response = await client.get("/console/", headers={"authorization": "Bearer wrong", "cookie": "a=b"})

    assert response.status_code == 200


def test_a_console_without_its_page_or_past_its_size_is_refused(built: Path) -> None:
    with pytest.raises(StartRefused, match="more than 100 bytes"):
        load_console(built, max_bytes=100)
    (built / "index.html").unlink()
    with pytest.raises(StartRefused, match=r"`index.html` is missing"):
        load_console(built)


def test_a_checkout_serves_what_it_has_built() -> None:
    found = find_console()

    assert found is not None
    assert found.parts[-2:] == ("build", "console")
    assert load_console(found).files != {}
