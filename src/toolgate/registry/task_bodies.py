"""The shape of a task as it is written and stored."""

from types import MappingProxyType

from pydantic import Field

from toolgate.model.tasks import Task
from toolgate.registry.bodies import Body
from toolgate.registry.fields import ConfigKey, JsonText, Name, Title
from toolgate.registry.workload_bodies import WorkloadBody


class TaskBody(Body):
    """A named policy holder."""

    task_id: Name
    """Its name."""

    display_name: Title = ""
    """For people."""

    config: dict[ConfigKey, JsonText] = Field(default={}, max_length=256)
    """Keys to JSON text: `mcp.enabled`, `mcp.default_server_ids`, `mcp.allowed_server_ids`,
    `mcp.tool_allowlist`, `mcp.tool_denylist`, `mcp.profile`, `mcp.profile_overrides`, `mcp.tags`,
    `mcp.approval_policy`, `mcp.approval_in_place`, `mcp.enforce`, `mcp.budgets`, `chat.mode`,
    `chat.budgets`."""

    workload: WorkloadBody | None = None
    """What is run when the task is invoked. Unset: it holds policy and nothing else."""

    def value(self) -> Task:
        return Task(
            task_id=self.task_id,
            display_name=self.display_name,
            config=MappingProxyType(dict(self.config)),
            workload=self.workload.value() if self.workload else None,
        )
