"""The shape of a task as it is written and stored."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import Field, field_validator

from toolgate.model.tasks import Task
from toolgate.registry.records.fields import ConfigKey, JsonText, Name, Title
from toolgate.registry.records.server_bodies import Body
from toolgate.registry.workload_bodies import WorkloadBody

_NAMING_KEYS: Final = ("mcp.profile", "mcp.approval_policy")
_BARE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_JSON_WORD: Final = re.compile(r"true|false|null|[0-9.eE-]+")


class TaskBody(Body):
    """A named policy holder."""

    task_id: Name
    """Its name."""

    display_name: Title = ""
    """For people."""

    config: dict[ConfigKey, JsonText] = Field(default={}, max_length=256)
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
        bare = {key: config[key] for key in _NAMING_KEYS if _is_bare_name(config, key)}
        return {**config, **{key: json.dumps(name) for key, name in bare.items()}}

    def value(self) -> Task:
        return Task(
            task_id=self.task_id,
            display_name=self.display_name,
            config=MappingProxyType(dict(self.config)),
            workload=self.workload.value() if self.workload else None,
        )


def _is_bare_name(config: Mapping[str, str], key: str) -> bool:
    """Whether the value can only be a name: what JSON reads in another way is refused elsewhere."""
    text = config.get(key, "")
    return bool(_BARE_NAME.fullmatch(text)) and not _JSON_WORD.fullmatch(text)
