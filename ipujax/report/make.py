"""Makes a `Report` from a program and the configuration of its device."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence

from jax.sharding import Mesh

from ipujax.ground import ConfigError
from ipujax.report.advice.change import ModelMemory, Source
from ipujax.report.advice.costs import rank_costs
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.memory import advise_on_memory
from ipujax.report.device_meshes import describe_device_meshes
from ipujax.report.excerpts import collect_excerpts
from ipujax.report.report import Report
from ipujax.system import (
    SystemOptions,
    Target,
    check_planner_options,
    list_assigned_names,
    named,
    read_poplar_flags,
    settings_of_reader,
    target_of,
)
from lowering import ir, machine


def choose_chip(config: SystemOptions, target: str | Target | None) -> Target:
    """Returns the chip that was asked for: a description, a name, or None for the configuration's.

    The configuration's chip is `ipu_model.version`, or `device_connection.version`, the chip to
    compile for, if only that was assigned.

    Raises:
      TargetError: (a `ValueError`) a target that does not exist.
    """
    if target is not None:
        return target_of(target)
    model, connection = config.ipu_model, config.device_connection
    version = model.version
    if connection.version and "version" not in list_assigned_names(model):
        version = connection.version
    chip = named(version)
    return dc.replace(chip, tiles_per_ipu=model.tiles_per_ipu) if model.tiles_per_ipu else chip


def make_report(
    program: ir.Program,
    config: SystemOptions,
    target: Target,
    arguments: Mapping[int, str],
    *,
    ladder: tuple[int, ...] = (),
    names: Mapping[int, str] | None = None,
    result_names: Sequence[str] = (),
    source: Source | None = None,
    donated: Sequence[int] = (),
    meshes: Sequence[Mesh] = (),
    memory: ModelMemory | None = None,
) -> Report:
    """Models one call of a program.

    Args:
      program: the program for all IPUs of a device.
      config: the configuration in force for the device.
      target: the chip.
      arguments: paths of the arguments of a call, by their values in the program.
      ladder: the positions of the device's IPUs on the ladder of links; (): as they are numbered.
      names: the arguments' names in the user's function; as in `arguments` by default.
      result_names: the user's names of the results.
      source: the function and options that it was lowered from, to model advice.
      donated: positions of the donated arguments.
      meshes: the JAX devices of each IPU, replica after replica; (): not said.
      memory: what other reports on the program found; this one adds to it.

    Raises:
      ConfigError: (a `ValueError`) options that the planner cannot work with, or more I/O tiles
        than there are tiles.
    """
    memory = memory or ModelMemory()
    index = memory.index_of(program)
    options = dc.replace(
        _model_options_of_config(config, target), ladder=ladder, donated=tuple(donated)
    )
    names = arguments if names is None else names
    profile = machine.model(program, options, names, result_names, memory.known)
    facts = Facts(index, profile, options, memory, source)
    memory_advice = () if profile.memory.fits else advise_on_memory(facts)
    return Report(
        profile=profile,
        elements=index.elements_per_call * program.replicas,
        batch_size=index.batch_size,
        advice=memory_advice,
        arguments=arguments,
        costs=rank_costs(facts),
        sources=collect_excerpts(operation.call_path for operation in profile.operations),
        meshes=describe_device_meshes(meshes, program.ipus, program.replicas),
    )


def _model_options_of_config(config: SystemOptions, target: Target) -> machine.ModelOptions:
    io_tiles = config.io_tiles
    if io_tiles.num_io_tiles >= target.tiles_per_ipu:
        raise ConfigError(
            f"io_tiles.num_io_tiles is {io_tiles.num_io_tiles}, and {target.name} has "
            f"{target.tiles_per_ipu} tiles; none would be left to compute"
        )
    block_options = machine.PlanOptions(**settings_of_reader(config, "planner"))
    return machine.ModelOptions(
        **settings_of_reader(config, "model"),
        target=target,
        plans=machine.planner_options_from_poplar(
            check_planner_options(config.matmuls.poplar_options, "matmuls.poplar_options"),
            check_planner_options(
                config.convolutions.poplar_options, "convolutions.poplar_options"
            ),
            block_options,
        ),
        synthetic=read_poplar_flags().synthetic_category_names,
    )
