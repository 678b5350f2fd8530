"""The guide to secrets: a rotation goes as it says, and its files for other programs name what exists."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.docs.documents import EXAMPLES, document
from tests.eventually import eventually, eventually_equal
from tests.scenarios import stage_http
from tests.scenarios.clients import error_of
from tests.scenarios.gateway import Site, running
from toolgate.settings import NAMES, PREFIX

GUIDE = document("docs/how-to/secrets.md")


@contextmanager
def guarded_server(accepted: list[str]) -> Iterator[str]:
    """The URL of an MCP server that takes the last of these tokens."""

    class Handler(stage_http.Handler):
        def do_POST(self) -> None:
            if self.headers.get("authorization") == f"Bearer {accepted[-1]}":
                return super().do_POST()
            self.rfile.read(int(self.headers["content-length"]))
            return self._send(401, b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


def test_a_secret_in_a_file_is_rotated_by_disabling_and_enabling_its_server(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    accepted = ["first"]
    secret = tmp_path / "secrets" / "tracker-token"
    secret.parent.mkdir()
    secret.write_text("first\n", "utf-8")
    with guarded_server(accepted) as url:
        http = {"url": url, "auth_ref": secret.name}
        record = site.server("tracker", http=http) | {"transport": "streamable_http"}
        site.place(record)
        with running(site, environ={"TOOLGATE_SECRETS_DIR": str(secret.parent)}) as gateway:
            eventually(lambda: gateway.health("tracker")["tools"])
            client = gateway.modern()
            before = client.text("tracker.echo", text="first")
            accepted.append("second")
            secret.write_text("second\n", "utf-8")
            refused = client.call("tracker.echo", text="refused")
            site.place(record | {"enabled": False})
            eventually_equal(lambda: gateway.health("tracker")["state"], "disabled")
            site.place(record)
            eventually(lambda: client.tools() == ["tracker.echo"])
            after = client.text("tracker.echo", text="second")

    assert (before, error_of(refused), after) == ("first", "mcp_unavailable", "second")
    assert "the server responded with status 401 (unauthorized)" in str(refused)


def test_what_is_shown_for_other_programs_is_a_file_and_names_settings_that_exist() -> None:
    files = {path.name: path.read_text("utf-8") for path in (EXAMPLES / "secrets").iterdir()}
    named = re.findall(rf"\b{PREFIX}([A-Z_]+)\b", "".join(files.values()))

    assert set(GUIDE.blocks("ini", "yaml", "text")) == set(files.values())
    assert {name.lower() for name in named} <= set(NAMES)


def test_the_credentials_of_systemd_are_the_files_that_the_settings_name() -> None:
    lines = (EXAMPLES / "secrets" / "credentials.conf").read_text("utf-8").splitlines()
    loaded = [line.removeprefix("LoadCredential=").partition(":") for line in lines if "LoadC" in line]
    environment = [line for line in lines if line.startswith("Environment=")]

    assert [name for name, _, path in loaded if not path.endswith(f"/{name}")] == []
    assert environment == [
        "Environment=TOOLGATE_CONTROL_KEY_FILE=%d/node.key",
        "Environment=TOOLGATE_SECRETS_DIR=%d",
    ]


def test_the_secret_of_kubernetes_is_mounted_where_the_node_looks_for_it() -> None:
    pod = yaml.safe_load((EXAMPLES / "secrets" / "kubernetes.yaml").read_text("utf-8"))["spec"]["template"]
    [container] = pod["spec"]["containers"]
    [mount] = container["volumeMounts"]
    [volume] = pod["spec"]["volumes"]

    assert {"name": "TOOLGATE_SECRETS_DIR", "value": mount["mountPath"]} in container["env"]
    assert (mount["name"], volume["secret"]["defaultMode"]) == (volume["name"], 0o400)
