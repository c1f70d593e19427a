"""The logical device of a traced function, and the compiler options that it implies."""

from __future__ import annotations

import functools

from ipujax.driver.call_arguments import Settings
from ipujax.ground import ConfigError, DeviceError, PipelineError
from ipujax.system import (
    PARTIALS,
    SYSTEM,
    DeviceConnectionType,
    LogicalDevice,
    check_mesh_count,
    check_planner_options,
    common_mesh,
    floating_point_was_assigned,
    get_logger,
    is_ipu_device_name,
    read_poplar_flags,
    resolve_floating_point_behaviour,
    settings_of_reader,
)
from lowering import (
    Options,
    asks_to_offload_state,
    count_unconfigured_ipus,
    find_divergent_conditions,
    ir,
    jaxpr,
    list_lines_with_shardings,
    machine,
    variants,
)

_DTYPES = {"half": "float16", "float": "float32"}  # Poplar's names

DEFAULT_DEVICE = "/device:IPU:0"


def find_device(settings: Settings, closed: jaxpr.ClosedJaxpr) -> LogicalDevice:
    """Finds the logical device that a function was compiled for.

    Raises:
      DeviceError: if it is not an IPU, or there is no such one.
      DeviceMeshError: if it has more or fewer IPUs than there are meshes.
    """
    name, meshes = settings.device, settings.meshes
    if is_ipu_device_name(name):
        asked_ipus = len(meshes)
        if not asked_ipus and not SYSTEM.is_configured:
            asked_ipus = count_unconfigured_ipus(closed)
        device = SYSTEM.device(name, unconfigured_ipus=asked_ipus)
        check_mesh_count(meshes, device.num_ipus, device.name)
        return device
    if not closed.jaxpr.eqns and not closed.jaxpr.outvars:
        return SYSTEM.device(DEFAULT_DEVICE)  # nothing to run: nothing runs in the wrong place
    raise DeviceError(
        f"the program is placed on {name!r}, which is not an IPU; compile it inside "
        "ipu_scope('/device:IPU:0'), or pass device='/device:IPU:0'"
    )


def build_compiler_options(settings: Settings, device: LogicalDevice) -> Options:
    """Builds the compiler options from the settings of a function and its device."""
    inv, div0, oflo, esr, nanoo = resolve_floating_point_behaviour(device.config)
    nans, infinities = jaxpr.nan_and_inf_checks()
    io_tiles = device.config.io_tiles
    return Options(
        **settings_of_reader(device.config, "compiler"),
        num_ipus=device.num_ipus,
        mesh=common_mesh(settings.meshes),
        replicas=settings.replicas,
        instances=settings.instance.num_replica_groups,
        name=settings.name,
        catch_invalid=inv or nans,
        catch_division=div0 or infinities,
        catch_overflow=oflo or infinities,
        number_formats=True,
        float16_limits=floating_point_was_assigned(device.config),
        nan_on_overflow=nanoo,
        stochastic_rounding=esr,
        partials=_partial_result_types(device),
        io_tiles=io_tiles.num_io_tiles > 0 and io_tiles.place_ops_on_io_tiles,
        has_remote=_system_has_remote_memory(device),
        count_cycles=functools.partial(_count_cycles, device),
    )


def _count_cycles(device: LogicalDevice, closed: jaxpr.ClosedJaxpr) -> int:
    """Returns the modelled cycles of a jaxpr on the chip of a device."""
    from ipujax.report import choose_chip  # most programs read no clock

    return machine.estimate_function_cycles(closed, choose_chip(device.config, None))


def _partial_result_types(device: LogicalDevice) -> tuple[tuple[str, str], ...]:
    """Returns the configured types of partial results, by primitive."""
    config = device.config
    option_sources = (
        ("dot_general", "matmuls", config.matmuls),
        ("conv_general_dilated", "convolutions", config.convolutions),
    )
    requested_types = (
        (
            name,
            check_planner_options(node.poplar_options, f"{option_path}.poplar_options").get(
                PARTIALS
            ),
        )
        for name, option_path, node in option_sources
    )
    return tuple(
        (name, _DTYPES.get(text, text)) for name, text in requested_types if text is not None
    )


def check_remote_memory(program: ir.Program, device: LogicalDevice) -> None:
    """Raises an error if a program uses streaming memory and the system has none.

    Raises:
      ConfigError: (a `ValueError`) a program with remote buffers for a system that has none, as
        `device_connection.enable_remote_buffers` says; with ALWAYS it is the one attached to.
    """
    connection = device.config.device_connection
    if _system_has_remote_memory(device):
        return
    stores = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Store))
    if any(node.storage.remote for node in stores):
        raise ConfigError(
            f"program `{program.name}` keeps values in streaming memory, and the system that it is "
            f"compiled for has none: device_connection.type is {connection.type.name}, and "
            "device_connection.enable_remote_buffers is False",
            fix="set enable_remote_buffers = True if that system has remote buffers "
            "(`gc-info -d 0 -I`); or offload nothing (offload_gradient_accumulation_buffers=None, "
            "and its like, of pipelines)",
        )


