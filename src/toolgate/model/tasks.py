"""Tasks, profiles and workloads: the named holders of policy, and the sandboxed programs of tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.servers import EMPTY

MAX_MODULE_BYTES: Final = 32 * 1024 * 1024  # room for an interpreter, such as CPython with its library
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024  # the largest `max_output_bytes`


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLimits:
    fuel: int = 20_000_000_000
    """Approximately one per instruction: 1,000 million take about one second of CPU time."""
    wall_clock_ms: int = 60_000
    """The time from start to end, including waits."""
    memory_bytes: int = 67_108_864
    table_elements: int = 10_000
    max_output_bytes: int = 262_144
    """The limit of its standard output, and again of its standard error. The rest is dropped, and the run is
    marked."""
    max_fds: int = 64
    max_calls: int = 1_000
    """Tool calls, by the guest and by the models that it prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A WebAssembly module with its arguments and limits."""

    module: str
    """The SHA-256 of the module, in the artifact store."""
    args: tuple[str, ...] = ()
    """After the program name, which is the id of the task."""
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    limits: WorkloadLimits = field(default_factory=WorkloadLimits)
    retries: int = 0
    """How often to start it again after its node was lost. 0: it must not run twice."""


Environment = Literal["dev", "staging", "prod"]
ENVIRONMENTS: Final[tuple[Environment, ...]] = ("dev", "staging", "prod")
Side = Literal["stable", "candidate"]
"""The two versions of a profile in a rollout."""
RolloutBy = Literal["caller", "task"]
"""The unit of a rollout: callers, or tasks with all their callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A named set of policy settings. `config` maps keys to JSON text, as it was written."""

    task_id: str
    display_name: str = ""
    config: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    workload: Workload | None = None
    """The program of an invocation. None: the task only holds policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Servers by id and by tag, and tool patterns. None: no restriction; empty: nothing is allowed."""

    servers: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The next version of a profile, for a share of callers or tasks."""

    version: int
    """Each version draws its share independently."""
    share: int
    """In percent, 1 to 100."""
    by: RolloutBy = "caller"
    selection: Selection = Selection()
    environments: Mapping[Environment, Selection] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A reusable selection. The selection of an environment replaces the common one."""

    profile_id: str
    version: int = 1
    selection: Selection = Selection()
    environments: Mapping[Environment, Selection] = field(default_factory=lambda: MappingProxyType({}))
    rollout: Rollout | None = None

    def selection_for(self, environment: Environment, side: Side = "stable") -> Selection:
        """The selection for an environment. Without a rollout the candidate is the profile itself."""
        chosen = self.rollout if side == "candidate" and self.rollout is not None else self
        return chosen.environments.get(environment, chosen.selection)

    @property
    def selections(self) -> tuple[Selection, ...]:
        """All selections: common and per environment, stable and candidate."""
        versions = (self,) if self.rollout is None else (self, self.rollout)
        return tuple(one for each in versions for one in (each.selection, *each.environments.values()))
