"""Secrets are looked up when a server is connected, and no error ever shows one."""

from pathlib import Path

import pytest

from toolgate.model.servers import HttpEndpoint
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets


def test_a_file_in_the_directory_of_secrets_wins_over_the_variable(tmp_path: Path) -> None:
    (tmp_path / "API_KEY").write_text("from-file\n", "utf-8")
    secrets = Secrets({"API_KEY": "from-environment", "OTHER": "only-there"}, tmp_path)

    assert secrets.build_http_headers(HttpEndpoint(url="http://x/", auth_ref="API_KEY")) == {
        "Authorization": "Bearer from-file"
    }
    assert secrets.read_secret("OTHER") == "only-there"
    assert Secrets({"API_KEY": "from-environment"}).read_secret("API_KEY") == "from-environment"


def test_a_missing_secret_is_reported_by_name_and_never_by_value(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    secrets = Secrets({}, tmp_path)

    notified = {name: refusal(secrets, name) for name in ("none", "latin", "../latin", "a/b", ".", "")}

    assert notified == {
        "none": f"secret `none` is not in `{tmp_path}` or in the environment",
        "latin": "the file of secret `latin` cannot be read: it is not UTF-8",
        "../latin": "`../latin` is not a valid secret name",
        "a/b": "`a/b` is not a valid secret name",
        ".": "`.` is not a valid secret name",
        "": "`` is not a valid secret name",
    }
    assert refusal(Secrets({}), "none") == "secret `none` is not in the environment"


def refusal(secrets: Secrets, name: str) -> str:
    with pytest.raises(StartFailed) as raised:
        secrets.read_secret(name)
    assert (raised.value.state, raised.value.fatal) == ("env_missing", True)
    return str(raised.value)


@pytest.mark.parametrize(
    "name", ["../secrets-evil/token", "/etc/passwd", "a/b", "..", ".", "", "a\n", "a\0b", "${ENV:X}"]
)
def test_fil_5_a_secret_is_named_by_a_word_so_nothing_next_to_its_directory_is_read(
    tmp_path: Path, name: str
) -> None:
    own, other = tmp_path / "secrets", tmp_path / "secrets-evil"
    own.mkdir()
    other.mkdir()
    (other / "token").write_text("not yours")

    with pytest.raises(StartFailed, match="is not a valid secret name"):
        Secrets({}, own).read_secret(name)
