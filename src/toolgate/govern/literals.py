"""Literals in server records that may be secrets and are shown: `lint` names them, so that an admin looks.

What is certainly a secret is masked wherever a record is shown (`redaction/records`), and not named here.
"""

from collections.abc import Iterable, Iterator, Mapping

from toolgate.model.names import REFERENCE
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools
from toolgate.policy.lint import LintFinding
from toolgate.redaction.random_words import find_suspects
from toolgate.redaction.records import redact_server
from toolgate.registry.records.codec import encode_record


def find_literals(offers: Iterable[ServerTools]) -> list[LintFinding]:
    """One finding for each argument, variable, header or URL that is shown and may hold a secret."""
    return [
        LintFinding(
            code="possible_secret",
            kind="server",
            id=offer.record.server_id,
            rule=field,
            subject=field,
            message="may hold a secret, and is shown as it is: use a reference, `${ENV:NAME}`",
        )
        for offer in sorted(offers, key=lambda one: one.record.server_id)
        for field, text in _literals(offer.record)
        if any(find_suspects(REFERENCE.sub(" ", text)))
    ]


def _literals(record: ServerRecord) -> Iterator[tuple[str, str]]:
    shown = redact_server(encode_record(record))
    stdio, http = shown.get("stdio") or {}, shown.get("http") or {}
    yield from ((f"stdio.args[{at}]", arg) for at, arg in enumerate(stdio.get("args", ())))
    yield from _named("stdio.env", stdio.get("env", {}))
    yield from _named("http.headers", http.get("headers", {}))
    if "url" in http:
        yield "http.url", http["url"]


def _named(field: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((f"{field}.{name}", value) for name, value in values.items())
