"""What the claims of a verified token mean here: who it is, in which role, and how far it reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from toolgate.errors import Forbidden, InvalidRecord, StartRefused, Unauthenticated
from toolgate.gateway.auth.identity import OF_ISSUER
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Ceiling, IntegrationState, Principal, Role
from toolgate.registry.records.policy_bodies import CeilingBody
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import parse_secure_target

MAX_SUBJECT_CHARS: Final = 255
MAX_LEEWAY_S: Final = 300
_BY_RANK: Final[tuple[Role, ...]] = ("admin", "publisher", "viewer", "agent", "node")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Whose tokens are taken, and how they are read. Raises StartRefused where that would not be safe.

    A claim is named as it stands in the token, or by a path of names with dots in between.
    """

    issuer: str
    """As it stands in `iss`; its keys are found by discovery."""
    audience: str
    """What `aud` must hold: a token for somebody else is none for us."""
    jwks_url: str | None = None
    """Where the issuer's keys are, without discovery."""
    role_claim: str = "roles"
    """A list of texts, or one text of words, such as `scope`."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Value of the claim to role; of several, the highest counts."""
    default_role: Role | None = None
    """Of a token none of whose values has a role. None: such a token is refused."""
    tasks_claim: str | None = None
    """These claims list what the token may reach; as in a key's ceiling, one left out does not restrict."""
    servers_claim: str | None = None
    tools_claim: str | None = None
    denied_tools_claim: str | None = None
    task_claim: str | None = None
    """Names the task of a request that names none."""
    integrations: IntegrationState = "on"
    """What a token's subject has of each server before it chooses for itself; see the field of keys."""
    leeway_s: float = 30.0
    """How far the issuer's clock may be ahead of ours. A token is never good for longer than it says."""

    def __post_init__(self) -> None:
        for name, url in (("issuer", self.issuer), ("jwks_url", self.jwks_url)):
            try:
                _ = url is None or parse_secure_target(url)
            except EgressRefused as exc:
                raise StartRefused(f"setting `oidc.{name}`: {exc}") from exc
        if not self.audience:
            raise StartRefused("setting `oidc.audience` is empty: tokens for anybody would be taken")
        if not 0 <= self.leeway_s <= MAX_LEEWAY_S:
            raise StartRefused(f"setting `oidc.leeway_s` is not between 0 and {MAX_LEEWAY_S}")
        if not self.roles and self.default_role is None:
            raise StartRefused("setting `oidc.roles` is empty: no token would be let in")


def principal_of_claims(claims: Mapping[str, Any], config: OidcConfig) -> Principal:
    """Whom verified claims prove. Raises Unauthenticated; Forbidden where they give no role."""
    return Principal(
        id=f"{OF_ISSUER}{_subject(claims)}",
        role=_role(claims, config),
        ceiling=_ceiling(claims, config),
        default_task=_default_task(claims, config.task_claim),
        integrations=config.integrations,
    )


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= MAX_SUBJECT_CHARS:
        return subject
    raise Unauthenticated(f"the token's `sub` is not a name of at most {MAX_SUBJECT_CHARS} characters")


def _role(claims: Mapping[str, Any], config: OidcConfig) -> Role:
    granted = {config.roles.get(value) for value in _texts(claims, config.role_claim) or ()}
    for role in _BY_RANK:
        if role in granted:
            return role
    if config.default_role is not None:
        return config.default_role
    raise Forbidden(
        f"the token's `{config.role_claim}` gives no role here",
        hint="ask an administrator of the issuer for a role that this gateway knows",
    )


def _ceiling(claims: Mapping[str, Any], config: OidcConfig) -> Ceiling:
    names = {
        "tasks": config.tasks_claim,
        "servers": config.servers_claim,
        "allow": config.tools_claim,
        "deny": config.denied_tools_claim,
    }
    parts = {part: _texts(claims, name) for part, name in names.items() if name is not None}
    given = {part: texts for part, texts in parts.items() if texts is not None}
    try:
        return CeilingBody.model_validate(given).value()
    except ValidationError as exc:
        name = names[str(exc.errors()[0]["loc"][0])]
        raise Unauthenticated(f"the token's `{name}` is not a list of names or patterns") from exc


def _default_task(claims: Mapping[str, Any], name: str | None) -> str | None:
    value = None if name is None else _find(claims, name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_task_id(value)
    except InvalidRecord:
        pass
    raise Unauthenticated(f"the token's `{name}` is not the name of a task")


def _texts(claims: Mapping[str, Any], name: str) -> list[str] | None:
    """The values of a claim, or None where the token has none of that name."""
    value = _find(claims, name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise Unauthenticated(f"the token's `{name}` is not a list of texts")


def _find(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
