"""Chooses the faster engine for a program and its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax

from ipujax.engine.device_placement import Placement
from ipujax.engine.lanes import count_lane_cores
from ipujax.ground import ConfigError
from lowering import (
    count_operations,
    count_single_core_operations,
    ir,
    is_merging_iterations_faster,
    jaxpr,
    schedules,
    size_in_bytes,
)

CountOperations = Callable[[jaxpr.Jaxpr], float]

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
    """Returns the engine's name, or raises an error if there is no such engine.

    Raises:
      ConfigError: otherwise.
    """
    if not isinstance(engine, str) or engine not in ENGINES:
        raise ConfigError(f"engine={engine!r}: choose one of {', '.join(map(repr, ENGINES))}")
    return engine


def choose_engine(asked_engine: str, program: ir.Program, placement: Placement) -> str:
    """Returns `fused` or `replay`: the user's choice, or for `auto` the faster one.

    Meshes, and results that stay where they are, need replay. One device gains nothing from
    separate kernels, which take longer to compile than one, but for pipelines of heavy tasks that
    XLA computes on one core each, and several cores run side by side. With several devices,
    `replay` wins where the work that can overlap is longer than the extra dispatches take.
    """
    if placement.process_of_ipu and placement.ipus > 1:
        if asked_engine == "fused":
            raise ConfigError(
                "engine='fused' runs a program on one device, and the IPUs of this one are spread "
                "over processes; choose 'auto' or 'replay', or start ipurun without --spread ipus"
            )
        return "replay"
    if asked_engine != "auto":
        return asked_engine
    if placement.has_meshes or (placement.separates_ipus and not placement.gather):
        return "replay"
    if placement.uses_one_device or placement.ipus == 1:
        return "replay" if _is_faster_in_threads(program, placement) else "fused"
    saved, kernels = _estimate_overlap_outside_pipelines(program)
    for node in _list_pipelines(program.body):
        pipeline_seconds, pipeline_kernels = _estimate_pipeline_overlap(node)
        saved, kernels = saved + pipeline_seconds, kernels + pipeline_kernels
    return "replay" if saved > 2 * DISPATCH_SECONDS * kernels else "fused"


def is_faster_with_device_per_replica(program: ir.Program) -> bool:
    """Returns whether replicas run faster on devices of their own than on a single one.

    On one device the replicas are an array axis, with one operation for all. CPU devices are
    the same cores, and a kernel on several ones has to be dealt out and met at.
    """
    kernels = [n.kernel for n in ir.walk_nodes(program.body) if isinstance(n, ir.Execute)]
    operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
    if jax.default_backend() == "cpu":
        return operations >= HEAVY_OPERATIONS
    saved = (program.replicas - 1) * operations / _ACCELERATOR_OPERATIONS_PER_SECOND
    return saved > 2 * DISPATCH_SECONDS * program.replicas * len(kernels)


def _is_faster_in_threads(program: ir.Program, placement: Placement) -> bool:
    """Returns whether the stages of all pipelines run faster when several threads replay them."""
    nodes = _list_pipelines(program.body)
    several = count_lane_cores(placement) > 1 and placement.replicas == 1
    return several and bool(nodes) and all(_is_worth_threads(program, node) for node in nodes)


def _is_worth_threads(program: ir.Program, node: ir.Pipeline) -> bool:
    kernels = [n.kernel for n in ir.walk_nodes(node.body) if isinstance(n, ir.Execute)]
    tasks = sum(isinstance(step, ir.Task) for step in node.body.steps)
    operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
    size = sum(size_in_bytes(program.avals[c.initial]) for c in node.carry)
    if operations < HEAVY_OPERATIONS * max(tasks, 1) or is_merging_iterations_faster(
        operations, size
    ):
        return False
    # Larger operations are on all cores as it is, in either engine.
    overlapped, _ = _estimate_pipeline_overlap(node, count_single_core_operations)
    return overlapped > 0.25 * node.schedule.micro_batches * sum(
        map(_estimate_kernel_seconds, kernels)
    )


def _list_pipelines(body: ir.Sequence) -> list[ir.Pipeline]:
    return [node for node in ir.walk_nodes(body) if isinstance(node, ir.Pipeline)]


def _estimate_kernel_seconds(kernel: ir.Kernel, count: CountOperations = count_operations) -> float:
    rate = OPERATIONS_PER_SECOND.get(jax.default_backend(), _ACCELERATOR_OPERATIONS_PER_SECOND)
    return count(kernel.jaxpr.jaxpr) / rate


def _estimate_pipeline_overlap(
    node: ir.Pipeline, count: CountOperations = count_operations
) -> tuple[float, int]:
    """Returns the seconds of overlap between a pipeline's tasks, and its number of kernels.

    The seconds are those of the operations that are counted.
    """
    schedule = node.schedule
    seconds = {phase: [0.0] * schedule.stages for phase in schedules.Phase}
    copies = len(schedule.copies)
    kernels = 0
    for task in node.body.steps:
        if isinstance(task, ir.Task):
            steps = [n.kernel for n in ir.walk_nodes(task.body) if isinstance(n, ir.Execute)]
            phase = schedules.Phase(task.spec.kind.value)
            seconds[phase][task.spec.stage % schedule.stages] = sum(
                _estimate_kernel_seconds(kernel, count) for kernel in steps
            )
            kernels += len(steps)
    total = schedule.micro_batches * sum(map(sum, seconds.values()))
    makespan = schedules.simulate(schedule, seconds).makespan
    return total - makespan, schedule.micro_batches * kernels // copies


def _estimate_overlap_outside_pipelines(program: ir.Program) -> tuple[float, int]:
    """Returns the seconds that kernels of different IPUs could overlap, and how many there are.

    Counts one pass of the program, without its pipelines.
    """
    kernels = 0
    total = 0.0
    finish: dict[int, float] = {}
    free = dict.fromkeys(range(program.ipus), 0.0)
    for node in _walk_nodes_outside_pipelines(program.body):
        if isinstance(node, ir.Execute):
            kernels += 1
            seconds = _estimate_kernel_seconds(node.kernel)
            ready = max((finish.get(value, 0.0) for value in node.reads), default=0.0)
            end = max(ready, free[node.ipu]) + seconds
            free[node.ipu] = end
            finish.update(dict.fromkeys(node.writes, end))
            total += seconds
    return total - max(free.values(), default=0.0), kernels


def _walk_nodes_outside_pipelines(body: ir.Sequence) -> Iterator[ir.Node]:
    for node in body.steps:
        if not isinstance(node, ir.Pipeline):
            yield node
            for nested_body in ir.bodies_of_node(node):
                yield from _walk_nodes_outside_pipelines(nested_body.sequence)
