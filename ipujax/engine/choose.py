"""Picks the faster reader for the devices and the program at hand."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from ipujax.engine.lanes import cores_of
from ipujax.engine.placement import Placement
from ipujax.errors import ConfigError
from lowering import count_operations, ir, merging_pays, schedules, size_in_bytes

# Tasks of so many operations take some ms: their kernels cost nothing to dispatch, and what XLA
# does on one core in one of them goes on beside another.
HEAVY_OPERATIONS = 1e8

ENGINES = ("auto", "fused", "replay")

# What one dispatched kernel and its copies cost the host, in seconds, and what one JAX device
# computes in a second (a few CPU cores; more on accelerators, where overlap pays later).
# Measured by `benchmarks/engines.py`; only their ratio to one another matters.
DISPATCH_SECONDS = 60e-6
OPERATIONS_PER_SECOND = {"cpu": 2e10}
_ACCELERATOR_OPERATIONS_PER_SECOND = 5e13


def check_engine(engine: str) -> str:
    """The engine's name, if there is such an engine.

    Raises:
      ConfigError: otherwise.
    """
    if not isinstance(engine, str) or engine not in ENGINES:
        raise ConfigError(f"engine={engine!r}: choose one of {', '.join(map(repr, ENGINES))}")
    return engine


def choose_engine(engine: str, program: ir.Program, placement: Placement) -> str:
    """`fused` or `replay`, whichever is faster if the user leaves it to us.

    One device gains nothing from separate kernels, but for pipelines of heavy tasks, which several
    cores run side by side. With several devices, `replay` wins where the work that can overlap is
    longer than the extra dispatches take.
    """
    if placement.processes and placement.ipus > 1:
        if engine == "fused":
            raise ConfigError(
                "engine='fused' runs a program on one device, and the IPUs of this one are spread "
                "over processes; choose 'auto' or 'replay', or start ipurun without --spread ipus"
            )
        return "replay"
    if engine != "auto":
        return engine
    if placement.uses_one_device or placement.ipus == 1:
        return "replay" if _lanes_pay(program, placement) else "fused"
    saved, kernels = _overlapped_seconds(program)
    for node in _pipelines(program.body):
        more, dispatched = _overlapped_in(node)
        saved, kernels = saved + more, kernels + dispatched
    return "replay" if saved > 2 * DISPATCH_SECONDS * kernels else "fused"


def spreading_pays(program: ir.Program) -> bool:
    """Whether replicas that have devices of their own are faster than side by side on one.

    There, they are an axis of arrays, and each operation is one for all of them. CPU devices are
    the same cores, and a kernel on several ones has to be dealt out and met at.
    """
    kernels = [n.kernel for n in ir.walk(program.body) if isinstance(n, ir.Execute)]
    operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
    if jax.default_backend() == "cpu":
        return operations >= HEAVY_OPERATIONS
    saved = (program.replicas - 1) * operations / _ACCELERATOR_OPERATIONS_PER_SECOND
    return saved > 2 * DISPATCH_SECONDS * program.replicas * len(kernels)


def _lanes_pay(program: ir.Program, placement: Placement) -> bool:
    """Whether the stages of all pipelines are better replayed by several threads."""
    nodes = _pipelines(program.body)
    several = cores_of(placement) > 1 and placement.replicas == 1
    return several and bool(nodes) and all(_is_heavy(program, node) for node in nodes)


def _is_heavy(program: ir.Program, node: ir.Pipeline) -> bool:
    kernels = [n.kernel for n in ir.walk(node.body) if isinstance(n, ir.Execute)]
    tasks = sum(isinstance(step, ir.Task) for step in node.body.steps)
    operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
    size = sum(size_in_bytes(program.avals[c.initial]) for c in node.carry)
    if operations < HEAVY_OPERATIONS * max(tasks, 1) or merging_pays(operations, size):
        return False
    overlapped, _ = _overlapped_in(node)
    return overlapped > 0.25 * node.schedule.micro_batches * sum(map(_seconds, kernels))


def _pipelines(body: ir.Sequence) -> list[ir.Pipeline]:
    return [node for node in ir.walk(body) if isinstance(node, ir.Pipeline)]


def _seconds(kernel: ir.Kernel) -> float:
    rate = OPERATIONS_PER_SECOND.get(jax.default_backend(), _ACCELERATOR_OPERATIONS_PER_SECOND)
    return count_operations(kernel.jaxpr.jaxpr) / rate


def _overlapped_in(node: ir.Pipeline) -> tuple[float, int]:
    """Time that the tasks of a pipeline run side by side, and how many kernels that takes."""
    schedule = node.schedule
    seconds = {phase: [0.0] * schedule.stages for phase in schedules.Phase}
    kernels = 0
    for task in node.body.steps:
        if isinstance(task, ir.Task):
            steps = [n.kernel for n in ir.walk(task.body) if isinstance(n, ir.Execute)]
            phase = schedules.Phase(task.spec.kind.value)
            seconds[phase][task.spec.stage] = sum(map(_seconds, steps))
            kernels += len(steps)
    total = schedule.micro_batches * sum(map(sum, seconds.values()))
    makespan = schedules.simulate(schedule, seconds).makespan
    return total - makespan, schedule.micro_batches * kernels


def _overlapped_seconds(program: ir.Program) -> tuple[float, int]:
    """Time that kernels of different IPUs could run side by side, and how many kernels there are.

    Over one pass of the program, pipelines left aside.
    """
    kernels = 0
    total = 0.0
    finish: dict[int, float] = {}
    free = dict.fromkeys(range(program.ipus), 0.0)
    for node in _outside_pipelines(program.body):
        if isinstance(node, ir.Execute):
            kernels += 1
            seconds = _seconds(node.kernel)
            ready = max((finish.get(value, 0.0) for value in node.reads), default=0.0)
            end = max(ready, free[node.ipu]) + seconds
            free[node.ipu] = end
            finish.update(dict.fromkeys(node.writes, end))
            total += seconds
    return total - max(free.values(), default=0.0), kernels


def _outside_pipelines(body: ir.Sequence) -> Iterator[ir.Node]:
    for node in body.steps:
        if not isinstance(node, ir.Pipeline):
            yield node
            for inner in ir.bodies(node):
                yield from _outside_pipelines(inner.sequence)
