"""A gateway on this machine behind TLS, with a certificate of a private authority."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.upstream.certificates import Authority
from toolgate.cli.command import CommandError
from toolgate.cli.rest import open_client


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(authority: Authority) -> Iterator[str]:
    """A server on loopback that answers each request with an empty object."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_args: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = authority.server_context(["localhost"], days=1)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_private_authority_is_trusted_on_loopback_and_proxies_are_not_used_there(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    for name in ("HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the port where everything is discarded

    with open_client(url, None) as client:
        found = client.get("/anything")

    assert found == {}


def test_an_authority_that_is_not_trusted_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    with open_client(url, None) as client, pytest.raises(CommandError) as failure:
        client.get("/anything")

    assert "CERTIFICATE_VERIFY_FAILED" in str(failure.value)
