"""The bodies of tasks, workloads, profiles, keys, integration choices and chat upstreams.

See `server_bodies`: a body is validated, turned into a model value and never kept. The docstrings of fields
become the reference.
"""

import json
import re
from collections.abc import Mapping
from sys import intern
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from toolgate.model import principals, tasks
from toolgate.model.chat import ChatBudgets, ChatMode, ChatUpstream, NameProfile, OtherTools
from toolgate.registry.records import fields
from toolgate.registry.records.body import StrictBody, make_value

_LIMITS: Final = tasks.WorkloadLimits()


class WorkloadLimitsBody(StrictBody, makes=tasks.WorkloadLimits):
    """How far one run may go. A field left out has its own default."""

    fuel: int = Field(default=_LIMITS.fuel, ge=1_000_000, le=10_000_000_000_000)
    """Instructions, about: a thousand million are a second of a processor."""
    wall_clock_ms: int = Field(default=_LIMITS.wall_clock_ms, ge=100, le=3_600_000)
    """From its start to its end, whatever it waits for."""
    memory_bytes: int = Field(default=_LIMITS.memory_bytes, ge=65_536, le=1_073_741_824)
    """The most memory it may have."""
    table_elements: int = Field(default=_LIMITS.table_elements, ge=0, le=1_000_000)
    """The most entries its tables of functions may have."""
    max_output_bytes: int = Field(default=_LIMITS.max_output_bytes, ge=0, le=tasks.MAX_OUTPUT_BYTES)
    """Kept of its standard output, and as many of standard error. More is dropped, and the result is marked
    so."""
    max_fds: int = Field(default=_LIMITS.max_fds, ge=1, le=1_024)
    """Conversations, servers and the like that it has open at once."""
    max_calls: int = Field(default=_LIMITS.max_calls, ge=0, le=100_000)
    """Calls of tools, by itself and by the models it asks."""


class WorkloadBody(StrictBody, makes=tasks.Workload):
    """A WebAssembly module, and what it is run with."""

    module: fields.Sha256
    """The SHA-256 of the module, which was uploaded before. In files for `toolgate apply`: the module's path,
    from the file's directory."""
    args: list[fields.GuestArgument] = Field(default=[], max_length=64)
    """Its arguments, after its name, which is the task's."""
    env: dict[fields.VariableName, fields.GuestValue] = Field(default={}, max_length=64)
    """Its variables. They hold no references: a guest gets no secret of the node."""
    limits: WorkloadLimitsBody = WorkloadLimitsBody()
    """How far one run may go."""
    retries: int = Field(default=0, ge=0, le=10)
    """How often a run whose node was lost is begun again. 0: what it did before may not be done twice."""


_NAMING_KEYS: Final = ("mcp.profile", "mcp.approval_policy")
_BARE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_JSON_WORD: Final = re.compile(r"true|false|null|[0-9.eE-]+")


class TaskBody(StrictBody, makes=tasks.Task):
    """A named policy holder."""

    task_id: fields.Name
    """Its name."""
    display_name: fields.Title = ""
    """For people."""
    config: dict[fields.ConfigKey, fields.JsonText] = Field(default={}, max_length=256)
    """Keys to JSON text: `mcp.enabled`, `mcp.default_server_ids`, `mcp.allowed_server_ids`,
    `mcp.tool_allowlist`, `mcp.tool_denylist`, `mcp.profile`, `mcp.profile_overrides`, `mcp.tags`,
    `mcp.approval_policy`, `mcp.approval_in_place`, `mcp.enforce`, `mcp.budgets`,
    `mcp.require_servers`, `chat.mode`, `chat.budgets`. `mcp.profile` and `mcp.approval_policy` may also
    be a bare name, without quotes."""
    workload: WorkloadBody | None = None
    """What is run when the task is invoked. Unset: it holds policy and nothing else."""

    @field_validator("config")
    @classmethod
    def _quote_bare_names(cls, config: dict[str, str]) -> dict[str, str]:
        """Stored as JSON text like every other value, so that every reader decodes one form."""
        for key in _NAMING_KEYS:
            text = config.get(key, "")
            # Only what can be nothing but a name: what JSON reads in another way is refused elsewhere.
            if _BARE_NAME.fullmatch(text) and not _JSON_WORD.fullmatch(text):
                config = {**config, key: json.dumps(text)}
        return config


MAX_VERSION: Final = 2**31 - 1  # what every client of the APIs can hold


