"""The virtual system: the IPUs of each logical device, and whether it is attached to them.

There is one system in a process, `SYSTEM`. It starts unconfigured, with one logical device of one
IPU; `configure` gives it others. Code that caches something that depends on the configuration
compares `SYSTEM.generation`, which changes whenever the configuration does; configuring again what
is in force leaves it unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import threading

import numpy as np

from ipujax.ground import (
    Checks,
    ConfigError,
    ConfigTypeError,
    ConnectionTypeError,
    DeviceError,
    Instance,
    NotConfiguredError,
    get_joined_instance,
)
from ipujax.system import attachments, flags, poplar_options
from ipujax.system.config_enums import DeviceConnectionType
from ipujax.system.config_schema import copy_config, list_assigned_names
from ipujax.system.device_ids import (
    PARTITION_VARIABLE,
    SIZE_VARIABLE,
    ListedDevice,
    find_machine,
    position_of_each_shard,
)
from ipujax.system.ladder_picture import draw_ladder
from ipujax.system.log import get_logger
from ipujax.system.option_checks import SystemOptions, check_consistency, config_key
from lowering import limit_dir_to

_check = Checks(ConfigTypeError, ConfigError)

_NAME = re.compile(r"(?:/job:[^/]+)?(?:/replica:\d+)?(?:/task:\d+)?(?:/?device:|/)?IPU:(\d+)", re.I)


@_check.guard
@limit_dir_to()
@dataclasses.dataclass(frozen=True)
class LogicalDevice:
    """A logical device such as `/device:IPU:0`: some IPUs of the machine, in order.

    Attributes:
      name: `/device:IPU:<ordinal>`.
      ordinal: its place in the configuration, from 0.
      device_id: its id in the listing of `gc-info -l`.
      ipus: the physical IPU (by PCIe id) of each shard.
      first: its first IPU's index among the IPUs of all devices, from 0; JAX devices are assigned
        by these indices, in turn.
      config: the configuration in force; a frozen copy.
    """

    name: str
    ordinal: int
    device_id: int
    ipus: tuple[int, ...]
    first: int
    config: SystemOptions = dataclasses.field(compare=False, repr=False)

    def _repr_html_(self) -> str:
        """Returns a drawing, for notebooks."""
        return draw_ladder(self.name, self.ipus, self.ladder)

    @property
    def num_ipus(self) -> int:
        """The number of its IPUs."""
        return len(self.ipus)

    @property
    def ladder(self) -> tuple[int, ...]:
        """The position of each IPU on the ladder of links, by `selection_order`."""
        return position_of_each_shard(self.num_ipus, self.config.selection_order)

    @property
    def connection(self) -> DeviceConnectionType:
        """The time at which it attaches."""
        return self.config.device_connection.type

    @property
    def only_compiles_programs(self) -> bool:
        """Returns whether programs only compile, and running them gives zeros."""
        return self.connection is DeviceConnectionType.PRE_COMPILE


@dataclasses.dataclass(frozen=True)
class DeviceSeed:
    """The seed of a device's random numbers, and the number of runs since it was set.

    Attributes:
      value: the seed, of 64 bits; the device's ordinal until one is set, so that programs repeat
        themselves and devices differ.
      identical: whether all replicas draw the same numbers.
      runs: the number of runs that have drawn since it was set.
    """

    value: int
    identical: bool = False
    runs: int = 0


class VirtualSystem:
    """The state of the virtual system; use the one instance, `SYSTEM`.

    Attributes:
      generation: changes with every `reset_system`, and every `configure` that changes options.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.RLock()
        self._devices: tuple[LogicalDevice, ...] | None = None
        self._in_force: object = None  # the identity of the configuration in force
        self._attached: dict[str, attachments.Attachment] = {}
        self._seeds: dict[str, DeviceSeed] = {}

    @property
    def is_configured(self) -> bool:
        """Returns whether a configuration is in force."""
        return self._in_force is not None

    def configure(self, config: SystemOptions) -> None:
        """Puts a configuration in force instead of the one before; attaches `ALWAYS` devices.

        If it is in force already, devices and compiled programs stay, and only seeds start anew.

        Raises:
          ConfigError: if options contradict one another.
          DeviceError: if the machine has no such IPUs.
        """
        config, process = copy_config(config, frozen=False), get_joined_instance() or Instance()
        distribution = config.experimental.multi_replica_distribution
        if process.count > 1 and not distribution.process_count:
            distribution.process_count, distribution.process_index = process.count, process.index
        on_ipu_model = flags.read_poplar_flags().use_ipu_model
        check_consistency(config, on_ipu_model=on_ipu_model, running_processes=process.count)
        devices = build_logical_devices(copy_config(config, frozen=True))
        identity = _program_key_of_configuration(config)
        with self._lock:
            if identity != self._in_force:
                self.reset_system()
                self._devices, self._in_force = devices, identity
            self._seeds.clear()
            for device in self._all_devices():
                if device.connection is DeviceConnectionType.ALWAYS:
                    self.attach(device)

    def reset_system(self) -> None:
        """Drops the configuration, attachments and seeds; a fresh system is left as it is."""
        with self._lock:
            self.detach_all()
            self._devices = self._in_force = None
            self._seeds.clear()
            self.generation += 1

    def copy_device_configs(self) -> list[SystemOptions]:
        """Returns a copy of the configuration for each logical device.

        Raises:
          NotConfiguredError: if nothing is configured.
        """
        with self._lock:
            if not self.is_configured:
                raise NotConfiguredError(
                    "no IPU devices are configured; call IPUConfig().configure_ipu_system() first"
                )
            return [copy_config(device.config, frozen=False) for device in self._all_devices()]

    def device(self, name: str = "/device:IPU:0", *, unconfigured_ipus: int = 1) -> LogicalDevice:
        """Returns the logical device of a name, with or without TensorFlow's longer prefix.

        Args:
          name: the name.
          unconfigured_ipus: the IPUs of the first device as long as nothing is configured.

        Raises:
          DeviceError: if it is no name of an IPU device, or its ordinal is not configured.
        """
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise DeviceError(
                f"{name!r} is no name of an IPU device; names look like '/device:IPU:0'"
            )
        ordinal, devices = int(match[1]), self._all_devices()
        if unconfigured_ipus > 1 and not self.is_configured:
            devices = _build_unconfigured_devices(unconfigured_ipus)
        if ordinal < len(devices):
            return devices[ordinal]
        configured_names = ", ".join(device.name for device in devices)
        raise DeviceError(
            f"{name!r}: there is no device with ordinal {ordinal}; the system has "
            f"{configured_names}. Set auto_select_ipus (or select_ipus) to a list with one entry "
            "for each device"
        )

    def attach(self, device: LogicalDevice) -> None:
        """Attaches a device unless it is attached already; to be called before every run.

        A device that is only to be compiled for, with zeros for results, stays unattached.

        Raises:
          ConnectionTypeError: if the device's connection type is `NEVER`.
        """
        if device.name in self._attached or device.only_compiles_programs:
            return
        if device.connection is DeviceConnectionType.NEVER:
            raise ConnectionTypeError(
                f"{device.name} is configured for compilation only: its "
                "device_connection.type is NEVER; choose ON_DEMAND or ALWAYS to run programs"
            )
        with self._lock:
            if self.is_configured:  # a device of an older configuration attaches no more
                device = self.device(device.name)
            if device.name in self._attached:
                return
            attachment = attachments.Attachment(device.name, device.device_id, device.ipus)
            self._attached[device.name] = attachment
            ipus = "IPU" if device.num_ipus == 1 else "IPUs"
            get_logger().info("Device %s attached to %s: %d", device.name, ipus, device.device_id)
            attachments.publish_attachments(list(self._attached.values()))

    def detach_all(self) -> None:
        """Detaches all devices; each attaches again at its next run."""
        with self._lock:
            if self._attached:
                self._attached.clear()
                attachments.withdraw_attachments()

    def set_seed(self, seed: int, device: str = "/device:IPU:0", identical: bool = False) -> None:
        """Sets the seed of a device's random numbers, until it is configured anew."""
        with self._lock:
            self._seeds[self.device(device).name] = DeviceSeed(seed, identical)

    def seed_of_device(self, device: str = "/device:IPU:0") -> DeviceSeed:
        """Returns the seed of a device's random numbers."""
        logical = self.device(device)
        return self._seeds.get(logical.name, DeviceSeed(logical.ordinal))

    def take_next_seed(self, device: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """Returns the seed of the next run on a device, for `first_key_of_run`."""
        with self._lock:
            seed = self.seed_of_device(device)
            self._seeds[device] = dataclasses.replace(seed, runs=seed.runs + 1)
        words = (seed.value, seed.value >> 32, seed.runs, not seed.identical)
        return np.array([word & 0xFFFFFFFF for word in words], np.uint32)

    def _all_devices(self) -> tuple[LogicalDevice, ...]:
        with self._lock:
            if self._devices is None:
                self._devices = build_logical_devices(copy_config(SystemOptions(), frozen=True))
            return self._devices


@functools.lru_cache(maxsize=16)
def _build_unconfigured_devices(num_ipus: int) -> tuple[LogicalDevice, ...]:
    """Builds the devices of a system that nobody has configured for this many IPUs."""
    config = copy_config(SystemOptions(), frozen=False)
    config.auto_select_ipus = num_ipus
    return build_logical_devices(copy_config(config, frozen=True))


def is_ipu_device_name(name: str) -> bool:
    """Returns whether a device name is that of an IPU device, configured or not."""
    return _NAME.fullmatch(name) is not None


def _program_key_of_configuration(config: SystemOptions) -> object:
    """Returns a value that is equal where programs and their reports would be the same."""
    variables = (flags.VARIABLE, poplar_options.VARIABLE, PARTITION_VARIABLE, SIZE_VARIABLE)
    environment = [os.environ.get(name) for name in variables]
    return config_key(config), list_assigned_names(config.ipu_model), environment


def build_logical_devices(config: SystemOptions) -> tuple[LogicalDevice, ...]:
    """Builds every logical device that a configuration asks for."""
    ids = _as_list(config.select_ipus)
    devices_and_counts = (
        _select_devices_by_id(ids)
        if ids
        else _select_devices_by_count(_as_list(config.auto_select_ipus) or [1])
    )
    devices: list[LogicalDevice] = []
    for ordinal, (listed_device, count) in enumerate(devices_and_counts):
        order = position_of_each_shard(count, config.selection_order)
        ipus = tuple(listed_device.ipus[position].index for position in order)
        name = f"/device:IPU:{ordinal}"
        first_index = sum(device.num_ipus for device in devices)
        devices.append(LogicalDevice(name, ordinal, listed_device.id, ipus, first_index, config))
    return tuple(devices)


def _select_devices_by_id(ids: list[int]) -> list[tuple[ListedDevice, int]]:
    if len(set(ids)) < len(ids):
        raise DeviceError(f"select_ipus is {ids}, but device ids must be unique")
    machine = find_machine()
    devices = [machine.device_with_id(id) for id in ids]
    return [(device, len(device.ipus)) for device in devices]


def _select_devices_by_count(counts: list[int]) -> list[tuple[ListedDevice, int]]:
    if min(counts) < 1:
        raise DeviceError(f"auto_select_ipus is {counts}, but a device has at least one IPU")
    machine = find_machine(max(counts))
    used_ipus: set[int] = set()
    devices_and_counts: list[tuple[ListedDevice, int]] = []
    for count in counts:
        listed_device = machine.find_free_device(count, used_ipus)
        used_ipus.update(ipu.index for ipu in listed_device.ipus[:count])
        devices_and_counts.append((listed_device, count))
    return devices_and_counts


def _as_list(value: int | list[int] | tuple[int, ...]) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


SYSTEM = VirtualSystem()
