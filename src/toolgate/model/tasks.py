"""Workloads: the sandboxed programs of tasks, and how far one run of such a program may go.

Tasks and profiles: the named policy holders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.servers import EMPTY

MAX_MODULE_BYTES: Final = 32 * 1024 * 1024
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024
"""The most that `max_output_bytes` can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLimits:
    """How far one run may go. An absent field has its default."""

    fuel: int = 20_000_000_000
    """Instructions, about: a thousand million are a second of a processor."""
    wall_clock_ms: int = 60_000
    """From its start to its end, whatever it waits for."""
    memory_bytes: int = 67_108_864
    table_elements: int = 10_000
    max_output_bytes: int = 262_144
    """Of its standard output, and as many of its standard error; more is dropped, and the run says so."""
    max_fds: int = 64
    max_calls: int = 1_000
    """Calls of tools, by itself and by the models it asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A WebAssembly module, and what it is run with."""

    module: str
    """The SHA-256 of the module, in the artifact store."""
    args: tuple[str, ...] = ()
    """After the program's name, which is the task's."""
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    limits: WorkloadLimits = field(default_factory=WorkloadLimits)
    retries: int = 0
    """How often a run whose node was lost is begun again. 0: what it did before may not be done twice."""


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
