"""Checks that the options of a system fit together, and derives keys and settings from them."""

from __future__ import annotations

import enum
from typing import cast

from ipujax.ground import ConfigError
from ipujax.system.config_enums import DeviceConnectionType
from ipujax.system.config_options import SystemOptions
from ipujax.system.config_schema import ConfigNode, Option, list_assigned_names, walk_options

_VERSIONS = ("ipu1", "ipu2", "ipu21")


def floating_point_was_assigned(config: SystemOptions) -> bool:
    """Returns whether any attribute of `floating_point_behaviour` was ever assigned."""
    return bool(list_assigned_names(config.floating_point_behaviour))


def resolve_floating_point_behaviour(config: SystemOptions) -> tuple[bool, bool, bool, bool, bool]:
    """Returns the effective `inv`, `div0`, `oflo`, `esr` and `nanoo`, in this order."""
    behaviour = config.floating_point_behaviour
    if behaviour.set_all:
        return True, True, True, True, True
    return behaviour.inv, behaviour.div0, behaviour.oflo, behaviour.esr, behaviour.nanoo


def config_key(config: SystemOptions) -> tuple[tuple[str, object], ...]:
    """Returns a hashable key, equal for configurations under which programs do the same."""
    options = [
        (name, _make_hashable(value))
        for name, _, value in walk_options(config)
        if not isinstance(value, ConfigNode)
    ]
    return (*options, ("floating point assigned", floating_point_was_assigned(config)))


def _make_hashable(value: object) -> object:
    if isinstance(value, dict):
        items = cast(dict[object, object], value).items()
        return tuple(sorted((repr(key), repr(_make_hashable(item))) for key, item in items))
    if isinstance(value, (list, tuple)):
        return tuple(_make_hashable(item) for item in cast(list[object], value))
    return value.name if isinstance(value, enum.Enum) else value


def check_consistency(
    config: SystemOptions, *, on_ipu_model: bool, running_processes: int = 1
) -> None:
    """Checks options, each by itself and against one another.

    Args:
      config: the configuration to check.
      on_ipu_model: whether programs run on the IPU Model instead of IPUs.
      running_processes: the number of processes that run the program together.

    Raises:
      ConfigError: (a `ValueError`) that names the attributes and what to change.
    """
    _check_ipu_selection(config, on_ipu_model)
    _check_chip_versions(config)
    _check_process_count(config, on_ipu_model, running_processes)
    _check_io_tiles(config)
    _check_options_again(config)


def _check_options_again(config: SystemOptions) -> None:
    """Checks each option again: lists and dicts may have changed since they were assigned."""
    for name, member, value in walk_options(config):
        if isinstance(member, Option):
            member.check_value(config.get_attribute_metadata(name), value)


def _check_ipu_selection(config: SystemOptions, on_ipu_model: bool) -> None:
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


def _check_chip_versions(config: SystemOptions) -> None:
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


def _check_process_count(config: SystemOptions, on_ipu_model: bool, running_processes: int) -> None:
    distribution = config.experimental.multi_replica_distribution
    prefix = "experimental.multi_replica_distribution"
    count, index = distribution.process_count, distribution.process_index
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
    if count != running_processes:
        raise ConfigError(
            f"{prefix}.process_count is {count}, but {running_processes} "
            f"{'process runs' if running_processes == 1 else 'processes run'} this program; leave "
            f"it at 0, or start as many: ipurun --num-instances {count}"
        )


def _check_io_tiles(config: SystemOptions) -> None:
    tiles, group = config.io_tiles, config.norms.experimental
    group_size = group.distributed_batch_norm_replica_group_size
    option_name = "norms.experimental.distributed_batch_norm_replica_group_size"
    if tiles.place_ops_on_io_tiles and tiles.num_io_tiles == 0:
        raise ConfigError(
            "io_tiles.place_ops_on_io_tiles needs I/O tiles; set io_tiles.num_io_tiles, too"
        )
    if group_size > 1 and tiles.num_io_tiles > 0:
        raise ConfigError(
            f"{option_name} is {group_size}, which is not supported with I/O tiles; set it to 1, "
            "or io_tiles.num_io_tiles to 0"
        )
