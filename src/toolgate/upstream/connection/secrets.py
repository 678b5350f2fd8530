"""Resolves the environment variables and secrets that records refer to, at connect time only.

Records never hold values. Nothing here is logged, and an error names the variable or secret, never its value.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolgate.model.names import REFERENCE, SECRET_NAME
from toolgate.model.servers import HttpEndpoint, StdioLaunch
from toolgate.upstream.connection.contract import StartFailed

BASE_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL", "TERM")
"""The variables of the gateway's environment that every child gets."""
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_NPM: Final = tuple(
    f"NPM_CONFIG_{name}"
    for name in ("REGISTRY", "CAFILE", "PROXY", "HTTPS_PROXY", "NOPROXY", "STRICT_SSL", "USERCONFIG")
)
NETWORK_ENVIRONMENT: Final = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY"),
    *(*_PROXIES, *map(str.lower, _PROXIES)),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_PROXY", "PIP_TRUSTED_HOST", "PIP_CONFIG_FILE"),
    *("PIP_FIND_LINKS", "PIP_NO_INDEX"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
    *("UV_CONFIG_FILE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "UV_PYTHON_INSTALL_MIRROR"),
    *(*_NPM, *map(str.lower, _NPM)),
)
"""The variables for the network that every child gets too, if they are set: proxies, indexes and CAs.

Without these, package downloads and servers' own API calls fail behind a company's proxy or CA. They may hold
the password of a proxy or an index, which `Redactor` masks in a child's output.
"""


class Secrets:
    """Resolves references against the node's environment and its directory of secrets."""

    def __init__(self, environ: Mapping[str, str], secrets_dir: Path | None = None) -> None:
        self._environ = environ
        self._secrets_dir = secrets_dir

    def expand(self, text: str) -> str:
        """`text` with every `${ENV:NAME}` and `${ENV:NAME:-default}` replaced. Raises StartFailed."""
        return REFERENCE.sub(self._expand_variable, text)

    def build_child_environment(self, launch: StdioLaunch) -> dict[str, str]:
        """The whole environment of a child: the base lists, `env` and `env_from`; later ones win.

        A declared variable replaces a network variable whatever its case: an empty `https_proxy` removes
        `HTTPS_PROXY`. A server's own `path` does not change `PATH`.
        """
        own = {name.upper() for name in (*launch.env, *launch.env_from)}
        names = (*BASE_ENVIRONMENT, *(name for name in NETWORK_ENVIRONMENT if name.upper() not in own))
        base = {name: self._environ[name] for name in names if name in self._environ}
        declared = {name: self.expand(value) for name, value in launch.env.items()}
        return base | declared | {name: self.expand(f"${{ENV:{name}}}") for name in launch.env_from}

    def build_http_headers(self, endpoint: HttpEndpoint) -> dict[str, str]:
        """The headers of a record, with `auth_ref`, if set, as a bearer token."""
        headers = {name: self.expand(value) for name, value in endpoint.headers.items()}
        if endpoint.auth_ref is not None:
            headers["Authorization"] = f"Bearer {self.read_secret(endpoint.auth_ref)}"
        return headers

    def read_secret(self, name: str) -> str:
        """The secret `name`: its file in the secrets directory, else the variable. Raises StartFailed."""
        if not SECRET_NAME.fullmatch(name):
            raise _missing(f"`{name}` is not a valid secret name")
        path = self._secrets_dir / name if self._secrets_dir else None
        if path is not None and path.is_file():
            try:
                return path.read_text("utf-8").strip()
            except OSError as exc:
                raise _missing(f"the file of secret `{name}` cannot be read: {exc.strerror}") from exc
            except UnicodeDecodeError:
                # Not `from` it: that exception shows the bytes.
                raise _missing(f"the file of secret `{name}` cannot be read: it is not UTF-8") from None
        if name in self._environ:
            return self._environ[name]
        where = f"in `{self._secrets_dir}` or " if self._secrets_dir else ""
        raise _missing(f"secret `{name}` is not {where}in the environment")

    def _expand_variable(self, match: re.Match[str]) -> str:
        name, default = match.groups()
        value = self._environ.get(name, default)
        if value is None:
            raise _missing(f"environment variable `{name}` is not set")
        return str(value)


def _missing(message: str) -> StartFailed:
    return StartFailed(message, state="env_missing", fatal=True)
