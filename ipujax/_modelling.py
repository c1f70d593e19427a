"""From a Program and the configuration of its device to a `Report`."""

from __future__ import annotations

import collections
import dataclasses as dc
from typing import Any

from ipujax._advice import advice
from ipujax._config_schema import assigned_names
from ipujax._poplar_options import planner_options
from ipujax.config import IPUConfig
from ipujax.errors import ConfigError
from ipujax.report import Report
from ipujax.targets import Target, named, target_of
from lowering import ir, machine


def make_report(program: ir.Program, config: IPUConfig, target: Target) -> Report:
    """Models one call of a program.

    Args:
      program: for all IPUs of a device.
      config: in force for the device.
      target: the chip.

    Raises:
      ConfigError: (a `ValueError`) options that the planner cannot work with, or more I/O tiles
        than there are tiles.
    """
    _check_stages(program)
    io_tiles = config.io_tiles
    if io_tiles.num_io_tiles >= target.tiles_per_ipu:
        raise ConfigError(
            f"io_tiles.num_io_tiles is {io_tiles.num_io_tiles}, and {target.name} has "
            f"{target.tiles_per_ipu} tiles; none would be left to compute"
        )
    options = machine.ModelOptions(
        target=target,
        plans=machine.plan_options(
            planner_options(config.matmuls.poplar_options, "matmuls.poplar_options"),
            planner_options(config.convolutions.poplar_options, "convolutions.poplar_options"),
        ),
        compiles_code=config.ipu_model.compile_ipu_code,
        io_tiles=io_tiles.num_io_tiles,
        overlaps_io=io_tiles.place_ops_on_io_tiles,
        merged_bytes=config.optimizations.maximum_cross_replica_sum_buffer_size,
    )
    profile = machine.model(program, options)
    fits = profile.memory.fits
    return Report(
        profile=profile,
        elements=elements_per_call(program) * program.replicas,
        advice=() if fits else advice(program, profile, may_recompute=config.allow_recompute),
    )


def chip_of(config: IPUConfig, target: str | Target | None) -> Target:
    """The chip that was asked for: a description, a name, or None for the configuration's.

    The configuration's is `ipu_model.version`; where only `device_connection.version` was
    assigned, the chip to compile for, it is that one.

    Raises:
      TargetError: (a `ValueError`) a target that does not exist.
    """
    if target is not None:
        return target_of(target)
    model, connection = config.ipu_model, config.device_connection
    version = model.version
    if connection.version and "version" not in assigned_names(model):
        version = connection.version
    chip = named(version)
    return dc.replace(chip, tiles_per_ipu=model.tiles_per_ipu) if model.tiles_per_ipu else chip


def elements_per_call(program: ir.Program) -> int:
    """How many elements one replica takes from the infeed that gives most.

    Without infeeds, it is the micro-batches of its pipelines. Loops whose trip count only values
    tell count once, and of branches the one that reads most.
    """
    taken: collections.Counter[Any] = collections.Counter()
    _count(program.body, 1, taken)
    streamed = [count for queue, count in taken.items() if queue is not None]
    return max(streamed, default=taken[None])


def _count(body: ir.Sequence, times: int, taken: collections.Counter[Any]) -> None:
    """Adds up elements by queue, and micro-batches under None."""
    for node in body.steps:
        match node:
            case ir.StreamIn():
                taken[node.queue.name] += times * (node.count or 1)
            case ir.Repeat():
                inside = times * (1 if node.count is None else node.count)
                if node.pipeline is not None:
                    taken[None] += inside
                _count(node.body, inside, taken)
            case ir.Switch():
                _count_branches(node, times, taken)
            case _:
                for child in ir.children(node):
                    _count(child, times, taken)


def _count_branches(node: ir.Switch, times: int, taken: collections.Counter[Any]) -> None:
    most: collections.Counter[Any] = collections.Counter()
    for branch in node.branches:
        own: collections.Counter[Any] = collections.Counter()
        _count(branch.body, times, own)
        most |= own
    taken.update(most)


def _check_stages(program: ir.Program) -> None:
    """Checks the Poplar options of pipeline stages, which ride in the program."""
    for node in ir.walk(program.body):
        if isinstance(node, ir.Task):
            stage = "the weight update" if node.spec.stage < 0 else f"stage {node.spec.stage}"
            for group, pairs in node.spec.options:
                planner_options(dict(pairs), f"{node.spec.kind} {group} of {stage}")