def log_disabled_offloading(name: str, closed: jaxpr.ClosedJaxpr, options: Options) -> None:
    """Logs that an optimizer's state stays on the tiles of a system without streaming memory."""
    if not options.has_remote and asks_to_offload_state(closed):
        get_logger().info(
            f"Program `{name}` is to offload its optimizer's state, which is disabled: the system "
            "that it is compiled for has no remote buffers. Set "
            "device_connection.enable_remote_buffers = True if it has (`gc-info -d 0 -I`)"
        )


def _system_has_remote_memory(device: LogicalDevice) -> bool:
    """Returns whether the system that a device's programs are compiled for has streaming memory."""
    connection = device.config.device_connection
    return connection.type is DeviceConnectionType.ALWAYS or connection.enable_remote_buffers


def is_logging_cycles(device: LogicalDevice) -> bool:
    """Returns whether `--log_cycle_count` asks for the cycles of this device's runs."""
    return read_poplar_flags().log_cycle_count == device.ordinal


def prepare_queues(program: ir.Program, device: LogicalDevice, replicas: int) -> None:
    """Sets up a program's queues for its device and its replicas in this process.

    Raises:
      FeedError: a queue that is another device's.
    """
    for queue in (
        *ir.queues_of_program(program, ir.StreamIn),
        *ir.queues_of_program(program, ir.StreamOut),
    ):
        queue.check_device(device.ordinal)
    for queue in ir.queues_of_program(program, ir.StreamIn):
        queue.fetches_ahead = device.config.optimizations.prefetch_data_streams
    for queue in ir.queues_of_program(program, ir.StreamOut):
        queue.expect(replicas)


def log_dropped_shardings(name: str, closed: jaxpr.ClosedJaxpr) -> None:
    """Logs, once for each line, where a program without meshes shards arrays in vain."""
    for line in list_lines_with_shardings(closed):
        _log_dropped_sharding(name, line)


@functools.lru_cache(maxsize=256)
def _log_dropped_sharding(name: str, line: str) -> None:
    get_logger().info(
        f"Program `{name}` shards an array over JAX devices at {line}, which is left out: each "
        "IPU has one device; give each a mesh by ipu.compile(meshes=ipu.meshes(...))"
    )


def check_recomputation(closed: jaxpr.ClosedJaxpr, options: Options) -> None:
    """Refuses pipelines whose schedule does not go with their mode of recomputation.

    Raises:
      PipelineError: (a `ValueError`) such a pipeline, where `allow_recompute` is set.
    """
    for pipeline in variants.pipelines_of(closed) if options.allow_recompute else ():
        if pipeline.training and pipeline.recomputation_conflict:
            raise PipelineError(
                f"pipeline {pipeline.name}: {pipeline.recomputation_conflict}",
                where=pipeline.origin,
                fix="leave recomputation_mode out: Auto takes the one that fits the schedule",
            )


def warn_of_divergent_conditions(name: str, closed: jaxpr.ClosedJaxpr, replicas: int) -> None:
    """Warns, once for each line, of conditions that may part replicas at a collective."""
    for line in find_divergent_conditions(closed, replicas):
        _warn_of_divergent_condition(name, line)


@functools.lru_cache(maxsize=256)
def _warn_of_divergent_condition(name: str, line: str) -> None:
    get_logger().warning(
        f"Program `{name}` has a collective in control flow that may diverge: the condition at "
        f"{line or 'a line of no file'} is made of values that may differ between replicas, and "
        "on hardware replicas that go another way leave the others waiting for ever. Compute the "
        "condition from a collective's result, or promise that it is equal: "
        "cross_replica_ops.assume_equal_across_replicas(condition)"
    )


@functools.lru_cache(maxsize=256)
def log_replica_count(
    settings: Settings, generation: int, device: LogicalDevice, ipus: int, replicas: int
) -> None:
    """Logs the number of replicas if no one set it; once per function and configuration."""
    del generation  # tells configurations apart
    process_note = " in this process" if settings.instance.num_replica_groups > 1 else ""
    get_logger().info(
        f"Program `{settings.name}` runs as {replicas} replicas{process_note}, each with elements "
        f"of its own from infeeds, since it uses {ipus} IPU{'s' * (ipus > 1)} and {device.name} "
        f"has {device.num_ipus}"
    )
