"""The assignment of a program's IPUs to JAX devices, and how replicas share them.

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

from ipujax.ground import ALONE, DistributionError, Instance, events
from lowering import is_numeric_dtype, jaxpr, ops

Device = Any  # `jax.Device` is a variable to type checkers
Axis = int | None
"""The axis of an operand's replicas; None for a value that all replicas share."""


@dc.dataclass(frozen=True)
class PerReplica:
    """A value on the host that differs between this process's replicas, `[replicas, ...]`."""

    array: jax.Array | np.ndarray


@dc.dataclass(frozen=True)
class Placement:
    """The JAX devices of a program.

    Attributes:
      devices: one per IPU, replica after replica: `devices[replica * ipus + ipu]`.
      ipus: IPUs of one replica.
      replicas: copies of the graph.
      spread: whether replicas have devices of their own.
      instance: this process, among those that run the program. If the IPUs of a replica are split
        to them, `devices` are of this process, for all IPUs: what it knows of others' is there.
      gather: whether results are brought to JAX's first device; otherwise they stay where they are.
      meshes: one per IPU in the order of `devices`, in a `MeshPlacement`.
    """

    devices: tuple[Device, ...]
    ipus: int
    replicas: int
    spread: bool
    instance: Instance = ALONE
    gather: bool = True
    meshes: tuple[Mesh, ...] = ()

    @property
    def has_meshes(self) -> bool:
        """True if each IPU has a mesh of devices; kernels then follow their operands' shardings."""
        return bool(self.meshes)

    def sharding(self, ipu: int, axis: Axis = 0) -> jax.sharding.Sharding:
        """Returns the sharding of an IPU's values, given the axis of their replicas."""
        if not self.spread:
            return SingleDeviceSharding(self.devices[ipu])
        return NamedSharding(self.replica_mesh(ipu), replica_spec(axis))

    def replica_mesh(self, ipu: int) -> Mesh:
        """Returns the mesh of the devices of one IPU's replicas."""
        return Mesh(np.array(self.devices[ipu :: self.ipus]), (ops.REPLICAS,))

    def replica_meshes(self) -> list[Mesh]:
        """Returns for each IPU the mesh of devices that collectives of its replicas join."""
        return [self.replica_mesh(ipu) for ipu in range(self.ipus)]

    @functools.cached_property
    def replicas_of_process(self) -> tuple[int, ...]:
        """The replicas that run in this process."""
        first_devices = self.devices[:: self.ipus]
        return tuple(
            r for r, device in enumerate(first_devices) if device.process_index == _process_index()
        )

    @property
    def process_of_ipu(self) -> tuple[int, ...]:
        """The process that runs each IPU of a replica; empty if processes run whole replicas."""
        if self.instance.spread == "replicas" or self.instance.count == 1:
            return ()
        return tuple(ipu * self.instance.count // self.ipus for ipu in range(self.ipus))

    @property
    def spans_processes(self) -> bool:
        """True if other processes run some of the replicas."""
        return len(self.replicas_of_process) < self.replicas

    def first_device(self, ipu: int) -> Device:
        """Returns the device of an IPU in this process's first replica."""
        return self.devices[self.replicas_of_process[0] * self.ipus + ipu]

    @property
    def uses_one_device(self) -> bool:
        """True if the whole program runs on a single JAX device."""
        return len(set(self.devices)) == 1 or (self.replicas > 1 and not self.spread)

    @property
    def separates_ipus(self) -> bool:
        """True if the IPUs of a replica are on several JAX devices."""
        return len(set(self.devices[: self.ipus])) > 1

    @functools.cached_property
    def is_default(self) -> bool:
        """True if the program has one replica and runs on JAX's default device.

        Arrays are then not committed to the device, unless they came so: jit compiles anew for a
        change of that.
        """
        return self.replicas == 1 and set(self.devices) == {jax.local_devices()[0]}

    def array_struct(
        self, aval: jaxpr.ShapedValue, ipu: int, replica_axis: Axis = 0
    ) -> jax.ShapeDtypeStruct:
        """Returns the shape, dtype and sharding of an IPU's array, with its axis of replicas.

        Args:
          aval: shape and dtype for one replica.
          ipu: where it is.
          axis: may be 1 for arrays with an axis in front of that of replicas.
        """
        shape = list(aval.shape)
        if replica_axis is not None and self.replicas > 1:
            shape.insert(replica_axis, self.replicas)
        sharding = None if self.is_default else self.sharding(ipu, replica_axis)
        return make_shape_struct(shape, aval, sharding)

    def result_shardings(
        self, ipu: int, axes: Sequence[Axis]
    ) -> list[jax.sharding.Sharding] | None:
        """Returns the shardings of the results of a replicated function, for jit.

        They are explicit since XLA reports every array without elements as replicated.

        Returns:
          None where JAX needs no shardings: where replicas share their devices.
        """
        if not self.spread or self.replicas == 1:
            return None
        return [self.sharding(ipu, axis) for axis in axes]

    def place_all_on_first_ipu(self) -> Placement:
        """Returns the same replicas with everything on the devices of IPU 0."""
        return dc.replace(self, devices=self.devices[:: self.ipus], ipus=1)

    def move_to_ipu(self, arrays: Sequence[Any], ipu: int) -> Sequence[jax.Array]:
        """Moves host arrays to an IPU's devices: per replica, or one for all."""
        with events.span("load", f"ipu {ipu}"):
            if self.is_default and not any(getattr(array, "committed", False) for array in arrays):
                return arrays
            return [self._move_host_array(array, ipu) for array in arrays]

    def _move_host_array(self, array: Any, ipu: int) -> jax.Array:
        """Moves one host array to an IPU, for each replica or for all of them."""
        is_own = isinstance(array, PerReplica)
        if self.spans_processes:
            sharding = self.sharding(ipu, 0 if is_own else None)
            return self.build_global_array(array.array if is_own else array, sharding)
        if is_own:
            return jax.device_put(array.array, self.sharding(ipu))
        if self.is_default and not getattr(array, "committed", False):
            return array
        return _move_if_elsewhere(array, self.sharding(ipu, None))

    def build_global_array(
        self, array: jax.Array | np.ndarray, sharding: jax.sharding.Sharding
    ) -> jax.Array:
        """Builds a global array from this process's part of it.

        Args:
          array: the rows of its replicas, or one array for all of them.
          sharding: that of the global array.
        """
        axis, devices = _replica_axis(sharding), _local_devices(sharding)
        if axis is None:
            shape, parts = array.shape, [array] * len(devices)
        else:
            lead = array.shape[:axis]
            shape = (*lead, self.replicas, *array.shape[axis + 1 :])
            leading_slices = (slice(None),) * axis
            parts = [array[(*leading_slices, slice(n, n + 1))] for n in range(len(devices))]
        shards = list(map(jax.device_put, parts, devices))
        return jax.make_array_from_single_device_arrays(shape, sharding, shards)

    def take_local_replicas(self, array: jax.Array) -> jax.Array:
        """Returns the rows of this process's replicas from an array of all replicas."""
        if array.is_fully_addressable:
            return array
        sharding: Any = array.sharding
        devices = _local_devices(sharding)
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        shape = list(array.shape)
        if (axis := _replica_axis(sharding)) is not None:
            shape[axis] = len(devices)
        local_sharding = NamedSharding(Mesh(np.array(devices), (ops.REPLICAS,)), sharding.spec)
        return jax.make_array_from_single_device_arrays(
            tuple(shape), local_sharding, [shards[device] for device in devices]
        )

    def move_between_ipus(self, arrays: Sequence[jax.Array], ipu: int) -> list[jax.Array]:
        """Moves arrays from another IPU to this one."""
        sharding = self.sharding(ipu)
        if self.spans_processes:
            return [
                self.build_global_array(self.take_local_replicas(array), sharding)
                for array in arrays
            ]
        return copy_shards(arrays, [sharding] * len(arrays))

    def share_devices(self, ipu: int, other_ipu: int) -> bool:
        """Returns whether two IPUs share their devices, so that moves between them are free."""
        return self.devices[ipu :: self.ipus] == self.devices[other_ipu :: self.ipus]

    def move_to_host(self, arrays: Sequence[jax.Array]) -> Sequence[jax.Array | PerReplica]:
        """Moves results to the host, if results are gathered.

        With several replicas, they are the values of all of them.
        """
        if self.replicas > 1:
            return [PerReplica(self.take_local_replicas(array)) for array in arrays]
        if self.is_default or not self.gather:
            return arrays
        first = SingleDeviceSharding(jax.local_devices()[0])
        return [_move_if_elsewhere(array, first) for array in arrays]

    def place_argument(self, array: jax.Array, ipu: int) -> jax.Array:
        """Moves an argument to the device of an IPU in this process's first replica."""
        return _move_if_elsewhere(array, SingleDeviceSharding(self.first_device(ipu)))

    def gather_results(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """Moves results of replica 0 to JAX's first device."""
        return jax.device_put(arrays, jax.local_devices()[0])

    def take_first_replica(self, array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        """Returns the value of this process's first replica, alone or in front of others.

        It is the first of this process, and the result on one device.
        """
        if not self.spread or not isinstance(array, jax.Array):
            return array[:1] if self.spread else array
        return next(s.data for s in array.addressable_shards if not s.index[0].start)

    def first_replica_struct(self, aval: jaxpr.ShapedValue, device: Device) -> jax.ShapeDtypeStruct:
        """Returns the shape, dtype and sharding of a `take_first_replica` array on a device."""
        lead = 1 if self.spread else self.replicas
        sharding = SingleDeviceSharding(device)
        return make_shape_struct((lead, *aval.shape), aval, sharding)

    def replicate_function(
        self,
        function: Callable[..., Sequence[jax.Array]],
        ipu: int,
        in_axes: Sequence[Axis],
        out_axes: Sequence[Axis],
    ) -> Callable[..., Sequence[jax.Array]]:
        """Turns a function of one replica into a function of all of them."""
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

        def run_local_replica(*operands: jax.Array) -> list[jax.Array]:
            mine = [_squeeze_axis(x, axis) for x, axis in zip(operands, in_axes, strict=True)]
            results = function(*mine)
            return [_expand_axis(y, axis) for y, axis in zip(results, out_axes, strict=True)]

        return jax.shard_map(
            run_local_replica,
            mesh=self.replica_mesh(ipu),
            in_specs=tuple(map(replica_spec, in_axes)),
            out_specs=list(map(replica_spec, out_axes)),
            axis_names={ops.REPLICAS},
            check_vma=False,
        )


def make_placement(
    first: int, ipus: int, replicas: int, shared: str, instance: Instance, *, gather: bool = True
) -> Placement:
    """Assigns virtual IPUs to JAX devices, round-robin within this process or over all processes.

    Args:
      first: the place of the logical device's first IPU among those of all logical devices.
      ipus: IPUs of one replica.
      replicas: copies of the graph.
      shared: why the replicas of an IPU have to share a device, as what is said of the program; ""
        if they need not.
      instance: this process, among those that run the program together.
      gather: whether results are brought to JAX's first device.
    """
    if instance.num_replica_groups > 1:
        return dc.replace(_place_over_processes(ipus, replicas, shared), gather=gather)
    pool = jax.local_devices()
    devices = tuple(pool[(first + n) % len(pool)] for n in range(ipus * replicas))
    columns = [devices[ipu::ipus] for ipu in range(ipus)]
    spread = not shared and replicas > 1 and all(len(set(c)) == replicas for c in columns)
    if replicas > 1 and not spread:
        devices = devices[:ipus] * replicas
    return Placement(devices, ipus, replicas, spread, instance, gather)


def _place_over_processes(ipus: int, replicas: int, shared: str) -> Placement:
    """Assigns replicas to processes in order; each replica gets devices of its own.

    Raises:
      DistributionError: (a `ValueError`) replicas that cannot be dealt, or have to share a device.
    """
    by_process: dict[int, list[Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    replicas_per_process, remainder = divmod(replicas, len(by_process))
    fewest = min(map(len, by_process.values()))
    if remainder or fewest < replicas_per_process:
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
    for _, local_devices in sorted(by_process.items()):
        step = ipus if len(local_devices) >= replicas_per_process * ipus else 0
        devices += (
            local_devices[n * step + i if step else n]
            for n in range(replicas_per_process)
            for i in range(ipus)
        )
    return Placement(tuple(devices), ipus, replicas, spread=True)


def _process_index() -> int:
    return jax.process_index()


def _local_devices(sharding: Any) -> list[Device]:
    """Returns this process's devices of a sharding, in the order of their replicas."""
    return [
        device for device in sharding.mesh.devices.flat if device.process_index == _process_index()
    ]


def _replica_axis(sharding: jax.sharding.Sharding) -> Axis:
    """Returns the axis of the replicas in arrays with this sharding."""
    spec: Any = getattr(sharding, "spec", ())
    return spec.index(ops.REPLICAS) if ops.REPLICAS in spec else None


def _move_if_elsewhere(array: jax.Array, sharding: jax.sharding.Sharding) -> jax.Array:
    """Puts an array on devices, if it is not there: `device_put` takes 50 us to find out."""
    if array.committed and array.sharding == sharding:
        return array
    return jax.device_put(array, sharding)


def replica_spec(axis: Axis) -> PartitionSpec:
    """Returns the spec of an array whose replicas are along an axis, or that they share."""
    if axis is None:
        return PartitionSpec()
    return PartitionSpec(*(None,) * axis, ops.REPLICAS)


def _squeeze_axis(x: jax.Array, axis: Axis) -> jax.Array:
    return x if axis is None else jnp.squeeze(x, axis)


def _expand_axis(x: jax.Array, axis: Axis) -> jax.Array:
    return x if axis is None else jnp.expand_dims(x, axis)


def copy_shards(arrays: Sequence[jax.Array], shardings: Sequence[Any]) -> list[jax.Array]:
    """Copies each array to the devices of a sharding that cuts it into the same shards."""
    if jaxpr.can_copy_shards and all(is_numeric_dtype(array.dtype) for array in arrays):
        return jaxpr.copy_shards(arrays, shardings)
    return jax.device_put(list(arrays), list(shardings))


def make_shape_struct(
    shape: Sequence[int], aval: jaxpr.ShapedValue, sharding: jax.sharding.Sharding | None
) -> jax.ShapeDtypeStruct:
    """Returns the shape, dtype, weak type and sharding of an array, for XLA."""
    is_weak = getattr(aval, "weak_type", False)
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=sharding, weak_type=is_weak)
