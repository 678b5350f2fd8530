"""Settings: one class, unknown keys are errors, safe defaults."""

from pathlib import Path

import pytest

from toolgate.errors import StartRefused
from toolgate.settings import AuditSettings, GrpcSettings, Settings, load_settings


def test_sup_3_the_defaults_are_loopback_and_production() -> None:
    settings = load_settings(None, {})

    assert (settings.listen, settings.is_loopback, settings.environment) == ("127.0.0.1:8080", True, "prod")


def test_there_are_at_most_40_settings_and_each_is_documented() -> None:
    fields = Settings.model_json_schema()["properties"]

    assert len(fields) <= 40
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_variables_override_the_file_and_options_override_both(tmp_path: Path) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text('log_level = "error"\nmax_tools = 5\nlisten = "127.0.0.1:1"\n')

    settings = load_settings(
        path, {"TOOLGATE_MAX_TOOLS": "6", "TOOLGATE_LISTEN": "127.0.0.1:2"}, {"listen": "127.0.0.1:3"}
    )

    assert (settings.log_level, settings.max_tools, settings.listen) == ("error", 6, "127.0.0.1:3")


@pytest.mark.requirement("002-057")
@pytest.mark.parametrize("variable", ["TOOLGATE_MCP_REGISTRY_DIR", "SMS_MCP_REGISTRY_DIR", "SMS_MCP_DIR"])
def test_the_registry_directory_can_be_set_by_the_variables_of_spear(variable: str) -> None:
    assert load_settings(None, {variable: "servers.d"}).mcp_registry_dir == Path("servers.d")


@pytest.mark.requirement("002-057")
@pytest.mark.parametrize(
    "text",
    [
        '[mcp]\nregistry_dir = "servers.d"',
        'mcp.registry_dir = "servers.d"',
        '"mcp.registry_dir" = "servers.d"',
        '[mcp]\ndir = "servers.d"',
    ],
)
def test_the_registry_directory_can_be_set_by_the_keys_of_spear(tmp_path: Path, text: str) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(f"{text}\n")

    assert load_settings(path, {}).mcp_registry_dir == Path("servers.d")


def test_a_list_in_the_environment_is_separated_by_commas() -> None:
    settings = load_settings(None, {"TOOLGATE_ALLOWED_HOSTS": "a.example,b.example"})

    assert settings.allowed_hosts == ("a.example", "b.example")


@pytest.mark.parametrize(
    "text",
    [
        '[grpc]\nlisten = "127.0.0.1:1"\nallow_plaintext = true',
        'grpc_listen = "127.0.0.1:1"\nallow_plaintext_grpc = true',
        'allow_plaintext_grpc = true\n[grpc]\nlisten = "127.0.0.1:1"',
    ],
)
def test_a_field_of_a_table_can_be_set_by_its_flat_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(text)

    assert load_settings(path, {}).grpc == GrpcSettings(listen="127.0.0.1:1", allow_plaintext=True)


def test_a_variable_for_one_field_keeps_the_rest_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text("[audit]\ndays = 30\nrows = 2000")
    environ = {"TOOLGATE_AUDIT_DAYS": "7", "TOOLGATE_GRPC": '{"listen": "127.0.0.1:1"}'}

    settings = load_settings(path, environ, {"grpc_cert_file": Path("control.pem")})

    assert settings.audit == AuditSettings(days=7, rows=2000)
    assert settings.grpc == GrpcSettings(listen="127.0.0.1:1", cert_file=Path("control.pem"))


@pytest.mark.parametrize(("value", "message"), [("{", "not JSON"), ("[1]", "not a table")])
def test_an_error_names_the_table_that_cannot_be_read(value: str, message: str) -> None:
    with pytest.raises(StartRefused, match=f"setting `audit`: {message}"):
        load_settings(None, {"TOOLGATE_AUDIT": value, "TOOLGATE_AUDIT_DAYS": "7"})


def test_tables_in_variables_are_json() -> None:
    fields = Settings.model_json_schema()["properties"]
    tables = [name for name, field in fields.items() if "$ref" in str(field)]

    assert load_settings(None, {"TOOLGATE_AUDIT": '{"days": 30}'}).audit.days == 30
    for name in tables:
        with pytest.raises(StartRefused, match=f"setting `{name}\\."):
            load_settings(None, {f"TOOLGATE_{name.upper()}": '{"nonsense": 1}'})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("max_tols = 3", "unknown setting `max_tols`", id="an unknown key"),
        pytest.param('[mcp]\nregistry_dirs = "x"', "mcp.registry_dirs", id="an unknown key in a section"),
        pytest.param("mcp = 3", "unknown setting `mcp`", id="a section that is not a table"),
        pytest.param("max_tools = 0", "max_tools", id="out of range"),
        pytest.param('listen = "8080"', "listen", id="no host"),
        pytest.param('listen = "example.com:80"', "listen", id="not an address"),
        pytest.param('listen = "127.0.0.1:99999"', "listen", id="no such port"),
        pytest.param('environment = "test"', "environment", id="no such environment"),
        pytest.param("= broken", "cannot read settings", id="not TOML"),
    ],
)
def test_an_error_names_the_invalid_setting(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(text)

    with pytest.raises(StartRefused, match=message):
        load_settings(path, {})


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("10.0.0.1:1", False),
    ],
)
def test_loopback_addresses_are_recognized(listen: str, expected: bool) -> None:
    assert Settings(listen=listen).is_loopback is expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_tols = 3", "did you mean `max_tools`?"),
        ('[mcp]\nregistry_dirs = "x"', "did you mean `mcp_registry_dir`?"),
        ("colour = 3", "see `docs/reference/settings.md` for all settings"),
    ],
)
def test_a_mistyped_setting_suggests_the_right_name(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(text)

    with pytest.raises(StartRefused) as refused:
        load_settings(path, {})

    assert refused.value.hint == hint


def test_the_standard_otlp_variables_apply_only_without_the_otlp_setting() -> None:
    standard = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }
    named = load_settings(None, standard).otlp
    own = load_settings(None, standard | {"TOOLGATE_OTLP": '{"endpoint": "https://own", "audit": true}'}).otlp
    off = load_settings(None, standard | {"OTEL_SDK_DISABLED": "true"}).otlp

    assert named is not None
    assert (named.endpoint, named.sample, named.traces, named.audit) == (
        "http://collector:4318",
        0.25,
        True,
        False,
    )
    assert own is not None
    assert (own.endpoint, own.sample, own.audit) == ("https://own", 1.0, True)
    assert off is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "supports only `http/protobuf`", id="gRPC"),
        pytest.param({"OTEL_EXPORTER_OTLP_HEADERS": "a=s3cret"}, "an `https` URL", id="headers in the open"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "otlp.endpoint", id="no URL"),
    ],
)
def test_an_unusable_collector_prevents_the_start(environ: dict[str, str], message: str) -> None:
    with pytest.raises(StartRefused) as refused:
        load_settings(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", **environ})

    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)
