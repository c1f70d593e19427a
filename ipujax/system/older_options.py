"""The functions of `utils` that configured the original before `IPUConfig`, as thin ones over it.

They were deprecated in the original. Each says so once in the log, and names the attributes.
Source: "TensorFlow for the IPU", General utilities.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from ipujax.ground import Checks, ConfigError, ConfigTypeError
from ipujax.system.config_enums import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipujax.system.ipu_config import IPUConfig, VerificationOptions
from ipujax.system.log import get_logger

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
PoplarOptions = Mapping[str, str] | None

_check = Checks(ConfigTypeError, ConfigError)
_MAX_REPORT_SIZE = 0x10000000  # bytes
_NO_TRANSFERS = "nothing: virtual IPUs have no transfers to verify"
_NO_REPORTS = "`executable.report()`: events hold no reports"


def _deprecated(
    instead: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Returns a decorator that logs, once in a process, what to use instead of a function."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.cache
        def warn() -> None:
            get_logger().warning("utils.%s is deprecated; use %s", function.__name__, instead)

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            warn()
            return function(*args, **kwargs)

        return _check.guard(call)

    return decorate


def _set_options(opts: IPUConfig, values: Mapping[str, object]) -> IPUConfig:
    """Sets options by their dotted names, unless they are None; returns the configuration."""
    expected = "what `create_ipu_config` returned, an IPUConfig"
    _check.require_instance(opts, IPUConfig, "opts", expected)
    for path, value in values.items():
        *categories, name = path.split(".")
        if value is not None:
            setattr(functools.reduce(getattr, categories, opts), name, value)
    return opts


_REASONS = {"retain_control_dependencies": "functions of JAX have no control dependencies"}
_REASON_OF_REPORTS = "a report is asked of a program, by `executable.report()`"


def _tell_without_effect(function: str, given: Mapping[str, object]) -> None:
    """Logs the arguments that are given and do nothing, each with the reason."""
    for name, value in given.items():
        if value:
            reason = _REASONS.get(name, _REASON_OF_REPORTS)
            get_logger().warning("%s(%s=) has no effect: %s", function, name, reason)


@_deprecated("an instance of `IPUConfig`")
def create_ipu_config(
    profiling: bool = False,
    enable_ipu_events: bool = False,
    use_poplar_text_report: bool = False,
    use_poplar_cbor_report: bool = False,
    profile_execution: bool | ExecutionProfileType | None = None,
    enable_poplar_serialized_graph: bool = False,
    report_every_nth_execution: int = 0,
    max_report_size: int = _MAX_REPORT_SIZE,
    report_directory: str = "",
    scheduler_selection: SchedulingAlgorithm = SchedulingAlgorithm.CHOOSE_BEST,
    always_rearrange_copies_on_the_host: bool = False,
    merge_infeed_io_copies: bool = False,
    disable_graph_outlining: bool = False,
    retain_control_dependencies: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_scheduler_lookahead_depth: int = 5,
    max_scheduler_search_space_size: int = 64,
    prefetch_data_streams: bool = True,
    selection_order: SelectionOrder = SelectionOrder.AUTO,
    enable_experimental_remote_buffer_embedding: bool = False,
) -> IPUConfig:
    """Returns a configuration with these options, for `configure_ipu_system`.

    The arguments up to `report_directory`, and `retain_control_dependencies`, have no effect, and
    say so in the log where they are given.

    Raises:
      ConfigTypeError: (a `TypeError`) a value of another type.
      ConfigError: (a `ValueError`) a value that an option cannot have.
    """
    _tell_without_effect(
        "create_ipu_config",
        {
            "profiling": profiling,
            "enable_ipu_events": enable_ipu_events,
            "use_poplar_text_report": use_poplar_text_report,
            "use_poplar_cbor_report": use_poplar_cbor_report,
            "profile_execution": profile_execution,
            "enable_poplar_serialized_graph": enable_poplar_serialized_graph,
            "report_every_nth_execution": report_every_nth_execution,
            "max_report_size": max_report_size != _MAX_REPORT_SIZE,
            "report_directory": report_directory,
            "retain_control_dependencies": retain_control_dependencies,
        },
    )
    outlines = not _check.require_flag(disable_graph_outlining, "disable_graph_outlining")
    return _set_options(
        IPUConfig(),
        {
            "scheduling.algorithm": scheduler_selection,
            "scheduling.maximum_scheduler_lookahead_depth": max_scheduler_lookahead_depth,
            "scheduling.maximum_scheduler_search_space_size": max_scheduler_search_space_size,
            "experimental.always_rearrange_copies_on_the_host": always_rearrange_copies_on_the_host,
            "experimental.enable_remote_buffer_embedding": (
                enable_experimental_remote_buffer_embedding
            ),
            "optimizations.merge_infeed_io_copies": merge_infeed_io_copies,
            "optimizations.enable_graph_outlining": outlines,
            "optimizations.maximum_cross_replica_sum_buffer_size": (
                max_cross_replica_sum_buffer_size
            ),
            "optimizations.maximum_inter_ipu_copies_buffer_size": max_inter_ipu_copies_buffer_size,
            "optimizations.prefetch_data_streams": prefetch_data_streams,
            "selection_order": selection_order,
        },
    )


@_deprecated("`IPUConfig.auto_select_ipus`")
def auto_select_ipus(opts: IPUConfig, num_ipus: int | Sequence[int]) -> IPUConfig:
    """Sets how many IPUs each device has, and returns the configuration."""
    return _set_options(opts, {"auto_select_ipus": num_ipus})


@_deprecated("`IPUConfig.select_ipus`")
def select_ipus(opts: IPUConfig, indices: int | Sequence[int]) -> IPUConfig:
    """Sets the device ids, as `gc-info -l` lists them, and returns the configuration."""
    if isinstance(indices, Sequence) and len(set(indices)) < len(indices):
        raise _check.value_error(f"select_ipus: indices must be unique, not {indices}")
    return _set_options(opts, {"select_ipus": indices})


@_deprecated("`IPUConfig.compilation_poplar_options`")
def set_compilation_options(
    opts: IPUConfig, compilation_options: PoplarOptions = None
) -> IPUConfig:
    """Sets Poplar's options of the engine, and returns the configuration."""
    return _set_options(
        opts,
        {"compilation_poplar_options": compilation_options},
    )


