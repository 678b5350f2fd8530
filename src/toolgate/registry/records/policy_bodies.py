"""The bodies of tasks, workloads, profiles, keys, integration choices and chat upstreams.

See `server_bodies`: a body is validated, converted to a model value and then dropped. The docstrings of
fields become the reference pages.
"""

import json
import re
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
    """The limits of one run. An omitted field has its default."""

    fuel: int = Field(default=_LIMITS.fuel, ge=1_000_000, le=10_000_000_000_000)
    """The number of instructions, approximately: 1,000 million take about one second of CPU time."""
    wall_clock_ms: int = Field(default=_LIMITS.wall_clock_ms, ge=100, le=3_600_000)
    """The longest time from start to end, including waits."""
    memory_bytes: int = Field(default=_LIMITS.memory_bytes, ge=65_536, le=1_073_741_824)
    """The maximum memory."""
    table_elements: int = Field(default=_LIMITS.table_elements, ge=0, le=1_000_000)
    """The maximum number of entries in its function tables."""
    max_output_bytes: int = Field(default=_LIMITS.max_output_bytes, ge=0, le=tasks.MAX_OUTPUT_BYTES)
    """The bytes kept of standard output, and the same of standard error. The rest is dropped, and the result
    is marked as truncated."""
    max_fds: int = Field(default=_LIMITS.max_fds, ge=1, le=1_024)
    """The maximum number of open descriptors, such as chats and servers."""
    max_calls: int = Field(default=_LIMITS.max_calls, ge=0, le=100_000)
    """The maximum number of tool calls, by the program and by the models that it prompts."""


class WorkloadBody(StrictBody, makes=tasks.Workload):
    """A WebAssembly module with its arguments, variables and limits."""

    module: fields.Sha256
    """The SHA-256 of the uploaded module. In files for `toolgate apply`: the path of the module, relative to
    the file."""
    args: list[fields.GuestArgument] = Field(default=[], max_length=64)
    """The arguments after the program name, which is the id of the task."""
    env: dict[fields.VariableName, fields.GuestValue] = Field(default={}, max_length=64)
    """The environment variables. References are not allowed: a guest never gets a secret of the node."""
    limits: WorkloadLimitsBody = WorkloadLimitsBody()
    """The limits of one run."""
    retries: int = Field(default=0, ge=0, le=10)
    """How often Toolgate repeats a run whose node was lost. 0: never, for programs that must not run
    twice."""


_NAMING_KEYS: Final = ("mcp.profile", "mcp.approval_policy")
_BARE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_JSON_WORD: Final = re.compile(r"true|false|null|[0-9.eE-]+")


TASK_SETTINGS: Final = {
    "mcp.enabled": "Whether the task has tools. Default: `false`.",
    "mcp.enforce": "`false` is shadow mode: the task's rules deny nothing, and the audit log shows what they "
    "would deny. Default: `true`.",
    "mcp.require_servers": "Whether a request fails if no server is left. `false`: it continues without "
    "tools, with a warning. Default: `false`.",
    "mcp.default_server_ids": "The servers of a request that names none. Omitted: those that the profile or "
    "the tags select.",
    "mcp.allowed_server_ids": "The servers that a request may name. Omitted: the default ones.",
    "mcp.tool_allowlist": "Allow patterns. A tool must match at least one.",
    "mcp.tool_denylist": "Deny patterns. A tool that matches any of them is excluded.",
    "mcp.profile": "The id of a profile, which narrows the task. Without default servers it also selects the "
    "servers.",
    "mcp.profile_overrides": "Lists that narrow the profile for this task only: `server_ids`, `tags`, "
    "`tool_allowlist`, `tool_denylist`.",
    "mcp.tags": "Only servers with one of these tags. Without default servers and profile they select the "
    "servers.",
    "mcp.approval_policy": "The calls that need an approval, in addition to those of the servers: `never`, "
    "`policy` (tools that are not read-only) or `always`.",
    "mcp.approval_in_place": "Whether a client that supports elicitation may ask its user to approve. "
    "`false`: only approvers decide. Default: `true`.",
    "mcp.budgets": "Rate limits and quotas that all callers of the task share: `calls_per_minute`, "
    "`calls_per_day`, `tokens_per_day`.",
    "chat.mode": "`inject`: the gateway offers the task's tools to the model and runs them. `passthrough`: "
    "it runs none. Omitted: as the chat upstream.",
    "chat.budgets": "Limits of one chat. They can only lower those of the chat upstream.",
}
"""The keys of `config` that Toolgate reads, with their meaning. For the reference and the console."""


