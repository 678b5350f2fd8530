"""Finds the cause of a failed start in a child's standard error, and suggests a fix. Pure.

The last line is rarely the cause: Node ends with its version, npm with the path of a log, uv with a frame.
Never quotes the arguments that may be a secret.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from toolgate.model.servers import ServerRecord, StdioLaunch, find_runner
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.shapes import looks_secret

MAX_CAUSE_CHARS: Final = 300

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRAILER: Final = re.compile(
    r"Node\.js v.+|at .+|[\W_]+|npm (?:notice|warn) .*|Run 'docker .*|For more information, try .*|See '.*"
)
"""Lines that end an error message and say nothing about it."""
_NPM: Final = re.compile(r"npm (?:error|ERR!) (?P<message>.+)")
_NPM_FACT: Final = re.compile(
    r"(?:code|syscall|errno|path|dest|signal|command|cwd|A complete log|network (?:This|In most|'proxy'))\b.*"
    r"|\d+"
)
"""What npm writes around the message itself."""
_CROSS: Final = "\N{MULTIPLICATION SIGN} "
_FRAME: Final = _CROSS + "├╰─▶│"
_UV_LINES: Final = 5
_ERROR: Final = re.compile(
    r"(?:Uncaught |\[cause\]: )?(?:[\w.]+\.)?(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?: .+"
)
_EXCEPTION_FRAME: Final = re.compile(r"^[|+\s-]+")

_CERTIFICATE: Final = re.compile(
    r"certificate.verify.failed|self.signed.certificate|unable_to_(?:get_issuer|verify_leaf)|"
    r"unable to get (?:local )?issuer|invalid peer certificate|unknownissuer|signed by unknown authority",
    re.IGNORECASE,
)
_NETWORK: Final = re.compile(
    r"enotfound|eai_again|econnrefused|econnreset|etimedout|enetunreach|getaddrinfo|dns error|timed out|"
    r"could not resolve|name resolution|name or service not known|connection refused|tcp connect error|"
    r"network is unreachable",
    re.IGNORECASE,
)
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
_NODE: Final = frozenset(
    {"npx", "pnpx", "bunx", "npm exec", "npm x", "pnpm dlx", "yarn dlx", "bun x", "bun run"}
)


def suggest_fix(record: ServerRecord, stderr: str, environment: Mapping[str, str], *, has_read: bool) -> str:
    """What an operator can do about a failed start.

    `has_read`: the child has read its input, so its packages had been downloaded.
    """
    where = "where the gateway runs, or in the `env` of the record"
    if _CERTIFICATE.search(stderr):
        name = choose_ca_variable(find_runner(record) or "", stderr)
        if environment.get(name):
            return f"the certificate is not signed by a CA in the file that `{name}` names: check it"
        return f"set `{name}` to the file with your company's CA, {where}"
    # Once it runs, an address that does not answer is the server's own business: its database, its API.
    if not has_read and find_runner(record) is not None and _NETWORK.search(stderr):
        name = next((name for name in _PROXIES if environment.get(name)), "")
        if name:
            return f"packages cannot be downloaded through `{name}`: check it, and `NO_PROXY`"
        return f"packages cannot be downloaded: set `HTTPS_PROXY` if there is a proxy, {where}"
    if record.stdio is None:
        return ""
    return (
        f"run the command yourself: {_shorten_command(record.stdio)}; the last 40 lines of its output are in "
        f'"toolgate servers get {record.server_id}"'
    )


def choose_ca_variable(runner: str, stderr: str = "") -> str:
    """The environment variable with the company's CA for programs that a runner starts."""
    if runner in _NODE or "UNABLE_TO_" in stderr:
        return "NODE_EXTRA_CA_CERTS"
    if runner == "pipx":
        return "PIP_CERT"
    return "REQUESTS_CA_BUNDLE" if "requests.exceptions" in stderr else "SSL_CERT_FILE"


def _shorten_command(launch: StdioLaunch) -> str:
    """The command up to what it starts, or up to a possible secret: `npx -y some-server …`."""
    words = [launch.command]
    for argument in launch.args:
        if looks_secret(words[-1]) or looks_secret(argument.partition("=")[0]) or any(random_spans(argument)):
            break
        words.append(argument)
        if not argument.startswith("-"):
            break
    return " ".join(words) + (" …" if len(words) <= len(launch.args) else "")


def find_cause(stderr: str) -> str:
    """The one or two lines with the error; empty if nothing was written."""
    lines = [line for raw in _ANSI.sub("", stderr).splitlines() if (line := raw.strip())]
    cause = (
        _find_npm_error(lines) or _find_uv_error(lines) or _find_exception(lines) or _find_last_line(lines)
    )
    return cause if len(cause) <= MAX_CAUSE_CHARS else cause[: MAX_CAUSE_CHARS - 1] + "…"


def _find_npm_error(lines: Iterable[str]) -> str:
    found = (_NPM.fullmatch(line) for line in lines)
    return next((one[0] for one in found if one and not _NPM_FACT.fullmatch(one["message"])), "")


def _find_uv_error(lines: Sequence[str]) -> str:
    """`x message:` with the frames below it, or `error: message` with what caused it."""
    start = next((at for at, line in enumerate(lines) if line.startswith((_CROSS, "error: "))), None)
    if start is None:
        return ""
    block = [line.lstrip(_FRAME) for line in lines[start : start + _UV_LINES]]
    # uv ends with a line of advice, after the reason.
    return " ".join(line for line in block if not line.startswith(("help: ", "hint: ")))


def _find_exception(lines: Sequence[str]) -> str:
    """What Node threw (the first error: others are what it led to), or Python raised (the last one)."""
    errors = [bare for line in lines if _ERROR.fullmatch(bare := _EXCEPTION_FRAME.sub("", line))]
    if not errors:
        return ""
    is_python = any(line.endswith("(most recent call last):") for line in lines)
    return errors[-1 if is_python else 0]


def _find_last_line(lines: Sequence[str]) -> str:
    return next(
        (line for line in reversed(lines) if not _TRAILER.fullmatch(line)), lines[-1] if lines else ""
    )