@_deprecated("`IPUConfig.convolutions.poplar_options`")
def set_convolution_options(
    opts: IPUConfig, convolution_options: PoplarOptions = None
) -> IPUConfig:
    """Sets Poplar's options of convolutions, and returns the configuration."""
    return _set_options(
        opts,
        {"convolutions.poplar_options": convolution_options},
    )


@_deprecated("`IPUConfig.experimental.multi_replica_distribution`")
def set_experimental_multi_replica_distribution_options(
    opts: IPUConfig, process_count: int, process_index: int
) -> IPUConfig:
    """Sets the number of processes and that of this one, and returns the configuration."""
    distribution = "experimental.multi_replica_distribution"
    return _set_options(
        opts,
        {
            f"{distribution}.process_count": process_count,
            f"{distribution}.process_index": process_index,
        },
    )


@_deprecated("the attributes of `IPUConfig.floating_point_behaviour`")
def set_floating_point_behaviour_options(
    opts: IPUConfig,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = True,
    nanoo: bool = True,
) -> IPUConfig:
    """Sets what floating-point errors do and how float16 rounds; returns the configuration."""
    values = {"inv": inv, "div0": div0, "oflo": oflo, "esr": esr, "nanoo": nanoo}
    return _set_options(
        opts, {f"floating_point_behaviour.{name}": value for name, value in values.items()}
    )


