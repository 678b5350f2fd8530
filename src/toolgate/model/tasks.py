"""Tasks and profiles: the named policy holders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.servers import EMPTY
from toolgate.model.workloads import Workload

Environment = Literal["dev", "staging", "prod"]
ENVIRONMENTS: Final[tuple[Environment, ...]] = ("dev", "staging", "prod")
Side = Literal["stable", "candidate"]
"""Which of the two versions of a profile in a rollout."""
RolloutBy = Literal["caller", "task"]
"""What a rollout divides into two sides: callers, or tasks with all their callers."""


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
class Rollout:
    """The next version of a profile, which a share of callers or tasks has already."""

    version: int
    """Also decides who is in the share: another version is drawn for independently."""
    share: int
    """In percent, 1 to 100."""
    by: RolloutBy = "caller"
    selection: Selection = Selection()
    environments: Mapping[Environment, Selection] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A reusable selection; an environment's own selection replaces the common one."""

    profile_id: str
    version: int = 1
    selection: Selection = Selection()
    environments: Mapping[Environment, Selection] = field(default_factory=lambda: MappingProxyType({}))
    rollout: Rollout | None = None

    def selection_for(self, environment: Environment, side: Side = "stable") -> Selection:
        """What it selects there. The candidate of a profile without a rollout is the profile itself."""
        chosen = self.rollout if side == "candidate" and self.rollout is not None else self
        return chosen.environments.get(environment, chosen.selection)

    @property
    def selections(self) -> tuple[Selection, ...]:
        """Every selection in it: common and per environment, stable and candidate."""
        versions = (self,) if self.rollout is None else (self, self.rollout)
        return tuple(one for each in versions for one in (each.selection, *each.environments.values()))
