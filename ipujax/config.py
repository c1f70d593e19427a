"""Configuring the IPU system: which IPUs a program gets, and how it is compiled and run.

    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 4
    cfg.configure_ipu_system()

A wrong name or type is an error on assignment; values that contradict one another are an error
when the system is configured. Source: "Targeting the IPU from TensorFlow", Configuration utilities.
"""

# Callers need not be type-checked: what the signatures say is checked again.
# pyright: reportUnnecessaryIsInstance=false
from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, cast

from ipujax._config_enums import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipujax._config_options import (
    Convolutions,
    DeviceConnection,
    Experimental,
    FloatingPointBehaviour,
    IoTiles,
    IpuModel,
    Matmuls,
    Norms,
    Optimizations,
    Pooling,
    Scheduling,
)
from ipujax._config_schema import (
    AttributeMetadata,
    ConfigNode,
    Effect,
    assigned_names,
    category,
    option,
    walk,
)
from ipujax._poplar_options import check_compilation_options, planner_options
from ipujax.errors import ConfigError, ConfigTypeError

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "VerificationOptions",
    "check_consistency",
    "config_key",
    "configure_ipu_system",
    "floating_point_effective",
    "floating_point_was_assigned",
    "get_ipu_config",
    "reset_ipu_configuration",
]

_VERSIONS = ("ipu1", "ipu2", "ipu21")


@dataclasses.dataclass
class KeyId:
    """A key, and the id of the first of the data that it verifies.

    Attributes:
      key: the key; 0 is none.
      start_id: the first id; -1 lets ids follow on from what came before.
    """

    key: int = 0
    start_id: int = -1


def _no_keys() -> collections.defaultdict[str, KeyId]:
    return collections.defaultdict(KeyId)


@dataclasses.dataclass
class VerificationOptions:
    """The key and first id for each kind of data of a program, for verified transfers.

    Virtual IPUs have no untrusted link to verify: this is kept so that programs port unchanged,
    and does nothing.

    Attributes:
      inputs: the arguments of programs.
      input_parameters: the parameters that they read.
      outputs: their results.
      output_parameters: the parameters that they write.
      infeeds: infeeds by name; one that is not there yet is made when it is first asked for.
      outfeeds: outfeeds by name, likewise.
      checkpoint_in: the place in the infeeds at which to go on.
      checkpoint_out: the place in the outfeeds at which to go on.
    """

    inputs: KeyId = dataclasses.field(default_factory=KeyId)
    input_parameters: KeyId = dataclasses.field(default_factory=KeyId)
    outputs: KeyId = dataclasses.field(default_factory=KeyId)
    output_parameters: KeyId = dataclasses.field(default_factory=KeyId)
    infeeds: collections.defaultdict[str, KeyId] = dataclasses.field(default_factory=_no_keys)
    outfeeds: collections.defaultdict[str, KeyId] = dataclasses.field(default_factory=_no_keys)
    checkpoint_in: KeyId = dataclasses.field(default_factory=lambda: KeyId(0, 0))
    checkpoint_out: KeyId = dataclasses.field(default_factory=lambda: KeyId(0, 0))