@_deprecated("`IPUConfig.gcl_poplar_options`")
def set_gcl_options(opts: IPUConfig, gcl_options: PoplarOptions = None) -> IPUConfig:
    """Sets the options of collectives, and returns the configuration."""
    return _set_options(opts, {"gcl_poplar_options": gcl_options})


@_deprecated("the attributes of `IPUConfig.io_tiles`")
def set_io_tile_options(
    opts: IPUConfig,
    num_io_tiles: int,
    place_ops_on_io_tiles: bool | None = None,
    io_tile_available_memory_proportion: float = 0.9,
) -> IPUConfig:
    """Sets how many tiles only exchange data, and returns the configuration.

    Args:
      opts: the configuration.
      num_io_tiles: that number.
      place_ops_on_io_tiles: whether the operations of queues are on them; None leaves it as it is.
      io_tile_available_memory_proportion: the share of their memory that data may take.
    """
    return _set_options(
        opts,
        {
            "io_tiles.num_io_tiles": num_io_tiles,
            "io_tiles.place_ops_on_io_tiles": place_ops_on_io_tiles,
            "io_tiles.available_memory_proportion": io_tile_available_memory_proportion,
        },
    )


@_deprecated("the attributes of `IPUConfig.device_connection`")
def set_ipu_connection_type(
    opts: IPUConfig,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str = "",
    enable_remote_buffers: bool = False,
) -> IPUConfig:
    """Sets when to attach to devices, and returns the configuration."""
    return _set_options(
        opts,
        {
            "device_connection.type": connection_type,
            "device_connection.version": ipu_version,
            "device_connection.enable_remote_buffers": enable_remote_buffers,
        },
    )


@_deprecated("the attributes of `IPUConfig.ipu_model`")
def set_ipu_model_options(
    opts: IPUConfig,
    compile_ipu_code: bool = True,
    tiles_per_ipu: int | None = None,
    ipu_model_version: str = "ipu2",
) -> IPUConfig:
    """Sets the chip that is modelled, and returns the configuration."""
    return _set_options(
        opts,
        {
            "ipu_model.compile_ipu_code": compile_ipu_code,
            "ipu_model.tiles_per_ipu": tiles_per_ipu,
            "ipu_model.version": ipu_model_version,
        },
    )


@_deprecated("the attributes of `IPUConfig.matmuls`")
def set_matmul_options(
    opts: IPUConfig, matmul_options: PoplarOptions = None, clear_pass_type: bool = False
) -> IPUConfig:
    """Sets the options of products of matrices, and returns the configuration."""
    return _set_options(
        opts,
        {
            "matmuls.poplar_options": matmul_options,
            "matmuls.clear_pass_type": clear_pass_type,
        },
    )


@_deprecated("the attributes of `IPUConfig.norms`")
def set_norm_options(
    opts: IPUConfig,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int = 1,
) -> IPUConfig:
    """Sets the options of normalizations, and returns the configuration."""
    return _set_options(
        opts,
        {
            "norms.use_stable_statistics": use_stable_statistics,
            "norms.experimental.distributed_batch_norm_replica_group_size": (
                experimental_distributed_batch_norm_replica_group_size
            ),
        },
    )


