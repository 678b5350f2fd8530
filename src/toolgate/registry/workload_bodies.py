"""The shape of a task's workload as it is written and stored."""

from types import MappingProxyType
from typing import Final

from pydantic import Field

from toolgate.model.workloads import MAX_OUTPUT_BYTES, Workload, WorkloadLimits
from toolgate.registry.records.fields import GuestArgument, GuestValue, Sha256, VariableName
from toolgate.registry.records.server_bodies import Body

_LIMITS: Final = WorkloadLimits()


class WorkloadLimitsBody(Body):
    """How far one run may go. A field left out has its own default."""

    fuel: int = Field(default=_LIMITS.fuel, ge=1_000_000, le=10_000_000_000_000)
    """Instructions, about: a thousand million are a second of a processor."""

    wall_clock_ms: int = Field(default=_LIMITS.wall_clock_ms, ge=100, le=3_600_000)
    """From its start to its end, whatever it waits for."""

    memory_bytes: int = Field(default=_LIMITS.memory_bytes, ge=65_536, le=1_073_741_824)
    """The most memory it may have."""

    table_elements: int = Field(default=_LIMITS.table_elements, ge=0, le=1_000_000)
    """The most entries its tables of functions may have."""

    max_output_bytes: int = Field(default=_LIMITS.max_output_bytes, ge=0, le=MAX_OUTPUT_BYTES)
    """Kept of its standard output, and as many of standard error. More is dropped, and the run says so."""

    max_fds: int = Field(default=_LIMITS.max_fds, ge=1, le=1_024)
    """Conversations, servers and the like that it has open at once."""

    max_calls: int = Field(default=_LIMITS.max_calls, ge=0, le=100_000)
    """Calls of tools, by itself and by the models it asks."""

    def value(self) -> WorkloadLimits:
        return WorkloadLimits(**self.model_dump())


class WorkloadBody(Body):
    """A WebAssembly module, and what it is run with."""

    module: Sha256
    """The SHA-256 of the module, which was uploaded before. In files for `toolgate apply`: the module's path,
    from the file's directory."""

    args: list[GuestArgument] = Field(default=[], max_length=64)
    """Its arguments, after its name, which is the task's."""

    env: dict[VariableName, GuestValue] = Field(default={}, max_length=64)
    """Its variables. They hold no references: a guest gets no secret of the node."""

    limits: WorkloadLimitsBody = WorkloadLimitsBody()
    """How far one run may go."""

    retries: int = Field(default=0, ge=0, le=10)
    """How often a run whose node was lost is begun again. 0: what it did before may not be done twice."""

    def value(self) -> Workload:
        return Workload(
            module=self.module,
            args=tuple(self.args),
            env=MappingProxyType(dict(self.env)),
            limits=self.limits.value(),
            retries=self.retries,
        )