class SelectionBody(StrictBody):
    """Servers and tools. A list left out does not restrict; an empty one lets nothing pass."""

    servers: Annotated[list[fields.ServerId], Field(max_length=2_000)] | None = None
    """Server ids."""
    tags: Annotated[list[fields.Tag], Field(max_length=2_000)] | None = None
    """Servers that carry any of these tags."""
    allow: fields.Patterns | None = None
    """Patterns of which a tool must match one."""
    deny: fields.Patterns = Field(default=[])
    """Patterns of which a tool may match none."""

    def selection(self) -> tasks.Selection:
        return make_value(self, tasks.Selection)


class _ProfileVersionBody(SelectionBody):
    """One version of a profile's selection."""

    environments: dict[tasks.Environment, SelectionBody] = Field(default={})
    """Per environment (`dev`, `staging`, `prod`) a selection that replaces the common one."""

    def by_environment(self) -> Mapping[tasks.Environment, tasks.Selection]:
        return MappingProxyType({name: body.selection() for name, body in self.environments.items()})


class RolloutBody(_ProfileVersionBody):
    """The next version of a profile, for a share of callers or tasks. The lists mean what they mean in a
    profile."""

    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Must be higher than the profile's own; one higher by default. Each version draws its share of callers
    independently."""
    share: Annotated[int, Field(ge=1, le=100)]
    """Percent of callers or tasks that have this version. A higher share adds some and takes it from none."""
    by: tasks.RolloutBy = "caller"
    """What is divided: each `caller` (key, or subject of an issuer), or each `task` with all its callers."""


class ProfileBody(_ProfileVersionBody):
    """A reusable selection of servers and tools."""

    profile_id: fields.Name
    """Its name."""
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] = 1
    """The number of this selection, for audit and comparison."""
    rollout: RolloutBody | None = None
    """The next version, while only a share of callers has it."""

    @model_validator(mode="after")
    def _versions_rise(self) -> "ProfileBody":
        candidate = None if self.rollout is None else self.rollout.version
        if candidate is not None and candidate <= self.version:
            raise fields.field_error(
                f"`rollout.version` must be higher than the profile's own, {self.version}"
            )
        return self

    def value(self) -> tasks.Profile:
        candidate = self.rollout and make_value(
            self.rollout,
            tasks.Rollout,
            version=self.rollout.version or self.version + 1,
            selection=self.rollout.selection(),
            environments=self.rollout.by_environment(),
        )
        selected = {"selection": self.selection(), "environments": self.by_environment()}
        return make_value(self, tasks.Profile, **selected, rollout=candidate)


MAX_CHOICES: Final = 256  # of one caller: more servers than its model or its person can tell apart
MAX_PRINCIPAL_CHARS: Final = 300  # `oidc:` and a subject of 255 characters, with room


class CeilingBody(StrictBody, makes=principals.Ceiling):
    """The most a key may ever reach. A list left out does not restrict; an empty one lets nothing pass."""

    tasks: Annotated[list[fields.Name], Field(max_length=2_000)] | None = None
    """Tasks the key may act for."""
    servers: Annotated[list[fields.ServerId], Field(max_length=2_000)] | None = None
    """Servers it may reach."""
    allow: fields.Patterns | None = None
    """Patterns of which a tool must match one."""
    deny: fields.Patterns = Field(default=[])
    """Patterns of which a tool may match none."""


class QuotasBody(StrictBody):
    """What may be used over time, at all nodes together. A field left out does not restrict; none is zero."""

    calls_per_minute: int | None = Field(default=None, ge=1, le=principals.MAX_CALLS)
    """Calls within one minute of the clock."""
    calls_per_day: int | None = Field(default=None, ge=1, le=principals.MAX_CALLS)
    """Calls within one day, by UTC."""
    tokens_per_day: int | None = Field(default=None, ge=1, le=principals.MAX_TOKENS)
    """Tokens within one day, by UTC: of the results of tools, by estimate, and of chats as models report
    them. What is under way when they are used up still ends."""

    def value(self) -> principals.Quotas | None:
        budgets = principals.Quotas(self.calls_per_minute, self.calls_per_day, self.tokens_per_day)
        return None if budgets == principals.Quotas() else budgets


class KeyBody(StrictBody, makes=principals.Key):
    """A credential, as its hash."""

    key_id: fields.Name
    """The principal's name in audit and logs."""
    sha256: fields.Sha256
    """The SHA-256 of the key. The key itself is never stored."""
    role: principals.Role
    """`admin` governs, `publisher` writes tasks and profiles, `viewer` reads, `agent` calls tools, `node` is
    for a node of this gateway."""
    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach."""
    default_task: fields.Name | None = None
    """The task of a request that names none."""
    expires_at_s: fields.UnixTime | None = None
    """Unix time after which it proves nothing."""
    budgets: QuotasBody | None = None
    """What all who use it may use over time, together."""
    integrations: principals.IntegrationState = "on"
    """What its callers have of each server before they choose for themselves: `on` all its tools, `read_only`
    those marked as read-only, `off` nothing. Callers switch servers on and off within the ceiling."""


class ChoiceBody(StrictBody):
    """Which servers one caller switched on and off for itself."""

    choice_id: fields.Sha256
    """The SHA-256 of `principal`."""
    principal: Annotated[str, Field(min_length=1, max_length=MAX_PRINCIPAL_CHARS)]
    """Whose choice it is, as the audit names it."""
    servers: dict[fields.ServerId, principals.IntegrationState] = Field(default={}, max_length=MAX_CHOICES)
    """Server id to what the caller has of it."""

    @model_validator(mode="after")
    def _id_of_its_principal(self) -> "ChoiceBody":
        if self.choice_id != principals.make_choice_id(self.principal):
            raise fields.field_error("`choice_id` is not the SHA-256 of `principal`")
        return self

    def value(self) -> principals.IntegrationChoice:
        # Interned: thousands of callers choose among the same servers.
        servers = {intern(server_id): state for server_id, state in self.servers.items()}
        return make_value(self, principals.IntegrationChoice, servers=MappingProxyType(servers))


_BUDGETS = ChatBudgets()


class ChatBudgetsBody(StrictBody, makes=ChatBudgets):
    """How far one request may go. A field left out has its own default; tasks and requests only narrow."""

    max_iterations: int = Field(default=_BUDGETS.max_iterations, ge=0, le=100)
    """Rounds in which tools are run."""
    max_total_tool_calls: int = Field(default=_BUDGETS.max_total_tool_calls, ge=0, le=1_000)
    """Calls of tools, all rounds together."""
    max_tool_output_bytes: int = Field(default=_BUDGETS.max_tool_output_bytes, ge=256, le=4_194_304)
    """The longest result a model gets; more is cut, and marked as cut."""
    tool_timeout_ms: int = Field(default=_BUDGETS.tool_timeout_ms, ge=100, le=300_000)
    """How long one call of a tool may take; that of its server holds as well."""
    wall_clock_ms: int = Field(default=_BUDGETS.wall_clock_ms, ge=1_000, le=3_600_000)
    """How long the whole may take, models and tools together."""


class ChatUpstreamBody(StrictBody, makes=ChatUpstream):
    """An OpenAI-compatible endpoint that serves models."""

    upstream_id: fields.UpstreamId
    """Its name. `<upstream_id>/<model>` asks for a model of this very upstream."""
    base_url: fields.Url
    """What `/chat/completions`, `/responses` and `/models` are appended to, like `https://api.openai.com/v1`.
    A query stays at the end."""
    models: list[fields.ModelPattern] = Field(min_length=1, max_length=256)
    """The models it serves, by name, with wildcards `*` and `?`."""
    display_name: fields.Title = ""
    """For people."""
    auth_ref: fields.SecretName | None = None
    """The name of a secret the node resolves and sends as a bearer token; never the secret itself."""
    headers: dict[fields.HeaderName, fields.HeaderValue] = Field(default={}, max_length=64)
    """Headers sent with every request. Values may hold references."""
    mode: ChatMode = "inject"
    """`inject`: tools are offered and run here. `passthrough`: nothing is run, whatever a request contains.
    """
    name_profile: NameProfile = "default"
    """How tools are named to its models: `identifier` for those whose parsers take no hyphen."""
    other_tools: OtherTools = "pass"
    """Whether tools that are no functions pass as they are, or the request is refused."""
    filter_undeclared_calls: bool = False
    """Whether calls of tools that a request does not declare are taken out of the answer, also for requests
    without a task. In `passthrough` they always are."""
    budgets: ChatBudgetsBody = ChatBudgetsBody()
    """How far one request may go."""
    answer_timeout_ms: int = Field(default=60_000, ge=100, le=3_600_000)
    """How long a model may take to begin its answer, and between two parts of it."""
    max_concurrency: int = Field(default=64, ge=1, le=10_000)
    """Requests to it at once; more are turned away."""
    enabled: bool = True
    """Whether it is used at all."""

    @model_validator(mode="after")
    def _one_credential(self) -> "ChatUpstreamBody":
        names = [name.lower() for name in self.headers]
        if len(set(names)) < len(names):
            raise fields.field_error("`headers` names a header twice, in different case")
        if self.auth_ref is not None and "authorization" in names:
            raise fields.field_error("`auth_ref` and a header `Authorization` are one too many")
        return self
