"""A small chip, and short ways to what the machine model says of small functions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering import Options, ir, lower, schedules
from lowering.machine import IPU2, Liveness, ModelOptions, PlanOptions, Profile, Steps, model
from lowering.machine.kernels import (
    KernelCost,
    Listing,
    LivenessRecord,
    LiveTensor,
    TensorLayout,
    fuse_elementwise_chains,
    list_operations,
    model_kernel,
    schedule_items,
)
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.machine.programs import (
    ProgramFacts,
    ProgramTimer,
    Residency,
    find_residency,
    time_program,
)
from lowering.machine.transfers import Collectives
from tests.lowering.pipelines.samples import dense, micro_batch, pipelined, squares
from tests.lowering.samples import Queue, lowered, trace

TILES = 16
CHIP = dc.replace(IPU2, tiles_per_ipu=TILES)
SYNC = 100  # cycles of a sync on one IPU
EXCHANGE = 376  # fixed cycles of an exchange of the libraries

A = jax.ShapeDtypeStruct((1024,), jnp.float32)
M = jax.ShapeDtypeStruct((64, 64), jnp.float32)
BYTES = 4096  # of A


def listed(fn: Callable[..., Any], *args: Any) -> Listing:
    """The operations of a function, neither fused nor scheduled."""
    return list_operations(trace(fn, *args), PlanOptions())


def kernel(
    fn: Callable[..., Any], *args: Any, given: Sequence[TensorLayout | None] | None = None
) -> KernelCost:
    """What a function costs as a kernel, with operands that may lie as it likes."""
    listing = schedule_items(
        fuse_elementwise_chains(listed(fn, *args), ELEMENTWISE.__contains__), VIEWS.__contains__
    )
    given = given if given is not None else [None] * len(listing.operands)
    return model_kernel(listing, given, CHIP, Collectives(target=CHIP))


class AtWorst(NamedTuple):
    """What is alive at the step that needs most, and the most that each tile ever holds."""

    tile_peak_bytes: np.ndarray
    most_bytes: int
    activation_bytes: int
    temporary_bytes: int
    tensors: list[LiveTensor]


def at_worst(alive: LivenessRecord) -> AtWorst:
    """The step of an account that needs most."""
    temporary = int(alive.temporary_bytes[alive.step_of_peak_memory]) if len(alive.bytes) else 0
    tensors = alive.tensors_alive_at(alive.step_of_peak_memory)
    tensor_bytes = sum(tensor.total_bytes for tensor in tensors)
    return AtWorst(
        alive.tile_peak_bytes, alive.peak_bytes_of_all_tiles, tensor_bytes, temporary, tensors
    )


def alive(fn: Callable[..., Any], *args: Any, away: Sequence[int] = ()) -> AtWorst:
    """The memory of a function as a kernel that may write over the operands in `away`."""
    return at_worst(kernel(fn, *args).life.liveness_with_donated(frozenset(away))[0])


def modelled(program: ir.Program, **options: Any) -> Profile:
    """A program on the small chip."""
    return model(program, ModelOptions(**{"target": CHIP, **options}))


def profile(fn: Callable[..., Any], *args: Any, ipus: int = 1, **options: Any) -> Profile:
    """A function on the small chip."""
    return modelled(lowered(fn, *args, ipus=ipus), **options)


def homes(program: ir.Program) -> list[Residency]:
    """What each IPU's memory holds of a program beside code."""
    facts = ProgramFacts(program)
    timer = ProgramTimer(facts, ModelOptions(target=CHIP))
    timing = time_program(timer)
    updates = facts.updates_with(())
    return find_residency(facts, timing.kernels, timer.layout_on, TILES, {}, updates)


def held(home: Residency) -> int:
    """Bytes on all tiles of an IPU, code not counted, when that is most."""
    return (
        sum(live.laid.mapping.total_bytes for live in home.always)
        + home.alive.peak_bytes_of_all_tiles
    )


def pipeline(
    stages: int = 2,
    count: int = 8,
    schedule: Any = schedules.grouped,
    queue: Queue | None = None,
    options: dict[str, Any] | None = None,
    **spec: Any,
) -> ir.Program:
    """A pipeline of dense layers and a loss."""
    body = micro_batch([dense] * (stages - 1) + [squares], queue)
    closed = pipelined(body, stages, count, schedule=schedule, **spec)
    return lower(closed, Options(num_ipus=stages, **(options or {})))


def end(steps: Steps) -> int:
    """When the last step ends."""
    return max((step.start_cycle + step.cycles for step in steps), default=0)


def overlaps(steps: Steps, kinds: Sequence[str] = ()) -> list[Any]:
    """Pairs of steps of one IPU that run at the same time; those of `kinds` are not looked at."""
    found: list[Any] = []
    last: dict[int, Any] = {}
    for step in sorted(steps, key=lambda step: (step.start_cycle, step.cycles)):
        if step.kind in kinds or not step.cycles:
            continue
        before = last.get(step.ipu)
        if before is not None and before.start_cycle + before.cycles > step.start_cycle:
            found.append((before, step))
        last[step.ipu] = step
    return found


def tensor_bytes(held: Liveness) -> np.ndarray:
    """int64 [steps]: of the tensors that are there, and not always there."""
    change = np.zeros(len(held.bytes) + 1, dtype=np.int64)
    for tensor in held.tensors:
        if tensor.first is not None and tensor.last is not None:
            change[tensor.first] += tensor.total_bytes
            change[tensor.last + 1] -= tensor.total_bytes
    return change.cumsum()[:-1]


def check_liveness(found: Profile) -> None:
    """What liveness promises, and that memory says the same."""
    memory = found.memory
    assert len(found.liveness) == found.num_ipus
    for ipu, held in enumerate(found.liveness):
        steps = len(held.bytes)
        assert steps == len(held.names) == len(held.origins) == len(held.temporary_bytes)
        most = int(held.bytes.max(initial=0))
        assert most + memory.always_live_bytes[ipu] == memory.peak_bytes[ipu]
        np.testing.assert_array_equal(tensor_bytes(held) + held.temporary_bytes, held.bytes)
        for tensor in held.tensors:
            always = tensor.first is None
            assert always == (tensor.last is None)
            assert always or 0 <= tensor.first <= tensor.last < steps
            assert tensor.mapping.bytes_per_tile().shape == memory.tile_peak_bytes[ipu].shape
        categories = {
            name: np.zeros_like(bytes_[ipu]) for name, bytes_ in memory.tile_categories.items()
        }
        for tensor in held.alive_at(held.worst):
            categories[tensor.category] += tensor.mapping.bytes_per_tile()
        for name in ("variables", "constants", "activations", "fifos"):
            np.testing.assert_array_equal(memory.tile_categories[name][ipu], categories[name])
        temporary = held.temporary_bytes[held.worst] if steps else 0
        assert memory.ipu_categories["temporaries"][ipu] == temporary
    total = sum(memory.tile_categories.values(), np.zeros_like(memory.tile_peak_bytes))
    np.testing.assert_array_equal(total.sum(axis=1), memory.peak_bytes)
    assert (total <= memory.tile_peak_bytes).all()