class IPUConfig(ConfigNode):
    """All that can be set about an IPU system; `print(config)` shows every option.

    Options are attributes, in categories: `config.ipu_model.version = "ipu21"`. Use
    `get_attribute_metadata` to ask for the type, default and meaning of one.
    """

    auto_select_ipus: int | list[int] | tuple[int, ...] = option(
        [],
        """How many IPUs each device has, 1 to 16: 4 for one device of four IPUs, [2, 2] for
        /device:IPU:0 and /device:IPU:1 with two each. The system chooses the IPUs.""",
        Effect.SYSTEM,
    )
    select_ipus: int | list[int] | tuple[int, ...] = option(
        [],
        """Which IPUs each device has, by the ids that `gc-info -l` lists: 24 for one device,
        [24, 25] for two. Only one of this and `auto_select_ipus` may be set.""",
        Effect.SYSTEM,
    )
    allow_recompute: bool = option(
        False,
        """Recompute values of the forward pass in the backward pass instead of keeping them: less
        memory, more time. Operations with state are never repeated.""",
        Effect.MODEL,
    )
    selection_order: SelectionOrder = option(
        SelectionOrder.AUTO, "In which order a device's IPUs become shards.", Effect.SYSTEM
    )
    serialization_output_folder: str = option(
        "", "Directory in which compiled programs are saved; '' saves none.", Effect.HOST
    )
    compilation_poplar_options: dict[Any, Any] = option(
        {},
        """Options of the engine. With {"debug.allowOutOfMemory": "false"}, compiling a program
        that does not fit the tiles raises `ipu.errors.OutOfMemoryError`.""",
        Effect.MODEL,
    )
    gcl_poplar_options: dict[Any, Any] = option(
        {}, "Options of the communication library, for all collectives.", Effect.MODEL
    )
    convolutions: Convolutions = category()
    device_connection: DeviceConnection = category()
    experimental: Experimental = category()
    floating_point_behaviour: FloatingPointBehaviour = category()
    io_tiles: IoTiles = category()
    ipu_model: IpuModel = category()
    matmuls: Matmuls = category()
    norms: Norms = category()
    optimizations: Optimizations = category()
    pooling: Pooling = category()
    scheduling: Scheduling = category()

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Configures the system with this; see the function of the same name."""
        configure_ipu_system(self, device)


def configure_ipu_system(
    config: IPUConfig, device: str = "cpu", reset_configuration: bool = True
) -> None:
    """Configures the system; devices that connect `ALWAYS` attach now.

    The configuration is copied: changing `config` later changes nothing until it is configured
    again.

    Args:
      config: what to configure.
      device: the host's device; there is but one, and nothing depends on it.
      reset_configuration: drop the configuration in force first. Without it, configuring anew is
        an error unless nothing differs.

    Raises:
      ConfigTypeError: if `config` is no `IPUConfig`.
      ConfigError: if options contradict one another, or something else is configured already.
      DeviceError: if the system has no such IPUs.
    """
    from ipujax.system import SYSTEM  # the system holds configurations: it imports this module

    if not isinstance(config, IPUConfig):
        raise ConfigTypeError(
            f"configure_ipu_system() takes an IPUConfig, not {type(config).__name__}; options of "
            "the older create_ipu_config() are attributes of IPUConfig now"
        )
    if SYSTEM.configured and not reset_configuration:
        if config_key(SYSTEM.configs()[0]) == config_key(config):
            return
        raise ConfigError(
            "the system is configured already, in another way; call reset_ipu_configuration() "
            "first, or leave out reset_configuration=False"
        )
    SYSTEM.configure(config)


def get_ipu_config(session: object = None) -> list[IPUConfig]:
    """The configuration in force, once for each logical device.

    Args:
      session: not used: JAX has no sessions.

    Returns:
      Copies of the whole configuration, equal to one another, to read or to change and configure.

    Raises:
      NotConfiguredError: (a `RuntimeError`) if nothing is configured.
    """
    from ipujax.system import SYSTEM

    return SYSTEM.configs()


def reset_ipu_configuration() -> None:
    """Drops the configuration in force, if any; a system without one has one IPU.

    Programs that are running keep the IPUs they have until they end.
    """
    from ipujax.system import SYSTEM

    SYSTEM.reset()


def floating_point_was_assigned(config: IPUConfig) -> bool:
    """Whether any attribute of `floating_point_behaviour` was ever assigned, even its default."""
    return bool(assigned_names(config.floating_point_behaviour))


def floating_point_effective(config: IPUConfig) -> tuple[bool, bool, bool, bool, bool]:
    """What is in force of `inv`, `div0`, `oflo`, `esr` and `nanoo`, in this order."""
    behaviour = config.floating_point_behaviour
    on = behaviour.set_all
    return (
        on or behaviour.inv,
        on or behaviour.div0,
        on or behaviour.oflo,
        on or behaviour.esr,
        on or behaviour.nanoo,
    )


def config_key(config: IPUConfig) -> tuple[Any, ...]:
    """A hashable stand-in: equal for configurations under which programs do the same."""
    values = [(name, _hashable(value)) for name, _, value in walk(config) if not _is_node(value)]
    return (*values, ("floating point assigned", floating_point_was_assigned(config)))


def _is_node(value: object) -> bool:
    return isinstance(value, ConfigNode)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return tuple(sorted((repr(key), repr(_hashable(item))) for key, item in items))
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in cast(list[Any], value))
    return value.name if isinstance(value, enum.Enum) else value


def check_consistency(config: IPUConfig, *, on_ipu_model: bool) -> None:
    """Checks options against one another.

    Args:
      config: the configuration to check.
      on_ipu_model: whether programs run on the IPU Model instead of IPUs.

    Raises:
      ConfigError: (a `ValueError`) that names the attributes and what to change.
    """
    _check_selection(config, on_ipu_model)
    _check_versions(config)
    _check_processes(config, on_ipu_model)
    _check_tiles(config)
    check_compilation_options(config.compilation_poplar_options)
    for name in ("matmuls", "convolutions"):
        planner_options(getattr(config, name).poplar_options, f"{name}.poplar_options")


def _check_selection(config: IPUConfig, on_ipu_model: bool) -> None:
    if config.select_ipus == [] or config.select_ipus == ():
        return
    if config.auto_select_ipus != [] and config.auto_select_ipus != ():
        raise ConfigError(
            "auto_select_ipus and select_ipus are both set; set only one: how many IPUs, or which"
        )
    if on_ipu_model:
        raise ConfigError(
            "select_ipus names IPUs, and the IPU Model has none to name; say how many there are "
            "with auto_select_ipus, or remove --use_ipu_model from TF_POPLAR_FLAGS"
        )


def _check_versions(config: IPUConfig) -> None:
    connection = config.device_connection
    never_attached = (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)
    if connection.type in never_attached and not connection.version:
        raise ConfigError(
            f"device_connection.version must be set when device_connection.type is "
            f"{connection.type.name}, since there is no IPU to ask; use one of "
            f"{', '.join(_VERSIONS)}"
        )
    for name, version, allowed in (
        ("device_connection.version", connection.version, ("", *_VERSIONS)),
        ("ipu_model.version", config.ipu_model.version, _VERSIONS),
    ):
        if version not in allowed:
            raise ConfigError(f"{name} is {version!r}, but must be one of {', '.join(_VERSIONS)}")


def _check_processes(config: IPUConfig, on_ipu_model: bool) -> None:
    processes = config.experimental.multi_replica_distribution
    prefix = "experimental.multi_replica_distribution"
    count, index = processes.process_count, processes.process_index
    if count < 0:
        raise ConfigError(f"{prefix}.process_count is {count}, but cannot be negative")
    if count == 0 and index != 0:
        raise ConfigError(
            f"{prefix}.process_index is {index}, but process_count is 0: without processes there "
            "is no process to number; leave process_index at 0"
        )
    if count == 0:
        return
    if not 0 <= index < count:
        raise ConfigError(
            f"{prefix}.process_index is {index}, but must be in the range [0, {count}), since "
            f"process_count is {count}"
        )
    if on_ipu_model:
        raise ConfigError(
            f"{prefix}.process_count is {count}, but the IPU Model cannot distribute replicas over "
            "processes; remove --use_ipu_model from TF_POPLAR_FLAGS"
        )
    if count > 1:
        raise ConfigError(
            f"{prefix}.process_count is {count}, but replicas cannot be distributed over processes "
            "yet: each would train alone, on its own data; leave process_count at 0 and give all "
            "replicas to one process, with auto_select_ipus = replicas x IPUs per replica"
        )


def _check_tiles(config: IPUConfig) -> None:
    tiles, group = config.io_tiles, config.norms.experimental
    size = group.distributed_batch_norm_replica_group_size
    name = "norms.experimental.distributed_batch_norm_replica_group_size"
    if tiles.num_io_tiles < 0:
        raise ConfigError(f"io_tiles.num_io_tiles is {tiles.num_io_tiles}; it cannot be negative")
    if tiles.place_ops_on_io_tiles and tiles.num_io_tiles == 0:
        raise ConfigError(
            "io_tiles.place_ops_on_io_tiles needs I/O tiles; set io_tiles.num_io_tiles, too"
        )
    if config.ipu_model.tiles_per_ipu < 0:
        raise ConfigError("ipu_model.tiles_per_ipu cannot be negative")
    if size < 1:
        raise ConfigError(f"{name} is {size}; a group has at least one replica")
    if size > 1 and tiles.num_io_tiles > 0:
        raise ConfigError(
            f"{name} is {size}, which is not supported with I/O tiles; set it to 1, or "
            "io_tiles.num_io_tiles to 0"
        )
