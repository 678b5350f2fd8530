"""Workloads: the sandboxed programs of tasks, and how far one run of such a program may go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

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
