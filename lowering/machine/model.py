"""The IPU Model: a Program and a chip in, a Profile out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lowering.ir.places import Place, arguments, births
from lowering.ir.program import Execute, Program, walk
from lowering.machine.kernels.alive import Live
from lowering.machine.kernels.code import CodeUse, code_bytes
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.options import ModelOptions
from lowering.machine.profile import CATEGORIES, FETCHED, Memory, OperationTotal, Profile, Tensor
from lowering.machine.programs.residency import Residency, per_tile, reside
from lowering.machine.programs.timing import Timer, Timing, time_program
from lowering.machine.trace import Steps
from lowering.units import HOST

_BIGGEST = 10  # tensors that a report names


def model(program: Program, options: ModelOptions | None = None) -> Profile:
    """Models one call of a program.

    Args:
      program: the whole program, as `lowering.lower` gives it.
      options: the chip and what the planner is told.

    Returns:
      Cycles, steps and memory of one replica's IPUs, collectives with the others included.
    """
    options = options or ModelOptions()
    timer = Timer(program, options)
    timing = time_program(timer)
    tiles = options.compute_target.tiles_per_ipu
    homes = reside(program, timing.kernels, timer.laid, tiles)
    compute = {"default": 0.0, "formula": 0.0}
    for total in timing.totals.values():
        compute[total.source] += total.compute_cycles
    return Profile(
        name=program.name,
        target=options.target,
        num_ipus=program.ipus,
        replication_factor=program.replicas,
        cycles=timing.cycles,
        steps=Steps(timing.trace),
        memory=_memory(program, timing, homes, options),
        operations=_operations(timing),
        default_share=compute["default"] / max(sum(compute.values()), 1.0),
        pipeline=timing.pipeline,
        assumptions=timing.assumptions,
        mappings={place: timer.laid(*place).mapping for place in _places(program)},
    )


def _places(program: Program) -> set[Place]:
    """Every value on every IPU that it is on."""
    nodes = walk(program.body)
    found = {place for node in nodes for place in (*births(node), *arguments(node))}
    return {place for place in found if place[1] != HOST}


def _operations(timing: Timing) -> Sequence[OperationTotal]:
    found = [
        OperationTotal(
            name=total.title,
            ipu=ipu,
            runs=round(total.runs),
            cycles=total.cycles,
            exchange_cycles=total.exchange_cycles,
            flops=total.flops,
            tiles=total.tiles,
            source=total.source,
            origin=total.origin,
        )
        for (ipu, _), total in timing.totals.items()
    ]
    return tuple(sorted(found, key=lambda operation: -operation.cycles))


def _memory(
    program: Program, timing: Timing, homes: Sequence[Residency], options: ModelOptions
) -> Memory:
    tiles = options.compute_target.tiles_per_ipu
    always, code = np.zeros((2, program.ipus, tiles), dtype=np.int64)
    categories = {name: np.zeros(program.ipus, dtype=np.int64) for name in CATEGORIES}
    for ipu, uses in enumerate(_code_of(program, timing.kernels)):
        home = homes[ipu]
        kinds = code_bytes(uses.values(), tiles) if options.compiles_code else {}
        always[ipu] = per_tile(home.always, tiles) + sum(kinds.values(), np.zeros(tiles, np.int64))
        for category, bytes_ in kinds.items():
            categories[category][ipu] = bytes_.sum()
            if category in FETCHED:
                code[ipu] += bytes_
        for tensor in (*home.always, *home.alive.tensors):
            categories[tensor.category][ipu] += tensor.laid.mapping.total_bytes
        categories["temporaries"][ipu] += home.alive.temporary_bytes
    peaks = always + np.stack([home.alive.tile_peak_bytes for home in homes])
    ipu, tile = divmod(int(peaks.argmax()), tiles)
    return Memory(
        tile_peak_bytes=np.pad(peaks, ((0, 0), (0, options.io_tiles))),
        always_live_bytes=always.sum(axis=1),
        peak_bytes=always.sum(axis=1) + np.array([home.alive.most_bytes for home in homes]),
        by_category={name: int(bytes_.sum()) for name, bytes_ in categories.items()},
        ipu_categories=categories,
        limit=options.target.usable_bytes_per_tile,
        most_code_bytes=int(code.max()),
        code_limit=options.target.code_bytes_per_tile,
        biggest=_biggest((*homes[ipu].always, *homes[ipu].alive.tensors), ipu, tile),
        remote_bytes=np.array([home.remote_bytes for home in homes]),
    )


def _code_of(program: Program, kernels: Mapping[int, KernelCost]) -> list[dict[object, CodeUse]]:
    """What each IPU's programs need, every signature once."""
    uses: list[dict[object, CodeUse]] = [{} for _ in range(program.ipus)]
    for node in walk(program.body):
        if isinstance(node, Execute):
            known = uses[node.ipu]
            for signature, use in kernels[id(node)].code.items():
                known[signature] = known[signature].again(use.runs) if signature in known else use
    return uses


def _biggest(tensors: Sequence[Live], ipu: int, tile: int) -> tuple[Tensor, ...]:
    largest = sorted(tensors, key=lambda live: -live.laid.mapping.total_bytes)[:_BIGGEST]
    return tuple(
        Tensor(
            name=live.name,
            category=live.category,
            ipu=ipu,
            total_bytes=live.laid.mapping.total_bytes,
            tile_bytes=int(live.laid.mapping.bytes_per_tile()[tile]),
            operation=live.operation,
            origin=live.origin,
            value=live.value,
        )
        for live in largest
    )
