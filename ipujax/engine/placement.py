"""Where a program's IPUs are: real JAX devices, and how replicas share them.

Arrays of a replicated program carry a leading axis of replicas. The replicas run on as many JAX
devices as there are, when each IPU's replicas find devices of their own; otherwise they are a
vmapped axis on one device. Either way a kernel sees one replica, inside the axis `REPLICAS`.

Replicas of one program may be in several processes, each on devices of its own. Arrays on devices
are then those of all replicas, of which a process can read its own; on the host are these alone.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ipujax import events
from ipujax.distribution.instance import ALONE, Instance
from ipujax.errors import DistributionError
from lowering import jaxpr, ops

Device = Any  # `jax.Device` is a variable to type checkers
Axis = int | None
"""Where an operand carries its replicas; None for what all replicas share."""


@dc.dataclass(frozen=True)
class PerReplica:
    """A value on the host that each replica of this process has its own of, `[replicas, ...]`."""

    array: jax.Array | np.ndarray


@dc.dataclass(frozen=True)
class Placement:
    """The JAX devices of a program.

    Attributes:
      devices: one per IPU, replica after replica: `devices[replica * ipus + ipu]`.
      ipus: IPUs of one replica.
      replicas: copies of the graph.
      spread: whether replicas have devices of their own.
      among: this process, among those that run the program. Where the IPUs of a replica are dealt
        to them, `devices` are of this process, for all IPUs: what it knows of others' is there.
    """

    devices: tuple[Device, ...]
    ipus: int
    replicas: int
    spread: bool
    among: Instance = ALONE

    def sharding(self, ipu: int, axis: Axis = 0) -> jax.sharding.Sharding:
        """Where values of an IPU live, given the axis of their replicas."""
        if not self.spread:
            return SingleDeviceSharding(self.devices[ipu])
        return NamedSharding(self.mesh(ipu), _spec(axis))

    def mesh(self, ipu: int) -> Mesh:
        """The devices of one IPU's replicas."""
        return Mesh(np.array(self.devices[ipu :: self.ipus]), (ops.REPLICAS,))

    def meshes(self) -> list[Mesh]:
        """The devices that collectives of replicas join: of each IPU's replicas."""
        return [self.mesh(ipu) for ipu in range(self.ipus)]

    @functools.cached_property
    def own(self) -> tuple[int, ...]:
        """The replicas of this process."""
        homes = self.devices[:: self.ipus]
        return tuple(r for r, home in enumerate(homes) if home.process_index == _here())

    @property
    def processes(self) -> tuple[int, ...]:
        """Which process runs each IPU of a replica; empty where each has whole replicas."""
        if self.among.spread == "replicas" or self.among.count == 1:
            return ()
        return tuple(ipu * self.among.count // self.ipus for ipu in range(self.ipus))

    @property
    def spans_processes(self) -> bool:
        """Whether other processes have replicas, too."""
        return len(self.own) < self.replicas

    def first_device(self, ipu: int) -> Device:
        """That of an IPU of this process's first replica."""
        return self.devices[self.own[0] * self.ipus + ipu]

    @property
    def uses_one_device(self) -> bool:
        """Whether the whole program runs on a single JAX device."""
        return len(set(self.devices)) == 1 or (self.replicas > 1 and not self.spread)

    @functools.cached_property
    def is_default(self) -> bool:
        """Whether everything runs, once, where JAX would run it of itself.

        Arrays are then not committed to the device, unless they came so: jit compiles anew for a
        change of that.
        """
        return self.replicas == 1 and set(self.devices) == {jax.local_devices()[0]}

    def struct(self, aval: jaxpr.Aval, ipu: int, axis: Axis = 0) -> jax.ShapeDtypeStruct:
        """What XLA is told of an IPU's array, whose replicas are along `axis` (None: all share it).

        Args:
          aval: shape and dtype for one replica.
          ipu: where it is.
          axis: may be 1 for arrays with an axis in front of that of replicas.
        """
        shape = list(aval.shape)
        if axis is not None and self.replicas > 1:
            shape.insert(axis, self.replicas)
        home = None if self.is_default else self.sharding(ipu, axis)
        return struct_of(shape, aval, home)

    def result_homes(self, ipu: int, axes: Sequence[Axis]) -> list[jax.sharding.Sharding] | None:
        """What jit is told of where the results of `replicated` are, by the axes of their replicas.

        XLA says of arrays without elements that they are everywhere, and JAX believes it.

        Returns:
          None where JAX knows it by itself: where replicas share their devices.
        """
        if not self.spread or self.replicas == 1:
            return None
        return [self.sharding(ipu, axis) for axis in axes]

    def of_first_ipu(self) -> Placement:
        """The same replicas, with everything on the devices of IPU 0."""
        return dc.replace(self, devices=self.devices[:: self.ipus], ipus=1)

    def to_device(self, array: jax.Array | PerReplica, ipu: int) -> jax.Array:
        """Brings a host array to an IPU's devices: what each replica has, or one for all."""
        with events.span("load", f"ipu {ipu}"):
            if self.spans_processes:
                is_own = isinstance(array, PerReplica)
                home = self.sharding(ipu, 0 if is_own else None)
                return self.joined(array.array if is_own else array, home)
            if isinstance(array, PerReplica):
                return jax.device_put(array.array, self.sharding(ipu))
            if self.is_default and not getattr(array, "committed", False):
                return array
            return _committed(array, self.sharding(ipu, None))

    def joined(self, array: jax.Array | np.ndarray, home: jax.sharding.Sharding) -> jax.Array:
        """What this process has of an array, on its devices, as a part of the whole.

        Args:
          array: of its replicas, or one for all of them.
          home: where the whole is.
        """
        axis, devices = _axis(home), _devices_here(home)
        if axis is None:
            shape, parts = array.shape, [array] * len(devices)
        else:
            lead = array.shape[:axis]
            shape = (*lead, self.replicas, *array.shape[axis + 1 :])
            before = (slice(None),) * axis
            parts = [array[(*before, slice(n, n + 1))] for n in range(len(devices))]
        shards = list(map(jax.device_put, parts, devices))
        return jax.make_array_from_single_device_arrays(shape, home, shards)

    def parted(self, array: jax.Array) -> jax.Array:
        """Of an array of all replicas, those of this process."""
        if array.is_fully_addressable:
            return array
        home: Any = array.sharding
        devices = _devices_here(home)
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        shape = list(array.shape)
        if (axis := _axis(home)) is not None:
            shape[axis] = len(devices)
        own = NamedSharding(Mesh(np.array(devices), (ops.REPLICAS,)), home.spec)
        return jax.make_array_from_single_device_arrays(
            tuple(shape), own, [shards[device] for device in devices]
        )

    def move(self, array: jax.Array, ipu: int) -> jax.Array:
        """Brings an array from another IPU."""
        if self.spans_processes:
            return self.joined(self.parted(array), self.sharding(ipu))
        return jax.device_put(array, self.sharding(ipu))

    def are_one(self, ipu: int, other: int) -> bool:
        """Whether two IPUs share their devices, so that nothing need be moved between them."""
        return self.devices[ipu :: self.ipus] == self.devices[other :: self.ipus]

    def to_host(self, array: jax.Array) -> jax.Array | PerReplica:
        """Brings an array to the host; of all replicas, if there are several."""
        if self.replicas > 1:
            return PerReplica(self.parted(array))
        if self.is_default:
            return array
        return _committed(array, SingleDeviceSharding(jax.local_devices()[0]))

    def leading(self, array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        """The first replica's value alone or in front of others, `[1 or replicas, ...]`.

        It is the first of this process, and the result on one device.
        """
        if not self.spread or not isinstance(array, jax.Array):
            return array[:1] if self.spread else array
        return next(s.data for s in array.addressable_shards if not s.index[0].start)

    def leading_struct(self, aval: jaxpr.Aval, device: Device) -> jax.ShapeDtypeStruct:
        """What XLA is told of such an array on a device."""
        lead = 1 if self.spread else self.replicas
        home = SingleDeviceSharding(device)
        return struct_of((lead, *aval.shape), aval, home)

    def replicated(
        self,
        function: Callable[..., Sequence[jax.Array]],
        ipu: int,
        in_axes: Sequence[Axis],
        out_axes: Sequence[Axis],
    ) -> Callable[..., Sequence[jax.Array]]:
        """A function of one replica as a function of all of them."""
        if self.replicas == 1:
            return function
        if not self.spread:
            return jax.vmap(
                function,
                in_axes=tuple(in_axes),
                out_axes=list(out_axes),
                axis_name=ops.REPLICAS,
                axis_size=self.replicas,
            )

        def local(*operands: jax.Array) -> list[jax.Array]:
            mine = [_squeezed(x, axis) for x, axis in zip(operands, in_axes, strict=True)]
            results = function(*mine)
            return [_expanded(y, axis) for y, axis in zip(results, out_axes, strict=True)]

        return jax.shard_map(
            local,
            mesh=self.mesh(ipu),
            in_specs=tuple(map(_spec, in_axes)),
            out_specs=list(map(_spec, out_axes)),
            check_vma=False,
        )


def make_placement(first: int, ipus: int, replicas: int, shared: str, among: Instance) -> Placement:
    """Spreads virtual IPUs over the JAX devices of this process, round-robin, or of all.

    Args:
      first: the place of the logical device's first IPU among those of all logical devices.
      ipus: IPUs of one replica.
      replicas: copies of the graph.
      shared: why the replicas of an IPU have to share a device, as what is said of the program; ""
        if they need not.
      among: this process, among those that run the program together.
    """
    if among.shares_of_replicas > 1:
        return _over_processes(ipus, replicas, shared)
    pool = jax.local_devices()
    devices = tuple(pool[(first + n) % len(pool)] for n in range(ipus * replicas))
    columns = [devices[ipu::ipus] for ipu in range(ipus)]
    spread = not shared and replicas > 1 and all(len(set(c)) == replicas for c in columns)
    if replicas > 1 and not spread:
        devices = devices[:ipus] * replicas
    return Placement(devices, ipus, replicas, spread, among)


def _over_processes(ipus: int, replicas: int, shared: str) -> Placement:
    """Deals replicas to processes in their order; each takes devices of its own.

    Raises:
      DistributionError: (a `ValueError`) replicas that cannot be dealt, or have to share a device.
    """
    by_process: dict[int, list[Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    each, rest = divmod(replicas, len(by_process))
    fewest = min(map(len, by_process.values()))
    if rest or fewest < each:
        raise DistributionError(
            f"{replicas} replicas cannot be dealt to {len(by_process)} processes, of which one has "
            f"{fewest} JAX devices",
            fix="give each process as many replicas as all others, and as many devices: ipurun "
            "--num-replicas says both",
        )
    if shared:
        raise DistributionError(
            f"the program {shared}, so that its replicas cannot be in several processes",
            fix="run it in one process",
        )
    devices: list[Device] = []
    for _, own in sorted(by_process.items()):
        step = ipus if len(own) >= each * ipus else 0
        devices += (own[n * step + i if step else n] for n in range(each) for i in range(ipus))
    return Placement(tuple(devices), ipus, replicas, spread=True)


def _here() -> int:
    return jax.process_index()


def _devices_here(home: Any) -> list[Device]:
    """Those of this process, in the order of their replicas."""
    return [device for device in home.mesh.devices.flat if device.process_index == _here()]


def _axis(home: jax.sharding.Sharding) -> Axis:
    """Where arrays with this sharding carry their replicas."""
    spec: Any = getattr(home, "spec", ())
    return spec.index(ops.REPLICAS) if ops.REPLICAS in spec else None


def _committed(array: jax.Array, home: jax.sharding.Sharding) -> jax.Array:
    """The array on devices; `device_put` takes some 50 us to find that it is there already."""
    if array.committed and array.sharding == home:
        return array
    return jax.device_put(array, home)


def _spec(axis: Axis) -> PartitionSpec:
    if axis is None:
        return PartitionSpec()
    return PartitionSpec(*(None,) * axis, ops.REPLICAS)


def _squeezed(x: jax.Array, axis: Axis) -> jax.Array:
    return x if axis is None else jnp.squeeze(x, axis)


def _expanded(x: jax.Array, axis: Axis) -> jax.Array:
    return x if axis is None else jnp.expand_dims(x, axis)


def struct_of(
    shape: Sequence[int], aval: jaxpr.Aval, home: jax.sharding.Sharding | None
) -> jax.ShapeDtypeStruct:
    """What XLA is told of an array; JAX goes on to tell the results of weak types from others."""
    is_weak = getattr(aval, "weak_type", False)
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=home, weak_type=is_weak)
