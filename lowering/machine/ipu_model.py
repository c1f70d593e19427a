"""The IPU Model: a Program and a chip in, a Profile out."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from lowering import ir
from lowering.ground import HOST
from lowering.machine.breakdown import break_down_cycles
from lowering.machine.compute_sets import TileWork
from lowering.machine.kernels.totals import Total
from lowering.machine.labels import label_of_move
from lowering.machine.machine_options import ModelOptions
from lowering.machine.profile import OperationTotal, Profile
from lowering.machine.programs.graph_size import measure_graph
from lowering.machine.programs.memory_report import (
    collect_code_uses,
    liveness_of_ipu,
    memory_of_replica,
)
from lowering.machine.programs.program_facts import KnownParts
from lowering.machine.programs.residency import find_residency
from lowering.machine.programs.timing import ProgramTimer, Timing, time_program
from lowering.machine.target import Target
from lowering.machine.trace import Steps
from lowering.machine.transfers.links import RACK_IPUS


def model(
    program: ir.Program,
    options: ModelOptions | None = None,
    arguments: Mapping[int, str] | None = None,
    results: Sequence[str] = (),
    known: KnownParts | None = None,
) -> Profile:
    """Models one call of a program on a chip.

    Args:
      program: the whole program, as `lowering.lower` gives it.
      options: the chip and the options of the planner.
      arguments: the user's names of arguments, by their values in the program.
      results: the user's names of results, in their order.
      known: what other models found, for models of a program under several options; this one adds
        its own.

    Returns:
      Cycles, steps and memory of one replica's IPUs, collectives with the others included.
    """
    options, known = options or ModelOptions(), known or KnownParts()
    facts = known.facts_of(program)
    timer = ProgramTimer(facts, options, known.kernels)
    timing = time_program(timer)
    tiles = options.compute_target.tiles_per_ipu
    names, updates = facts.names_with(arguments or {}, results), facts.updates_with(options.donated)
    residencies = find_residency(facts, timing.kernels, timer.layout_on, tiles, names, updates)
    liveness = tuple(liveness_of_ipu(residency, options.io_tiles) for residency in residencies)
    operations = _build_operation_totals(timing, options.target)
    code = collect_code_uses(facts, timing.kernels, options)
    uses = itertools.chain(*(code_of_ipu.uses.values() for code_of_ipu in code))
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
        memory=memory_of_replica(residencies, liveness, code, options),
        breakdown=_break_down_timing(timing, program.ipus),
        liveness=liveness,
        operations=operations,
        program=timing.tree,
        default_share=compute["default"] / max(sum(compute.values()), 1.0),
        pipeline=timing.pipeline,
        assumptions=(
            *_list_assumptions_on_gateways(program, options.target),
            *_list_assumptions_on_ladder_order(program, options),
            *timing.assumptions,
        ),
        mappings={
            value_on_ipu: timer.layout_on(*value_on_ipu).mapping for value_on_ipu in facts.places
        },
        graph=measure_graph(uses, outlines=options.outlines),
        tile_work=_find_tile_work(timing),
    )


def _list_assumptions_on_gateways(program: ir.Program, target: Target) -> Sequence[str]:
    """Returns the assumptions on the links between instances, and between racks."""
    racks = math.ceil(program.ipus * program.replicas / program.instances / RACK_IPUS)
    if program.instances == 1 and racks == 1:
        return ()
    links = target.links
    parts = f"{racks} racks of {RACK_IPUS} IPUs"
    if program.instances > 1:
        parts = f"{program.instances} instances on machines of their own"
    return (
        f"{parts}, whose gateways send {links.gateway_bytes_per_second / 1e9:g} GB/s for "
        f"{links.ipus_of_gateway} IPUs",
    )


def _list_assumptions_on_ladder_order(program: ir.Program, options: ModelOptions) -> Sequence[str]:
    """Returns the assumptions on copies between IPUs that are not neighbours on the ladder."""
    copies = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]
    pairs = [
        (copy.source, copy.target) for copy in copies if HOST not in (copy.source, copy.target)
    ]
    passing_copies = bool(options.ladder) and sum(
        options.count_passed_ipus(*pair) > 0 for pair in pairs
    )
    if not passing_copies:
        return ()
    order = ", ".join(map(str, options.ladder[: program.ipus]))
    return (
        f"IPUs at places {order} of the ladder (selection_order): {passing_copies} of {len(pairs)} "
        "copies between them pass other IPUs",
    )


def _find_tile_work(timing: Timing) -> Mapping[int, TileWork]:
    """Returns where the vertices of each operation are."""
    return {
        number: TileWork(
            sum(kind.per_tile for kind in total.vertices),
            total.tiles,
            total.first_tile,
            total.step,
        )
        for (_, number), total in timing.totals.items()
    }


def _break_down_timing(timing: Timing, num_ipus: int) -> Mapping[str, np.ndarray]:
    bubble = collections.Counter[int]()
    updates: set[int] = set()
    for (ipu, number), total in timing.totals.items():
        bubble[ipu] += round(total.bubble_cycles)
        if total.direction == "update":
            updates.add(number)
    return break_down_cycles(timing.trace, timing.cycles, bubble, updates, num_ipus)


def _build_operation_totals(timing: Timing, target: Target) -> Sequence[OperationTotal]:
    totals = [
        OperationTotal(
            name=total.title,
            label=total.label or label_of_move(total.title),
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
            exchange_bytes=total.exchange_bytes,
            remote_bytes=total.remote_bytes,
            units=total.units,
        )
        for (ipu, number), total in timing.totals.items()
    ]
    return tuple(sorted(totals, key=lambda operation: -operation.cycles))


def _flop_utilisation(total: Total, target: Target) -> float | None:
    """Returns the used share of the units, which multiply half and single precision only."""
    if not total.flops or not total.cycles:
        return None
    half = total.dtype in ("float16", "bfloat16") or total.dtype.startswith("float8")
    number = "float16" if half else "float32"
    macs = max(rate for (dtype, _), rate in target.macs_per_cycle if dtype == number)
    return total.flops / (2 * macs * target.tiles_per_ipu * total.cycles)