class TaskBody(StrictBody, makes=tasks.Task):
    """A task: a named set of policy settings, optionally with a program that runs in the sandbox."""

    task_id: fields.Name
    """The unique id of the task."""
    display_name: fields.Title = ""
    """The name shown to people."""
    config: dict[fields.ConfigKey, fields.JsonText] = Field(default={}, max_length=256)
    """The task's settings by key. Each value is JSON text. `mcp.profile` and `mcp.approval_policy`
    also accept a bare name without quotes."""
    workload: WorkloadBody | None = None
    """The program that an invocation of the task runs. Unset: the task only holds policy."""

    @field_validator("config")
    @classmethod
    def _quote_bare_names(cls, config: dict[str, str]) -> dict[str, str]:
        """Store bare names as JSON text like every other value, so that all readers decode one form."""
        for key in _NAMING_KEYS:
            text = config.get(key, "")
            # Only texts that can only be names: other checks reject what JSON reads differently.
            if _BARE_NAME.fullmatch(text) and not _JSON_WORD.fullmatch(text):
                config = {**config, key: json.dumps(text)}
        return config


MAX_VERSION: Final = 2**31 - 1  # all clients of the APIs can represent it


class SelectionBody(StrictBody, makes=tasks.Selection):
    """Selects servers and tools. An omitted list does not restrict; an empty list allows nothing."""

    servers: Annotated[list[fields.ServerId], Field(max_length=2_000)] | None = None
    """The ids of the selected servers."""
    tags: Annotated[list[fields.Tag], Field(max_length=2_000)] | None = None
    """Select servers that have any of these tags."""
    allow: fields.Patterns | None = None
    """Allow patterns. A tool must match at least one."""
    deny: fields.Patterns = Field(default=[])
    """Deny patterns. A tool that matches any of them is excluded."""


class _ProfileVersionBody(SelectionBody):
    """One version of a profile's selection."""

    environments: dict[tasks.Environment, SelectionBody] = Field(default={})
    """A selection for each environment (`dev`, `staging`, `prod`). It replaces the common one."""


class RolloutBody(_ProfileVersionBody):
    """The next version of a profile, for a share of callers or tasks. Its lists have the same meaning as
    those of the profile."""

    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Must be higher than the `version` of the profile. Default: one higher. Each version draws its share of
    callers independently."""
    share: Annotated[int, Field(ge=1, le=100)]
    """The percentage of callers or tasks that get this version. Raising it never takes the version away."""
    by: tasks.RolloutBy = "caller"
    """The unit of the share: each `caller` (key, or subject of an issuer), or each `task` with all its
    callers."""


class ProfileBody(_ProfileVersionBody):
    """A reusable selection of servers and tools, named by tasks and requests."""

    profile_id: fields.Name
    """The unique id of the profile."""
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] = 1
    """The number of this selection, shown in the audit log and in comparisons."""
    rollout: RolloutBody | None = None
    """The next version, while only a share of callers or tasks gets it."""

    @model_validator(mode="after")
    def _versions_rise(self) -> "ProfileBody":
        candidate = None if self.rollout is None else self.rollout.version
        if candidate is not None and candidate <= self.version:
            raise fields.field_error(
                f"`rollout.version` must be higher than the profile's version {self.version}"
            )
        return self

    def value(self) -> tasks.Profile:
        candidate = self.rollout and make_value(
            self.rollout,
            tasks.Rollout,
            version=self.rollout.version or self.version + 1,
            selection=make_value(self.rollout, tasks.Selection),
        )
        return make_value(self, tasks.Profile, selection=make_value(self, tasks.Selection), rollout=candidate)


MAX_CHOICES: Final = 256  # of one caller: more servers than its model or its user can tell apart
MAX_PRINCIPAL_CHARS: Final = 300  # `oidc:` and a subject of 255 characters, with room


class CeilingBody(StrictBody, makes=principals.Ceiling):
    """The most a key may reach. An omitted list does not restrict; an empty list allows nothing."""

    tasks: Annotated[list[fields.Name], Field(max_length=2_000)] | None = None
    """The ids of the tasks that the key may act for."""
    servers: Annotated[list[fields.ServerId], Field(max_length=2_000)] | None = None
    """The ids of the servers that it may reach."""
    allow: fields.Patterns | None = None
    """Allow patterns. A tool must match at least one."""
    deny: fields.Patterns = Field(default=[])
    """Deny patterns. A tool that matches any of them is excluded."""


class QuotasBody(StrictBody):
    """Rate limits and quotas, across all nodes. An omitted field does not restrict; zero is not allowed."""

    calls_per_minute: int | None = Field(default=None, ge=1, le=principals.MAX_CALLS)
    """The maximum number of calls per clock minute."""
    calls_per_day: int | None = Field(default=None, ge=1, le=principals.MAX_CALLS)
    """The maximum number of calls per UTC day."""
    tokens_per_day: int | None = Field(default=None, ge=1, le=principals.MAX_TOKENS)
    """The maximum number of tokens per UTC day. Tool results count by estimate, chats by the usage that the
    models report. Requests in flight finish when the quota is exceeded."""

    def value(self) -> principals.Quotas | None:
        budgets = principals.Quotas(self.calls_per_minute, self.calls_per_day, self.tokens_per_day)
        return None if budgets == principals.Quotas() else budgets


class KeyTermsBody(StrictBody):
    """An API key, without what identifies its secret."""

    key_id: fields.Name
    """The unique id of the key: the name of its principal in the audit log and in logs."""
    role: principals.Role
    """`admin` manages everything, `publisher` writes tasks and profiles, `viewer` reads, `agent` calls tools,
    `node` is for a node of this gateway. At most the role of the caller that creates the key."""
    ceiling: CeilingBody = CeilingBody()
    """The most that callers with this key may reach. It must be within the ceiling of the caller that creates
    the key."""
    default_task: fields.Name | None = None
    """The task of requests that name no task."""
    expires_at_s: fields.UnixTime | None = None
    """The unix time at which the key expires, in seconds. Unset: never."""
    budgets: QuotasBody | None = None
    """The rate limits and quotas that all users of the key share."""
    integrations: principals.IntegrationState = "on"
    """The initial state of every server for callers with this key: `on` (all its tools), `read_only` (only
    tools marked as read-only) or `off`. Callers then switch servers on and off within the ceiling."""


class KeyBody(KeyTermsBody, makes=principals.Key):
    """An API key. The record stores its hash only."""

    sha256: fields.Sha256
    """The SHA-256 of the key. The key itself is never stored."""


class ChoiceBody(StrictBody):
    """The servers that one caller switched on or off."""

    choice_id: fields.Sha256
    """The SHA-256 of `principal`."""
    principal: Annotated[str, Field(min_length=1, max_length=MAX_PRINCIPAL_CHARS)]
    """The principal of the caller, as the audit log names it."""
    servers: dict[fields.ServerId, principals.IntegrationState] = Field(default={}, max_length=MAX_CHOICES)
    """Server id to its state for this caller."""

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
    """The limits of one chat request. An omitted field has its default; tasks and requests can only
    narrow."""

    max_iterations: int = Field(default=_BUDGETS.max_iterations, ge=0, le=100)
    """The maximum number of rounds with tool calls."""
    max_total_tool_calls: int = Field(default=_BUDGETS.max_total_tool_calls, ge=0, le=1_000)
    """The maximum number of tool calls in all rounds."""
    max_tool_output_bytes: int = Field(default=_BUDGETS.max_tool_output_bytes, ge=256, le=4_194_304)
    """The largest tool result that a model gets. The rest is cut, with a mark."""
    tool_timeout_ms: int = Field(default=_BUDGETS.tool_timeout_ms, ge=100, le=300_000)
    """The time limit of one tool call. The server's own limit also applies."""
    wall_clock_ms: int = Field(default=_BUDGETS.wall_clock_ms, ge=1_000, le=3_600_000)
    """The time limit of the whole request, including models and tools."""