@_deprecated("the attributes of `IPUConfig.optimizations`")
def set_optimization_options(
    opts: IPUConfig,
    combine_embedding_lookups: bool = False,
    combine_matmuls: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_reduce_scatter_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_send_recv_cluster_size: int = 0,
    minimum_remote_tensor_size: int = 128,
    merge_remote_buffers: MergeRemoteBuffersBehaviour = MergeRemoteBuffersBehaviour.NO_MERGING,
    gather_simplifier: bool = True,
    triangular_solve_expander_block_size: int = 0,
    cholesky_block_size: int = 0,
    enable_fast_math: bool = False,
) -> IPUConfig:
    """Sets all of these options, and returns the configuration."""
    values = {
        "combine_embedding_lookups": combine_embedding_lookups,
        "combine_matmuls": combine_matmuls,
        "maximum_cross_replica_sum_buffer_size": max_cross_replica_sum_buffer_size,
        "maximum_reduce_scatter_buffer_size": max_reduce_scatter_buffer_size,
        "maximum_inter_ipu_copies_buffer_size": max_inter_ipu_copies_buffer_size,
        "maximum_send_recv_cluster_size": max_send_recv_cluster_size,
        "minimum_remote_tensor_size": minimum_remote_tensor_size,
        "merge_remote_buffers": merge_remote_buffers,
        "enable_gather_simplifier": gather_simplifier,
        "triangular_solve_expander_block_size": triangular_solve_expander_block_size,
        "cholesky_block_size": cholesky_block_size,
        "enable_fast_math": enable_fast_math,
    }
    return _set_options(opts, {f"optimizations.{name}": value for name, value in values.items()})


@_deprecated("`IPUConfig.pooling.poplar_options`")
def set_pooling_options(opts: IPUConfig, pooling_options: PoplarOptions = None) -> IPUConfig:
    """Sets the options of poolings, and returns the configuration."""
    return _set_options(opts, {"pooling.poplar_options": pooling_options})


@_deprecated("`IPUConfig.allow_recompute`")
def set_recomputation_options(opts: IPUConfig, allow_recompute: bool = True) -> IPUConfig:
    """Sets whether backward passes recompute activations, and returns the configuration."""
    return _set_options(opts, {"allow_recompute": allow_recompute})


@_deprecated("`executable.report()`: reports need no option")
def set_report_options(
    opts: IPUConfig,
    graph_options: PoplarOptions = None,
    execution_options: PoplarOptions = None,
) -> IPUConfig:
    """Returns the configuration as it is; options of reports have no effect, as the log says."""
    given = {"graph_options": graph_options, "execution_options": execution_options}
    _tell_without_effect("set_report_options", given)
    return _set_options(opts, {})


@_deprecated("`IPUConfig.serialization_output_folder`")
def set_serialization_options(opts: IPUConfig, output_folder: str = "") -> IPUConfig:
    """Sets the folder that compiled programs are saved in, and returns the configuration."""
    return _set_options(opts, {"serialization_output_folder": output_folder})


@_deprecated(_NO_TRANSFERS)
def set_transfer_options(opts: IPUConfig, use_verified_transfers: bool = False) -> IPUConfig:
    """Returns the configuration as it is: virtual IPUs have no transfers to verify."""
    _check.require_flag(use_verified_transfers, "use_verified_transfers")
    return _set_options(opts, {})


@_deprecated(_NO_TRANSFERS)
def set_verification_options(
    opts: IPUConfig, verification_options: VerificationOptions
) -> IPUConfig:
    """Returns the configuration as it is: virtual IPUs have no transfers to verify."""
    expected = "a VerificationOptions"
    _check.require_instance(
        verification_options, VerificationOptions, "verification_options", expected
    )
    return _set_options(opts, {})


@_deprecated(_NO_REPORTS)
def extract_compile_reports(events: Sequence[object]) -> list[tuple[str, str]]:
    """Returns an empty list, as the original does: events hold no reports."""
    _check.require_iterable(events, "events", "events of a trace")
    return []


@_deprecated(_NO_REPORTS)
def extract_execute_reports(events: Sequence[object]) -> list[tuple[str, str]]:
    """Returns an empty list, as the original does: events hold no reports."""
    _check.require_iterable(events, "events", "events of a trace")
    return []


@_deprecated("`lowered.as_text()`: events hold no graphs")
def extract_poplar_serialized_graphs(events: Sequence[object]) -> list[tuple[str, str]]:
    """Returns an empty list, as the original does: events hold no graphs."""
    _check.require_iterable(events, "events", "events of a trace")
    return []
