"""A small chip, and short ways to what the machine model says of small functions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lowering import Options, ir, lower, schedules
from lowering.machine import IPU2, ModelOptions, Profile, Steps, model
from lowering.machine.kernels.alive import Alive
from lowering.machine.kernels.fusing import fused
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.listing import Listing, PlanOptions, list_operations
from lowering.machine.kernels.model import model_kernel
from lowering.machine.kernels.scheduling import scheduled
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.machine.programs.residency import Residency, reside
from lowering.machine.programs.timing import Timer, time_program
from lowering.machine.transfers.between_replicas import Collectives
from tests.lowering.pipelines.samples import dense, micro_batch, pipelined, squares
from tests.lowering.samples import Queue, lowered, trace

TILES = 16
CHIP = dc.replace(IPU2, tiles_per_ipu=TILES)
SYNC = 100  # cycles of a sync on one IPU
EXCHANGE = 100  # fixed cycles of an exchange

A = jax.ShapeDtypeStruct((1024,), jnp.float32)
M = jax.ShapeDtypeStruct((64, 64), jnp.float32)
BYTES = 4096  # of A


def listed(fn: Callable[..., Any], *args: Any) -> Listing:
    """The operations of a function, neither fused nor scheduled."""
    return list_operations(trace(fn, *args), PlanOptions())


def kernel(
    fn: Callable[..., Any], *args: Any, given: Sequence[Laid | None] | None = None
) -> KernelCost:
    """What a function costs as a kernel, with operands that may lie as it likes."""
    listing = scheduled(fused(listed(fn, *args), ELEMENTWISE.__contains__), VIEWS.__contains__)
    given = given if given is not None else [None] * len(listing.operands)
    return model_kernel(listing, given, CHIP, Collectives(target=CHIP))


def alive(fn: Callable[..., Any], *args: Any, away: Sequence[int] = ()) -> Alive:
    """The memory of a function as a kernel that may write over the operands in `away`."""
    return kernel(fn, *args).life.giving(frozenset(away))[0]


def modelled(program: ir.Program, **options: Any) -> Profile:
    """A program on the small chip."""
    return model(program, ModelOptions(**{"target": CHIP, **options}))


def profile(fn: Callable[..., Any], *args: Any, ipus: int = 1, **options: Any) -> Profile:
    """A function on the small chip."""
    return modelled(lowered(fn, *args, ipus=ipus), **options)


def homes(program: ir.Program) -> list[Residency]:
    """What each IPU's memory holds of a program beside code."""
    timer = Timer(program, ModelOptions(target=CHIP))
    timing = time_program(timer)
    return reside(program, timing.kernels, timer.laid, TILES)


def held(home: Residency) -> int:
    """Bytes on all tiles of an IPU, code not counted, when that is most."""
    return sum(live.laid.mapping.total_bytes for live in home.always) + home.alive.most_bytes


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