class ChatUpstreamBody(StrictBody, makes=ChatUpstream):
    """An OpenAI-compatible endpoint that serves models."""

    upstream_id: fields.UpstreamId
    """The unique id. A request for the model `<upstream_id>/<model>` always goes to this upstream."""
    base_url: fields.Url
    """The base URL, such as `https://api.openai.com/v1`. The gateway appends `/chat/completions`,
    `/responses` and `/models` to its path and keeps a query."""
    models: list[fields.ModelPattern] = Field(min_length=1, max_length=256)
    """Patterns of the models it serves, with the wildcards `*` and `?`."""
    display_name: fields.Title = ""
    """The name shown to people."""
    auth_ref: fields.SecretName | None = None
    """The name of a secret that the node sends as a bearer token. Never the secret itself."""
    headers: dict[fields.HeaderName, fields.HeaderValue] = Field(default={}, max_length=64)
    """Headers sent with every request. Values may contain references."""
    mode: ChatMode = "inject"
    """`inject`: the gateway offers tools to the model and runs them. `passthrough`: it never runs a tool."""
    name_profile: NameProfile = "default"
    """The form of tool names for its models. `identifier` is for models whose parsers reject hyphens."""
    other_tools: OtherTools = "pass"
    """For tools that are not functions: `pass` them to the model, or `refuse` the request."""
    filter_undeclared_calls: bool = False
    """Whether to drop calls of tools that a request does not declare, also for requests without a task. In
    `passthrough` the gateway always drops them."""
    budgets: ChatBudgetsBody = ChatBudgetsBody()
    """The limits of one request."""
    answer_timeout_ms: int = Field(default=60_000, ge=100, le=3_600_000)
    """The time limit for the start of a response, and for each pause in it."""
    max_concurrency: int = Field(default=64, ge=1, le=10_000)
    """The maximum number of concurrent requests. The gateway rejects more."""
    enabled: bool = True
    """Whether the gateway uses this upstream."""

    @model_validator(mode="after")
    def _one_credential(self) -> "ChatUpstreamBody":
        names = [name.lower() for name in self.headers]
        if len(set(names)) < len(names):
            raise fields.field_error("`headers` has a duplicate name: header names ignore case")
        if self.auth_ref is not None and "authorization" in names:
            raise fields.field_error("`auth_ref` and the header `Authorization` are mutually exclusive")
        return self
