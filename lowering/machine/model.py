"""The IPU Model: a Program and a chip in, a Profile out."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from lowering import ir
from lowering.machine.breakdown import break_down
from lowering.machine.kernels.totals import Total
from lowering.machine.labels import of_move
from lowering.machine.options import ModelOptions
from lowering.machine.profile import OperationTotal, Profile
from lowering.machine.programs.graph import graph_of
from lowering.machine.programs.memory import code_of, liveness_of, memory_of
from lowering.machine.programs.residency import reside
from lowering.machine.programs.timing import Timer, Timing, time_program
from lowering.machine.programs.updates import updates_of
from lowering.machine.programs.value_names import value_names
from lowering.machine.target import Target
from lowering.machine.trace import Steps
from lowering.units import HOST


def model(
    program: ir.Program,
    options: ModelOptions | None = None,
    arguments: Mapping[int, str] | None = None,
    results: Sequence[str] = (),
) -> Profile:
    """Models one call of a program.

    Args:
      program: the whole program, as `lowering.lower` gives it.
      options: the chip and what the planner is told.
      arguments: what the user calls them, by their values in the program.
      results: what the user calls them, in their order.

    Returns:
      Cycles, steps and memory of one replica's IPUs, collectives with the others included.
    """
    options = options or ModelOptions()
    updates = updates_of(program, options.donated)
    timer = Timer(program, options, updates)
    timing = time_program(timer)
    tiles = options.compute_target.tiles_per_ipu
    names = value_names(program, arguments or {}, results)
    homes = reside(program, timing.kernels, timer.laid, tiles, names, updates)
    liveness = tuple(liveness_of(home, options.io_tiles) for home in homes)
    operations = _operations(timing, options.target)
    code = code_of(program, timing.kernels, options)
    uses = itertools.chain(*(each.values() for each in code))
    compute = {"default": 0.0, "formula": 0.0}
    for total in timing.totals.values():
        compute[total.source] += total.compute_cycles
    return Profile(
        name=program.name,
        target=options.target,
        num_ipus=program.ipus,
        replication_factor=program.replicas,
        instances=program.instances,
        cycles=timing.cycles,
        steps=Steps(timing.trace, operations),
        memory=memory_of(homes, liveness, code, options),
        breakdown=_breakdown(timing, program.ipus),
        liveness=liveness,
        operations=operations,
        program=timing.tree,
        default_share=compute["default"] / max(sum(compute.values()), 1.0),
        pipeline=timing.pipeline,
        assumptions=(
            *_of_instances(program, options.target),
            *_of_ladder(program, options),
            *timing.assumptions,
        ),
        mappings={place: timer.laid(*place).mapping for place in _places(program)},
        graph=graph_of(uses, outlines=options.outlines),
    )


def _of_instances(program: ir.Program, target: Target) -> Sequence[str]:
    """What is assumed of the links between instances."""
    if program.instances == 1:
        return ()
    links = target.links
    return (
        f"{program.instances} instances on machines of their own, whose gateways send "
        f"{links.gateway_bytes_per_second / 1e9:g} GB/s for {links.ipus_of_gateway} IPUs",
    )


def _of_ladder(program: ir.Program, options: ModelOptions) -> Sequence[str]:
    """Which copies are not between linked IPUs, where the order of IPUs on the ladder is given."""
    copies = [node for node in ir.walk(program.body) if isinstance(node, ir.Copy)]
    pairs = [
        (copy.source, copy.target) for copy in copies if HOST not in (copy.source, copy.target)
    ]
    passing = bool(options.ladder) and sum(options.passed(*pair) > 0 for pair in pairs)
    if not passing:
        return ()
    order = ", ".join(map(str, options.ladder[: program.ipus]))
    return (
        f"IPUs at places {order} of the ladder (selection_order): {passing} of {len(pairs)} copies "
        "between them pass other IPUs",
    )


def _places(program: ir.Program) -> set[ir.Place]:
    """Every value on every IPU that it is on."""
    nodes = list(ir.walk(program.body))
    places = {place for node in nodes for place in ir.births(node)}
    places.update(place for node in nodes for body in ir.bodies(node) for place in body.arguments)
    return {place for place in places if place[1] != HOST}


def _breakdown(timing: Timing, num_ipus: int) -> Mapping[str, np.ndarray]:
    bubble = collections.Counter[int]()
    updates: set[int] = set()
    for (ipu, number), total in timing.totals.items():
        bubble[ipu] += round(total.bubble_cycles)
        if total.direction == "update":
            updates.add(number)
    return break_down(timing.trace, timing.cycles, bubble, updates, num_ipus)


def _operations(timing: Timing, target: Target) -> Sequence[OperationTotal]:
    totals = [
        OperationTotal(
            name=total.title,
            label=total.label or of_move(total.title),
            ipu=ipu,
            runs=round(total.runs),
            cycles=total.cycles,
            exchange_cycles=total.exchange_cycles,
            flops=total.flops,
            flop_utilisation=_flop_utilisation(total, target),
            bytes=total.bytes,
            tiles=total.tiles,
            source=total.source,
            origin=total.origin,
            scope=total.scope,
            call_path=total.call_path,
            direction=total.direction,
            number=number,
        )
        for (ipu, number), total in timing.totals.items()
    ]
    return tuple(sorted(totals, key=lambda operation: -operation.cycles))


def _flop_utilisation(total: Total, target: Target) -> float | None:
    """Units multiply half and single precision; anything else is computed as one of the two."""
    if not total.flops or not total.cycles:
        return None
    half = total.dtype in ("float16", "bfloat16") or total.dtype.startswith("float8")
    number = "float16" if half else "float32"
    macs = max(rate for (dtype, _), rate in target.macs_per_cycle if dtype == number)
    return total.flops / (2 * macs * target.tiles_per_ipu * total.cycles)
