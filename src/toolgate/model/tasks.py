"""Tasks and profiles: the named policy holders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.servers import EMPTY
from toolgate.model.workloads import Workload

Environment = Literal["dev", "staging", "prod"]
ENVIRONMENTS: Final[tuple[Environment, ...]] = ("dev", "staging", "prod")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A named policy holder. `config` is kept as written: keys to JSON text, as the seeds have it."""

    task_id: str
    display_name: str = ""
    config: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    workload: Workload | None = None
    """What is run when the task is invoked. None: it holds policy and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Servers by id and by tag, and tool patterns. None: does not restrict; empty: nothing passes."""

    servers: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A reusable selection; an environment's own selection replaces the common one."""

    profile_id: str
    selection: Selection = Selection()
    environments: Mapping[Environment, Selection] = field(default_factory=lambda: MappingProxyType({}))

    def selection_for(self, environment: Environment) -> Selection:
        return self.environments.get(environment, self.selection)
