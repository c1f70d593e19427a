"""From a Program and the configuration of its device to a `Report`."""

from __future__ import annotations

from collections.abc import Mapping

from ipujax.errors import ConfigError
from ipujax.report.advice import advice
from ipujax.report.costs import costs
from ipujax.report.elements import elements_per_call
from ipujax.report.report import Report
from ipujax.report.stage_options import check_stage_options
from ipujax.system.options import SystemOptions
from ipujax.system.poplar_options import planner_options
from ipujax.targets import Target
from lowering import ir, machine


def make_report(
    program: ir.Program, config: SystemOptions, target: Target, arguments: Mapping[int, str]
) -> Report:
    """Models one call of a program.

    Args:
      program: for all IPUs of a device.
      config: in force for the device.
      target: the chip.
      arguments: what the user calls them, by their values in the program.

    Raises:
      ConfigError: (a `ValueError`) options that the planner cannot work with, or more I/O tiles
        than there are tiles.
    """
    check_stage_options(program)
    options = _options(config, target)
    profile = machine.model(program, options)
    helps = ()
    if not profile.memory.fits:
        helps = advice(program, profile, options, may_recompute=config.allow_recompute)
    return Report(
        profile=profile,
        elements=elements_per_call(program) * program.replicas,
        advice=helps,
        arguments=arguments,
        costs=costs(program, profile, options),
    )


def _options(config: SystemOptions, target: Target) -> machine.ModelOptions:
    io_tiles = config.io_tiles
    if io_tiles.num_io_tiles >= target.tiles_per_ipu:
        raise ConfigError(
            f"io_tiles.num_io_tiles is {io_tiles.num_io_tiles}, and {target.name} has "
            f"{target.tiles_per_ipu} tiles; none would be left to compute"
        )
    return machine.ModelOptions(
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
